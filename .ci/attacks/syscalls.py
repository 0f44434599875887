"""Failing system calls and kills while settings change: SIGKILL at each system call
of `plan apply` and `plan revert`, ENOSPC and EIO at each that takes a file or a
descriptor. Afterwards `plan recover` leaves the settings before or after."""
import json, os, re, shutil, subprocess, sys, tempfile

from .common import PROGRAM, ROOT, fail, in_namespaces, run

KEYS = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_slow_start_after_idle"]
FOLDER = "/var/lib/clearstream/plans"
INJECTIONS = [("all", "signal=SIGKILL"), ("%file,%desc", "error=ENOSPC"), ("%file,%desc", "error=EIO")]


def settings():
    return [open("/proc/sys/" + key.replace(".", "/")).read() for key in KEYS]


class State:
    """Settings and journals of a moment. Every attempt starts from the same state: a
    journal more would be read too, and the verb would make more calls each time."""

    def __init__(self):
        self.settings, self.journals = settings(), {}
        for name in os.listdir(FOLDER):
            with open(f"{FOLDER}/{name}", "rb") as file:
                self.journals[name] = file.read()

    def restore(self):
        shutil.rmtree(FOLDER)
        os.mkdir(FOLDER, 0o700)
        for name, data in self.journals.items():
            with open(f"{FOLDER}/{name}", "wb") as file:
                file.write(data)
        for key, text in zip(KEYS, self.settings):
            with open("/proc/sys/" + key.replace(".", "/"), "w") as file:
                file.write(text)


def attempt(verb, call, number, what, before, after, folder):
    """One kill or failing call; whether the verb made that call so often."""
    log, name = f"{folder}/strace", f"{verb[2]} with {what} at {call} {number}"
    # strace counts each system call by itself: a set of several would be hit at the
    # first one that reaches the number, and most calls never.
    traced = ["strace", "-o", log, "-e", f"trace={call}", "-e", f"inject={call}:{what}:when={number}", *verb]
    code, output, _ = run(traced)
    injected = (code or 0) < 0 or "INJECTED" in open(log, errors="replace").read()
    # The standard library asserts that closedir succeeds (closedir(3): only an invalid
    # descriptor makes it fail), and that memory for signal stacks is there before `main`.
    of_library = (b"unexpected error during closedir", b"fatal runtime error: initialization")
    panicked = b"panicked" in output and not any(text in output for text in of_library)
    if code is None or panicked:
        fail("syscalls", f"{name}: {output[-200:]!r}")
    recovered = subprocess.run([PROGRAM, "plan", "recover"], capture_output=True)
    if settings() not in (before, after):
        fail("syscalls", f"{name}: between, {settings()}")
    if recovered.returncode not in (0, 7):
        fail("syscalls", f"recover after {name}: {recovered.stderr[-200:]!r}")
    if settings() != before:
        subprocess.run([PROGRAM, "plan", "revert", "--force"], capture_output=True)
    if settings() != before:
        fail("syscalls", f"{name}: not to be reverted")
    return injected


def calls_of(verb, which, folder):
    """Every call that the verb makes undisturbed: its name, and the how many-th of that name."""
    log, counts, calls = f"{folder}/count", {}, []
    subprocess.run(["strace", "-o", log, "-e", f"trace={which}", *verb], stdout=subprocess.DEVNULL, check=True)
    for line in open(log, errors="replace"):
        found = re.match(r"(\w+)\(", line)
        if found:
            counts[found[1]] = counts.get(found[1], 0) + 1
            calls.append((found[1], counts[found[1]]))
    return calls


def part(scale, first, parts):
    """The share of one worker: every `parts`-th case from `first` on."""
    attempts, missed, stride = {}, 0, max(1, round(1 / scale))
    with tempfile.TemporaryDirectory() as folder:
        plan = f"{folder}/plan.json"
        subprocess.run([PROGRAM, "tune", "plan", "--rate", "40Gb/s", "--rtt", "17ms", "--out", plan], stdout=subprocess.DEVNULL, check=True)
        apply, revert = [PROGRAM, "plan", "apply", "--yes", plan], [PROGRAM, "plan", "revert"]
        # An older journal is there, as on a host that was tuned before.
        for verb in (apply, revert):
            subprocess.run(verb, stdout=subprocess.DEVNULL, check=True)
        unchanged = State()
        subprocess.run(apply, stdout=subprocess.DEVNULL, check=True)
        changed = State()
        before, after = unchanged.settings, changed.settings
        if after == before:
            fail("syscalls", "apply changes nothing undisturbed")
        for verb, start in ((apply, unchanged), (revert, changed)):
            for which, what in INJECTIONS:
                start.restore()
                # The first call starts the program: there is nothing yet to be killed.
                cases = calls_of(verb, which, folder)[1:][first * stride::parts * stride]
                for call, number in cases:
                    start.restore()
                    missed += not attempt(verb, call, number, what, before, after, folder)
                attempts[f"{verb[2]} {what}"] = len(cases)
    # The list of processes that the program reads varies by some calls.
    if missed * 100 > sum(attempts.values()) + 100:
        fail("syscalls", f"{missed} of {sum(attempts.values())} calls were not made again")
    return attempts


def syscalls(scale, _chance):
    """A worker for each core, each in namespaces of its own."""
    parts = os.cpu_count() or 1
    command = in_namespaces([sys.executable, f"{ROOT}/.ci/attack", "syscalls", "--scale", str(scale)])
    workers = [subprocess.Popen(["nice", "-n", "10", *command, "--part", f"{first}/{parts}"], stdout=subprocess.PIPE)
               for first in range(parts)]
    attempts = {}
    for worker in workers:
        lines = worker.communicate()[0].splitlines()
        if worker.returncode != 0 or not lines:
            fail("syscalls", f"a worker ended with {worker.returncode}")
            continue
        result = json.loads(lines[-1])
        for what in result["failures"]:
            fail("syscalls", what)
        for name, done in result["attempts"].items():
            attempts[name] = attempts.get(name, 0) + done
    for name, done in attempts.items():
        print(f"  {name}: {done}")
    kills = sum(done for name, done in attempts.items() if "SIGKILL" in name)
    return f"{kills} kills, {sum(attempts.values()) - kills} failing system calls of apply and revert"
