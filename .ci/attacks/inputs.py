"""Mutated files of every kind that the program reads."""
import glob, os, re, shutil, subprocess, tempfile

from .common import PROGRAM, ROOT, fail, judge, run

TOKENS = [b"\x00", b"\x1b]0;owned\x07", b"\x1b[2J", "\u202e".encode(), b"\xc2\x9b31m", b"\xff\xfe", b"-1", b"0",
          b"18446744073709551616", b"1e309", b"NaN", b"[" * 2000, b"{\"a\":" * 2000, b"a" * 70000, b"../../../etc/shadow",
          b"%s%n", b"</script><script>alert(1)</script>", b"\r\n", b"'", b"\"", b"\\", b"# ", b"= ", b"[[", b"]]", b"null"]


def mutated(data, chance):
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        kind = chance.randrange(7)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at:at + chance.randint(1, 200)]
        elif kind == 2:
            data[at:at] = data[at:at + chance.randint(1, 400)]
        elif kind == 3:
            data[at:at] = chance.choice(TOKENS)
        elif kind == 4 and chance.random() < 0.3:
            del data[at:]
        elif kind == 5:
            lines = data.split(b"\n")
            i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            data = bytearray(b"\n".join(lines))
        else:
            numbers = list(re.finditer(rb"\d+", bytes(data)))
            if numbers:
                number = chance.choice(numbers)
                data[number.start():number.end()] = chance.choice([b"0", b"-1", b"99999999999999999999", b"0.5", b"4294967296"])
    return bytes(data)


def made_inputs(folder):
    """(name, bytes, suffix, arguments) of every kind of file that is read."""
    program = lambda *words: [PROGRAM, *words]
    kinds = []

    def add(name, path, *words):
        with open(path, "rb") as file:
            kinds.append((name, file.read(), os.path.splitext(path)[1] or ".conf", program(*words)))

    for path in glob.glob(f"{ROOT}/studies/*.toml"):
        add("study", path, "study", "run", "{}", "--to", "localhost", "--dry-run")
    for path in glob.glob(f"{ROOT}/fabrics/*.toml"):
        if "ten-thousand" not in path:
            add("fabric", path, "route", "plan", "{}", "--flows", "1")
    for path in glob.glob(f"{ROOT}/labs/*.toml"):
        add("lab", path, "lab", "up", "{}")
    plan = f"{folder}/plan.json"
    subprocess.run(program("tune", "plan", "--rate", "40Gb/s", "--rtt", "17ms", "--out", plan), stdout=subprocess.DEVNULL, check=True)
    add("plan", plan, "plan", "verify", "{}")
    add("plan", plan, "plan", "render", "--as", "shell", "--out", f"{folder}/rendered", "{}")
    texts = [path for path in glob.glob(f"{ROOT}/fixtures/configs/**", recursive=True) if os.path.isfile(path)]
    for path in texts:
        add("settings", path, "tune", "lint", "{}")
        add("routes", path, "route", "lint", "{}")
    for path in glob.glob(f"{ROOT}/fixtures/hosts/*.tar.gz"):
        add("capture", path, "inspect", "--from", "{}")
    capture = f"{folder}/here.tar.gz"
    subprocess.run(program("inspect", "--capture", capture), stdout=subprocess.DEVNULL, check=True)
    add("capture", capture, "inspect", "--from", "{}")
    add("capture", capture, "route", "lint", "--from", "{}")
    identity = f"{folder}/identity"
    token = f"{folder}/token.txt"
    with open(token, "wb") as file:
        subprocess.run(program("pair", "create", "attacker", "--identity", identity), stdout=file, stderr=subprocess.DEVNULL, check=True)
    add("token", token, "pair", "accept", f"{folder}/accepted.json")
    pairing = f"{folder}/pairing.json"
    with open(token, "rb") as file:
        subprocess.run(program("pair", "accept", pairing), stdin=file, stdout=subprocess.DEVNULL, check=True)
    add("pairing", pairing, "probe", "127.0.0.1:1", "--pairing", "{}")
    add("mutes", texts[0], "tune", "lint", "--mute-file", "{}", texts[0])
    return kinds


def inputs(count, chance):
    with tempfile.TemporaryDirectory() as folder:
        kinds = made_inputs(folder)
        names = sorted({kind[0] for kind in kinds})
        of = {name: [kind for kind in kinds if kind[0] == name] for name in names}
        names += ["record", "journal"]
        record = f"{ROOT}/fixtures/records/clearstream-40ge"
        journals = "/var/lib/clearstream/plans"
        plan = f"{folder}/plan.json"
        if run([PROGRAM, "plan", "apply", "--yes", plan])[0] != 0:
            fail("inputs", "a plan for the mutated journals could not be applied")
        journal = glob.glob(f"{journals}/*.jsonl")[0]
        with open(journal, "rb") as file:
            journal_bytes = file.read()
        for number in range(count):
            name = names[number % len(names)]
            if name == "record":
                path = f"{folder}/record"
                shutil.rmtree(path, ignore_errors=True)
                shutil.copytree(record, path)
                victim = chance.choice([f"{path}/run.json", f"{path}/trials.jsonl"] + glob.glob(f"{path}/samples/*"))
                with open(victim, "rb") as file:
                    data = file.read()
                with open(victim, "wb") as file:
                    file.write(mutated(data, chance))
                words = chance.choice([["report", path, "-o", f"{folder}/out.html"], ["diagnose", "--from", path],
                                       ["study", "compare", path, record]])
                command = [PROGRAM, *words]
            elif name == "journal":
                path = journal
                with open(path, "wb") as file:
                    file.write(mutated(journal_bytes, chance))
                command = [PROGRAM, "plan", chance.choice(["history", "history", "recover"])]
            else:
                _, data, suffix, words = chance.choice(of[name])
                path = f"{folder}/mutated{suffix}"
                with open(path, "wb") as file:
                    file.write(mutated(data, chance))
                command = [path if word == "{}" else word for word in words]
            stdin = open(path, "rb") if name == "token" else None
            # A service of a lab has 30 s to be ready.
            code, output, peak = run(command, stdin=stdin, limit=60 if name == "lab" else 20)
            if stdin:
                stdin.close()
            judge("inputs", f"{name} {' '.join(command[1:3])}", code, output, peak, path)
            if name == "lab" and code == 0:
                for line in subprocess.run([PROGRAM, "lab", "list"], capture_output=True, text=True).stdout.splitlines():
                    subprocess.run([PROGRAM, "lab", "down", line.split()[0]], capture_output=True) if line.split() else None
        # What was applied for the journal is restored: sections do not depend on each other.
        with open(journal, "wb") as file:
            file.write(journal_bytes)
        subprocess.run([PROGRAM, "plan", "revert", "--force"], stdout=subprocess.DEVNULL, check=True)
    return f"{count} mutated files of {len(names)} kinds"
