"""Random kills of any of our processes that leave something to clear up (a command or an agent that changes settings, its
guardian; a test of files, its agent and guard; the daemon), in any phase, with the folder of the journals in each of its
bad states: what is not kept is restored by the deadline or by the next start, and nothing stays."""
import collections, concurrent.futures, contextlib, glob, json, os, random, signal, struct, subprocess, sys, tempfile, time

STATES = ["as-before", "full", "read-only", "gone", "moved", "other-owner"]
WITHIN, PATIENCE = 1.0, 5.0
MAJOR = 2  # of the protocol of agents


class Kind:
    """What is started, and which of its processes may be killed, each by the words of its command line."""

    def __init__(self, share, command, kills, within=0.0):
        self.share, self.command, self.kills, self.within = share, command, kills, within


def subsets(*words):
    return [list(words[index] for index in range(len(words)) if mask >> index & 1) for mask in range(1, 1 << len(words))]


KINDS = {
    "apply": Kind(8, ["plan", "apply", "PLAN", "--yes", "--confirm-within", f"{WITHIN}s"], subsets("plan apply", "plan guard"), WITHIN),
    "agent": Kind(4, ["agent"], subsets("agent", "plan guard")),
    "stream": Kind(2, ["storage", "stream", "FILES", "-b", "1MiB", "-i", "300", "-F"], subsets("storage stream", "agent", "storage guard")),
    "metadata": Kind(2, ["storage", "metadata", "FILES", "-n", "300", "-i", "6"], subsets("storage metadata", "agent", "storage guard")),
    "semantics": Kind(2, ["storage", "semantics", "FILES"], subsets("storage semantics", "agent", "storage guard", "storage operations")),
    "serve": Kind(1, ["serve", "--listen", "127.0.0.1:5799"], subsets("serve")),
}


def guardians(count, chance):
    from .common import PROGRAM, fail

    seeds = [chance.randrange(1 << 30) for _ in range(count)]
    inside = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, __file__]

    def attempt(seed):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([*inside, PROGRAM, str(seed), folder], capture_output=True, text=True)

    said = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for seed, ended in zip(seeds, pool.map(attempt, seeds)):
            if ended.returncode != 0:
                fail("guardians", f"seed {seed}: {ended.stdout}{ended.stderr}")
            said[ended.stdout.strip().rpartition("\n")[2]] += 1
    return f"{count} kills: " + ", ".join(f"{number} {what}" for what, number in sorted(said.items()) if what)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def shown():
    links = [open(f"/sys/class/net/d0/{name}").read() for name in ("mtu", "queues/rx-0/rps_cpus")]
    routes = [line for line in output("ip", "route", "show", "table", "all").splitlines() if line.startswith("10.8.")]
    sysctls = output("sysctl", "-n", "net.ipv4.tcp_sack", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
    return [*links, *routes, sysctls, output("tc", "qdisc", "show", "dev", "d0")]


def processes(words):
    return [int(pid) for pid in output("pgrep", "-f", f"clearstream {words}").split() if int(pid) != os.getpid()]


def plan(path):
    def step(setting, desired):
        return {"setting": setting, "desired": desired, "reason": "an attack", "effect": "now"}

    uname = os.uname()
    steps = [step({"sysctl": "net.ipv4.tcp_sack"}, "0"), step({"link": {"interface": "d0", "attribute": "mtu"}}, "1400"),
             step({"qdisc": {"interface": "d0"}}, "pfifo limit 77"), step({"sysctl": "net.ipv4.tcp_rmem"}, "4096 99999 999999"),
             step({"file": "sys/class/net/d0/queues/rx-0/rps_cpus"}, "1"), step({"sysctl": "net.ipv4.tcp_wmem"}, "4096 88888 888888"),
             step({"route": {"table": 77, "destination": "10.8.0.0/24"}}, "via 10.7.0.2 dev d0 proto 117")]
    document = {"schema": "clearstream.plan", "version": 1, "purpose": "an attack", "steps": steps,
                "host": {"name": uname.nodename, "kernel": uname.release}}
    with open(path, "w") as file:
        json.dump(document, file)


def spoil(state, folder, plans):
    """Returns what makes it good again."""
    if state == "full":
        for journal in glob.glob(f"{plans}/*.jsonl"):
            with open(journal, "a") as file:
                file.write("\n" * (-os.path.getsize(journal) % 4096))
        subprocess.run(["dd", "if=/dev/zero", f"of={folder}/filled"], capture_output=True)
        return ["rm", "-f", f"{folder}/filled"]
    if state == "read-only":
        # Busy while a file of it is open for writing, as a journal is for moments.
        while subprocess.run(["mount", "-o", "remount,ro", folder], capture_output=True).returncode:
            time.sleep(0.01)
        return ["mount", "-o", "remount,rw", folder]
    if state == "gone":
        subprocess.run(["rm", "-rf", plans])
    if state == "moved" and os.path.exists(plans):
        os.rename(plans, f"{folder}/elsewhere")
        return ["sh", "-c", f"rm -rf {plans}; mv {folder}/elsewhere {plans}"]
    if state == "other-owner":
        subprocess.run(["chown", "-R", "nobody", plans], stderr=subprocess.DEVNULL)
        subprocess.run(["chown", "nobody", folder])
    return ["true"]


def frame(document):
    text = json.dumps(document).encode()
    return struct.pack(">I", len(text)) + text


def start(program, kind, folder):
    """The process; an agent gets a change that is restored when its session ends."""
    words = [{"PLAN": f"{folder}/plan.json", "FILES": f"{folder}/files"}.get(word, word) for word in kind.command]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if words != ["agent"]:
        return subprocess.Popen([program, *words], stdin=subprocess.DEVNULL, **quiet)
    child = subprocess.Popen([program, *words], stdin=subprocess.PIPE, **quiet)
    hello = {"major": MAJOR, "minor": 0, "version": "attack", "host": "attack"}
    with open(f"{folder}/plan.json") as file:
        call = {"id": 1, "name": "plan apply-pending", "body": {"plan": json.load(file)}}
    child.stdin.write(frame({"hello": hello}) + frame({"request": call}))
    child.stdin.flush()
    return child


def attempt(program, seed, folder):
    chance = random.Random(seed)
    subprocess.run(f"""mount -t tmpfs -o size=256k state {folder}; mount -t sysfs sys /sys; ip link set lo up
        mkdir {folder}/files; mount -t tmpfs -o size=64m files {folder}/files
        ip link add d0 type veth peer name d1; ip address add 10.7.0.1/24 dev d0; ip link set d1 up; ip link set d0 up""",
                   shell=True, check=True)
    plans = f"{folder}/plans"
    os.environ.update(CLEARSTREAM_PLANS=plans)
    os.environ.pop("SSH_CONNECTION", None)
    plan(f"{folder}/plan.json")
    name = chance.choices(list(KINDS), [kind.share for kind in KINDS.values()])[0]
    kind, before, state = KINDS[name], shown(), chance.choice(STATES)
    spoils_early, kills = chance.random() < 0.5, chance.choice(kind.kills)
    child = start(program, kind, folder)
    time.sleep(chance.uniform(0, 0.08) if chance.random() < 0.4 else chance.uniform(0, kind.within or 1.5))
    repair = spoil(state, folder, plans) if spoils_early else ["true"]
    for words in kills:
        for pid in processes(words):
            # It may have ended with the one before it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
    repair = repair if spoils_early else spoil(state, folder, plans)
    if child.stdin:
        # The controller goes as well.
        child.stdin.close()
    if name == "serve":
        # It was no process of this name yet, and ends by itself never.
        child.kill()
    child.wait(60)
    until = time.monotonic() + kind.within + PATIENCE

    def stays():
        changed = [] if shown() == before else [f"{shown()} instead of {before}"]
        return changed + os.listdir(f"{folder}/files")

    while stays() and time.monotonic() < until:
        time.sleep(0.05)
    is_late = bool(stays())
    # What is gone is gone: a guardian that was killed as well was the last that knew.
    if is_late and state == "gone" and "plan guard" in kills:
        print(f"{name} with nobody left that knows")
        return 0
    subprocess.run(repair)
    said = ""
    if is_late:
        again = ["plan", "history"] if "storage" not in kind.command else ["storage", "semantics", f"{folder}/files"]
        ended = subprocess.run([program, *again], capture_output=True, text=True)
        said = ended.stdout + ended.stderr
    what = f"{name}, {state}, killed {kills}"
    if stays():
        print(f"{what}: {stays()}; {said}")
        return 1
    ours = ["plan guard", "storage guard", "storage operations", "agent", *(" ".join(kind.command[:2]) for kind in KINDS.values())]
    for _ in range(100):
        output(program, "plan", "history")
        files = [name for name in glob.glob(f"{folder}/**/*", recursive=True) if name.endswith((".trial", ".test"))]
        left = [words for words in ours if processes(words)]
        if not files and not left:
            break
        time.sleep(0.1)
    else:
        print(f"{what}: left {files} {left}")
        return 1
    print(f"{name} by the next start" if is_late else f"{name} in time")
    return 0


if __name__ == "__main__":
    sys.exit(attempt(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
