"""Captures, names and texts made to reach outside: archives that write elsewhere,
names with shell syntax and options, markup and formulas in records. Nothing outside
is touched, nothing is run, nothing reaches a report unescaped."""
import csv, gzip, io, json, os, shutil, tarfile, tempfile

from .common import PROGRAM, ROOT, fail, judge, run

ARCHIVES, NAMES, TEXTS = 15, 39, 297


def member(name, data=b"x\n", **attributes):
    """One member of an archive as a tar file without its end."""
    output = io.BytesIO()
    archive = tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT)
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return output.getvalue()


def zeros(size):
    """An archive of one file of zeros; made in parts, because a child's peak memory starts with that of its parent."""
    header = tarfile.TarInfo("proc/cpuinfo")
    header.size = size
    output, block = io.BytesIO(), bytes(1 << 20)
    with gzip.GzipFile(fileobj=output, mode="wb", compresslevel=1) as file:
        file.write(header.tobuf())
        for _ in range(size // len(block)):
            file.write(block)
        file.write(bytes(1024))
    return output.getvalue()


def archives(outside):
    """(what it does, bytes of a .tar.gz)."""
    link = dict(data=b"", type=tarfile.SYMTYPE)
    parts = {
        "path upwards": member(f"../../../../../../..{outside}/escaped"),
        "absolute path": member(f"{outside}/escaped"),
        "file through a symbolic link": member("proc", linkname=outside, **link) + member("proc/escaped"),
        "symbolic link upwards": member("proc/cpuinfo", linkname="../../../../../../etc/shadow", **link),
        "absolute symbolic link": member("proc/cpuinfo", linkname="/etc/shadow", **link),
        "link to itself": member("proc", linkname="proc", **link),
        "hard link": member("proc/cpuinfo", b"", type=tarfile.LNKTYPE, linkname="/etc/shadow"),
        "device": member("proc/cpuinfo", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
        "pipe": member("proc/cpuinfo", b"", type=tarfile.FIFOTYPE),
        "name with escapes": member("proc/\x1b]0;owned\x07", b"\x1b[2J"),
        "long name": member("a/" * 2000 + "b"),
        "many members": b"".join(member(f"sys/{number}") for number in range(20000)),
        "set-uid": member("proc/cpuinfo", mode=0o6777),
    }
    made = [(what, gzip.compress(data + bytes(1024), 1)) for what, data in parts.items()]
    made.append(("a gigabyte of zeros", zeros(1 << 30)))
    whole = gzip.compress(member("proc/cpuinfo", os.urandom(5000)), 1)
    made.append(("cut off", whole[:len(whole) // 2]))
    return made


def hostile_archives(folder):
    outside = f"{folder}/outside"
    os.mkdir(outside)
    made = archives(outside)
    for what, data in made:
        path = f"{folder}/hostile.tar.gz"
        with open(path, "wb") as file:
            file.write(data)
        for words in (["inspect", "--from", path], ["route", "lint", "--from", path]):
            code, output, peak = run([PROGRAM, *words])
            judge("hostile", f"capture, {what}", code, output, peak, path)
            if b"root:" in output:
                fail("hostile", f"capture, {what}: shows a file of this host")
        if os.listdir(outside):
            fail("hostile", f"capture, {what}: wrote {os.listdir(outside)}")
    return len(made)


def names(mark):
    return [f"-oProxyCommand=touch {mark}", f"$(touch {mark})", f";touch {mark};", f"`touch {mark}`", f"|touch {mark}", f"&touch {mark}&",
            f"a\ntouch {mark}", f"'{mark}", f"../../../../../..{mark}", "\x1b]0;owned\x07", "\u202eevil", "a" * 5000, "--version=1"]


def hostile_names(folder):
    mark, saved = f"{folder}/mark", f"{folder}/name.txt"
    made = 0
    for name in names(mark):
        with open(saved, "w") as file:
            file.write(name)
        for words in (["probe", "--count", "1", "--", name], ["lab", "up", "--", name],
                      ["pair", "create", "--identity", f"{folder}/identity", "--", name]):
            code, output, peak = run([PROGRAM, *words])
            judge("hostile", f"name {name[:30]!r} for {' '.join(words[:2])}", code, output, peak, saved)
            made += 1
        if os.path.lexists(mark):
            fail("hostile", f"name {name[:30]!r} made {mark}")
            os.remove(mark)
    return made


PAYLOADS = ["\"><img src=x97 onerror=alert(97)><script>alert(97)</script>", "</script><script>alert(97)</script>",
            "=HYPERLINK(\"http://x97.invalid\",\"97\")"]
RAW = ("<script>alert(97)", "<img src=x97")


def texts_of(value, path=()):
    """Paths of all texts in a document that are not its schema or its kinds."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from texts_of(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from texts_of(inner, (*path, index))
    elif isinstance(value, str):
        yield path


def with_text(document, path, text):
    changed = json.loads(json.dumps(document))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = text
    return changed


def check_report(what, form, path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if form == "csv":
        for row in csv.reader(io.StringIO(text)):
            for cell in row:
                if cell.startswith("=HYPERLINK"):
                    fail("hostile", f"{what}: formula in {cell[:60]!r}")
    elif any(raw in text for raw in RAW):
        at = min(text.find(raw) for raw in RAW if raw in text)
        fail("hostile", f"{what}: {text[max(0, at - 60):at + 40]!r}")


def hostile_texts(folder, count, chance):
    """Each text of a record's run and of its first trials replaced by markup and formulas."""
    source = f"{ROOT}/fixtures/records/clearstream-40ge"
    with open(f"{source}/run.json") as file:
        run_document = json.load(file)
    with open(f"{source}/trials.jsonl") as file:
        trials = [json.loads(line) for line in file]
    places = [("run", path) for path in texts_of(run_document)] + [("trial", path) for path in texts_of(trials[1])]
    accepted = {"html": 0, "markdown": 0, "csv": 0}
    for number in range(count):
        form = ("html", "markdown", "csv")[number % 3]
        where, path = chance.choice(places)
        payload = PAYLOADS[2] if form == "csv" else chance.choice(PAYLOADS[:2])
        record, output_path = f"{folder}/record", f"{folder}/report.{form}"
        shutil.rmtree(record, ignore_errors=True)
        shutil.copytree(source, record)
        if where == "run":
            with open(f"{record}/run.json", "w") as file:
                json.dump(with_text(run_document, path, payload), file)
        else:
            with open(f"{record}/trials.jsonl", "w") as file:
                lines = [trials[0], with_text(trials[1], path, payload), *trials[2:]]
                file.write("".join(json.dumps(line) + "\n" for line in lines))
        what = f"text {'.'.join(map(str, path))} of {where} as {form}"
        code, output, peak = run([PROGRAM, "report", record, "--format", form, "--out", output_path])
        judge("hostile", what, code, output, peak, record)
        if code == 0:
            accepted[form] += 1
            check_report(what, form, output_path)
    if min(accepted.values()) * 20 < count:
        fail("hostile", f"hardly any changed record makes a report: {accepted}")


def hostile(count, chance):
    with tempfile.TemporaryDirectory() as folder:
        captures, named = hostile_archives(folder), hostile_names(folder)
        if (captures, named) != (ARCHIVES, NAMES):
            fail("hostile", f"{captures} archives and {named} names instead of {ARCHIVES} and {NAMES}")
        texts = max(60, count - ARCHIVES - NAMES)
        hostile_texts(folder, texts, chance)
    return f"{captures} captures, {named} names, {texts} texts"
