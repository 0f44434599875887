"""Faults, kills, interrupts and strangers while `storage stream`, `metadata` and `semantics` work
in a directory that has files of others: an inventory of the mount before and after, by path and
inode. Nothing of others may change; nothing of the run may stay where it could be removed."""
import hashlib, os, resource, shutil, signal, stat, subprocess, tempfile, time

from .common import DOCUMENTED, PROGRAM, fail

CALLS = ["openat", "pwrite64", "pread64", "fsync", "ftruncate", "fallocate", "mkdirat", "unlinkat", "renameat",
         "statx", "getdents64", "write", "read", "flock", "linkat"]
# Where these fail, removal may fail too: what stays then was not to be removed.
OF_REMOVAL = {"openat", "unlinkat", "getdents64", "statx", "read", "write", "flock", "mkdirat"}
ERRORS = ["EIO", "ENOSPC", "EACCES", "ESTALE", "EDQUOT", "ENOENT", "EINTR", "EMFILE"]


def inventory(folder):
    """What is below a folder: by path its inode, kind, size, links, times and content."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(place, name)
            content = None
            try:
                entry = os.lstat(path)
                if stat.S_ISREG(entry.st_mode):
                    content = hashlib.sha256(open(path, "rb").read()).hexdigest()
                elif stat.S_ISLNK(entry.st_mode):
                    content = os.readlink(path)
            except FileNotFoundError:
                continue  # A guardian removes it just now.
            time_of = None if stat.S_ISDIR(entry.st_mode) else entry.st_mtime_ns
            found[os.path.relpath(path, folder)] = (entry.st_ino, entry.st_mode, content, time_of)
    return found


def of_others(folder):
    """Files that a storage benchmark could take for its own, by their names."""
    for name in ["clearstream-storage", "stream", "data", "testfile", "mdtest_tree.0", "rank-0"]:
        os.mkdir(f"{folder}/{name}")
        for file in ["data", "rank-0", "0", "file.0", "shared", "clearstream-kept.json"]:
            with open(f"{folder}/{name}/{file}", "w") as out:
                out.write(f"of others: {name} {file}\n")
    os.symlink("data", f"{folder}/link")
    os.link(f"{folder}/data/0", f"{folder}/hard-link")
    os.mkfifo(f"{folder}/fifo")


def commands(chance, folder):
    ranks = ["--tasks", str(chance.choice([1, 2, 4]))]
    shape = chance.choice([[], ["-F"], ["-i", "3"], ["-F", "-i", "2", "-z"], ["-D", "100ms"], ["--backend", "mmap"],
                           ["--backend", "io-uring"], ["-W"]])
    tree = chance.choice([[], ["-u"], ["-z", "2", "-b", "3"], ["-w", "4KiB", "-e", "4KiB"], ["-i", "3"], ["-W", "50ms"]])
    return [
        ["storage", "stream", folder, "-t", "64KiB", "-b", chance.choice(["1MiB", "16MiB"]), *ranks, *shape],
        ["storage", "metadata", folder, "-n", chance.choice(["50", "2000"]), *ranks, *tree],
        ["storage", "semantics", folder, "--wait", "500ms"],
    ]


class Stranger:
    """Another program that works in the folder that the run has made."""

    def __init__(self, folder, before, chance):
        self.folder, self.before, self.chance, self.made = folder, before, chance, {}
        self.did = "nothing"

    def own(self, path):
        with open(path, "w") as out:
            out.write("of a stranger\n")
        self.made[path] = os.lstat(path).st_ino

    def visit(self):
        """Waits for a new folder and does one thing there."""
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            new = [name for name in os.listdir(self.folder) if name not in self.before]
            if new:
                time.sleep(self.chance.uniform(0, 0.1))
                try:
                    self.act(os.path.join(self.folder, new[0]))
                except OSError:
                    pass
                return
            time.sleep(0.001)

    def act(self, path):
        inside = [os.path.join(place, name) for place, _, names in os.walk(path) for name in names]
        self.did = what = self.chance.choice(["add", "replace", "delete", "move", "link"])
        if what == "add" or not inside:
            self.own(f"{path}/note.txt")
        elif what == "replace":
            file = self.chance.choice(inside)
            self.own(file + ".new")
            del self.made[file + ".new"]
            os.rename(file + ".new", file)
            self.made[file] = os.lstat(file).st_ino
        elif what == "delete":
            os.unlink(self.chance.choice(inside))
        elif what == "move":
            os.rename(path, path + ".moved")
            os.mkdir(path)
            self.own(f"{path}/mine.txt")
        else:
            # Whoever follows this removes or writes the files of others.
            os.rename(path, path + ".moved")
            os.symlink(f"{self.folder}/data", path)
            self.made[path] = os.lstat(path).st_ino

    def inodes(self):
        return set(self.made.values())


def limited(kind):
    if kind == "descriptors":
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def attempt(number, chance, mount):
    folder = f"{mount}/project"
    before = inventory(mount)
    command = commands(chance, folder)[(0, 1, 0, 1, 0, 1, 2)[number % 7]]
    trouble = chance.choice(["signal", "signal", "error", "error", "kill at a call", "full", "read-only", "stranger",
                             "stranger", "stranger and signal", "descriptors", "file size", "rank"])
    line, prepare, may_stay, filler = [PROGRAM, *command], None, False, None
    if trouble.startswith("stranger") and "metadata" in command:
        # Within the phase that measures removal nobody looks whose an item is (the guide says so): removed unmeasured.
        line += ["--phases", "create,stat,read,rename"]
    if trouble in ("error", "kill at a call"):
        call = chance.choice(CALLS)
        what = f"error={chance.choice(ERRORS)}" if trouble == "error" else "signal=SIGKILL"
        when = f"{chance.randint(1, 400)}{chance.choice(['', '+'])}"
        trouble = f"{call}:{what}:when={when}"
        may_stay = trouble.startswith(tuple(OF_REMOVAL)) or "SIGKILL" in what
        line = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={trouble}", *line]
    elif trouble in ("descriptors", "file size"):
        prepare = limited(trouble)
    elif trouble == "full":
        filler = f"{mount}/filler"
        size = os.statvfs(mount)
        with open(filler, "wb") as out:
            out.truncate(0)
            os.posix_fallocate(out.fileno(), 0, max(1, size.f_bavail * size.f_frsize - chance.randint(0, 8 << 20)))
        before = inventory(mount)
    name = f"{' '.join(command)} with {trouble}"
    stranger = Stranger(folder, set(os.listdir(folder)), chance)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, preexec_fn=prepare)
        moment = chance.uniform(0, 0.8)
        if trouble == "signal":
            time.sleep(moment)
            process.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
        elif trouble == "rank":
            time.sleep(moment)
            children = open(f"/proc/{process.pid}/task/{process.pid}/children").read().split() if process.poll() is None else []
            if children:
                os.kill(int(chance.choice(children)), signal.SIGKILL)
        elif trouble == "read-only":
            time.sleep(moment)
            may_stay = subprocess.run(["mount", "-o", "remount,ro", mount], capture_output=True).returncode == 0
        elif trouble.startswith("stranger"):
            stranger.visit()
            name += f" ({stranger.did})"
            if trouble != "stranger":
                process.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            fail("storage", f"{name}: no end")
            process.kill()
            code = process.wait()
        subprocess.run(["mount", "-o", "remount,rw", mount], capture_output=True)
        output.seek(0)
        text = output.read()
    if b"panicked" in text or (code >= 0 and code not in DOCUMENTED | {128 + signal.SIGTERM, 128 + signal.SIGHUP}):
        fail("storage", f"{name}: exit code {code}: {text[-300:]!r}")
    judge(f"{name}, exit code {code}", mount, before, stranger, may_stay)
    clear(mount, before)
    if filler:
        os.unlink(filler)


def judge(name, mount, before, stranger, may_stay):
    """Compares with what was there; the program's guardian has some seconds to remove what is left."""
    foreign = stranger.inodes()
    for _ in range(100):
        after = inventory(mount)
        rest = [path for path, entry in after.items() if path not in before and entry[0] not in foreign]
        if may_stay or not rest:
            break
        time.sleep(0.1)
    changed = [path for path, entry in before.items() if after.get(path) != entry]
    if changed:
        fail("storage", f"{name}: changed what belongs to others: {changed[:5]}")
    lost = foreign - {entry[0] for entry in after.values()}
    if lost:
        fail("storage", f"{name}: removed what a stranger made")
    # A folder that has another's file, or that another moved, stays with it.
    visited = bool(foreign) or any(path.endswith(".moved") or ".moved/" in path for path in after)
    rest = [path for path in rest if not (visited and after[path][0] not in foreign)]
    if rest and not may_stay:
        fail("storage", f"{name}: left behind {rest[:5]}")


def clear(mount, before):
    """Removes what an attempt left, for the next one."""
    for path, entry in sorted(inventory(mount).items(), reverse=True):
        if path not in before:
            full = f"{mount}/{path}"
            if stat.S_ISDIR(entry[1]):
                shutil.rmtree(full, ignore_errors=True)
            elif os.path.lexists(full):
                os.unlink(full)


def kept(number, chance, mount):
    """Runs that read or write over what an earlier one kept, interrupted: the same files stay."""
    folder = f"{mount}/project"
    before = inventory(mount)
    shape = ["-t", "64KiB", "-b", "4MiB", "--tasks", "2", "--name", "kept", *chance.choice([[], ["-F"]])]
    made = subprocess.run([PROGRAM, "storage", "stream", folder, "-w", "--keep", *shape], capture_output=True)
    if made.returncode:
        fail("storage", f"--keep: {made.stderr[-200:]!r}")
        return
    standing = inventory(mount)
    writes = chance.choice([["-r"], ["-E", "-w"]])
    process = subprocess.Popen([PROGRAM, "storage", "stream", folder, *writes, *shape, "-i", "20"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(chance.uniform(0, 0.4))
    process.send_signal(chance.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
    process.wait(60)
    time.sleep(0.3)
    after = inventory(mount)
    keep = (lambda entry: entry) if writes == ["-r"] else (lambda entry: entry[:2])
    bad = [path for path, entry in standing.items() if path not in after or keep(after[path]) != keep(entry)]
    bad = [path for path in bad if "clearstream-kept.json" not in path]
    if bad:
        fail("storage", f"{writes} of kept files, interrupted: {bad[:5]} are not as they were")
    clear(mount, before)


def undisturbed(chance, mount):
    """Without trouble the commands succeed, so that what fails later fails by the trouble."""
    before = inventory(mount)
    for command in commands(chance, f"{mount}/project"):
        code = subprocess.run([PROGRAM, *command], stdin=subprocess.DEVNULL, capture_output=True)
        if code.returncode or inventory(mount) != before:
            fail("storage", f"{' '.join(command)}: exit code {code.returncode}: {code.stderr[-200:]!r}")


def storage(count, chance):
    with tempfile.TemporaryDirectory() as mount:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "attack", mount], check=True)
        try:
            os.mkdir(f"{mount}/project")
            of_others(f"{mount}/project")
            of_others(mount)
            undisturbed(chance, mount)
            for number in range(count):
                kept(number, chance, mount) if number % 10 == 9 else attempt(number, chance, mount)
        finally:
            subprocess.run(["umount", mount], check=True)
    return f"{count} faults, kills and interrupts of storage runs"
