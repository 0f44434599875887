"""Processes that run for a long time: a daemon and the agents of a study under repeated tests, a live page that is read and
left, a watch of gateways that fail and come back. Neither their memory nor their descriptors may grow."""
import glob, os, re, signal, statistics, subprocess, tempfile, threading, time, urllib.request

from .common import PROGRAM, ROOT, fail

# Of a process over the whole of the soak, beyond twice the error of its slope.
GROWTH_KB = 1024
SAMPLE_S = 1.0
# What a page keeps (crates/dashboard/src/history.rs), which is reached during the soak.
HISTORY_KB = 24 << 10


def anonymous(pid):
    status = open(f"/proc/{pid}/status").read()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]), len(os.listdir(f"/proc/{pid}/fd"))


def of_program():
    """Processes of the program, with what they are."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            command = open(path).read().split("\0")
        except OSError:
            continue
        if command[0] == PROGRAM or os.path.basename(command[0]) == "clearstream":
            yield int(path.split("/")[2]), " ".join(command[1:4]).strip()


def slope(samples):
    """KiB per second by least squares over means of tenths, with its standard error."""
    tenth = max(1, len(samples) // 10)
    blocks = [samples[at:at + tenth] for at in range(0, tenth * 10, tenth)]
    blocks = [block for block in blocks if block]
    points = [(statistics.mean(at for at, _, _ in block), statistics.mean(kb for _, kb, _ in block)) for block in blocks]
    if len(points) < 4:
        return 0.0, 0.0
    times, values = zip(*points)
    found = statistics.linear_regression(times, values)
    spread = sum((time - statistics.mean(times)) ** 2 for time in times)
    residual = sum((value - found.intercept - found.slope * at) ** 2 for at, value in points)
    return found.slope, (residual / (len(points) - 2) / spread) ** 0.5


class Soak:
    def __init__(self, folder, seconds):
        self.folder, self.ends, self.children, self.tests = folder, time.monotonic() + seconds, [], 0
        self.samples, self.roles, self.failed = {}, {}, set()

    def is_over(self):
        return time.monotonic() > self.ends

    def start(self, *arguments):
        log = open(f"{self.folder}/log{len(self.children)}", "w")
        child = subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self.children.append(child)
        return child

    def test(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, cwd=self.folder, timeout=60)
        self.tests += 1
        if done.returncode != 0 and arguments[0] not in self.failed:
            self.failed.add(arguments[0])
            fail("soak", f"{' '.join(arguments)}: code {done.returncode}: {done.stderr[-300:]!r}")

    def daemon(self):
        pairing = ["127.0.0.1:5740", "--pairing", f"{self.folder}/pairing"]
        short = ["-t", "100ms", "--warm-up", "50ms"]
        tests = [["flow", *pairing, *short], ["flow", *pairing, *short, "--direction", "reverse"], ["probe", *pairing, "--count", "5", "--interval", "10ms"],
                 ["message", *pairing, "--size", "1KiB", "--duration", "50ms"], ["rdma", "write", "--to", *pairing, "-t", "100ms"]]
        while not self.is_over():
            for arguments in tests:
                self.test(*arguments)

    def page(self, link):
        """One page that stays, many that come and go."""
        threading.Thread(target=self.read, args=(link, None), daemon=True).start()
        while not self.is_over():
            self.read(link, 2.0)

    def read(self, link, seconds):
        until = time.monotonic() + (seconds or 1e9)
        try:
            with urllib.request.urlopen(link, timeout=10) as stream:
                while time.monotonic() < until and not self.is_over() and stream.read1(65536):
                    pass
        except OSError as error:
            if not self.is_over():
                fail("soak", f"{link}: {error}")

    def gateways(self):
        number = 0
        while not self.is_over():
            number = number % 6 + 1
            for arguments in [[f"gw{number}", "cut"], [f"gw{number}", "--clear"]]:
                self.test("lab", "fault", "gateways-6", *arguments)
                time.sleep(2)

    def sample(self):
        while not self.is_over():
            for pid, role in of_program():
                try:
                    sample = (time.monotonic(), *anonymous(pid))
                    self.samples.setdefault(pid, []).append(sample)
                    self.roles[pid] = role
                except (OSError, TypeError):
                    continue
            time.sleep(SAMPLE_S)

    def judge(self, seconds):
        lasting = {pid: found for pid, found in self.samples.items() if found[-1][0] - found[0][0] > seconds * 0.8}
        worst = 0.0
        for pid, found in lasting.items():
            # What a process takes until each of its paths was used once is not growth, nor is a history that fills.
            is_page = self.roles[pid].startswith("live")
            empty = found[0][1]
            begins = found[0][0] + seconds * (0.75 if is_page else 0.4)
            found = [sample for sample in found if sample[0] > begins]
            rate, error = slope(found)
            growth = (rate - 2 * error) * seconds
            half = len(found) // 2
            first, last = (max(files for _, _, files in part) for part in (found[:half], found[half:]))
            middle = statistics.median(kb for _, kb, _ in found)
            is_filling = is_page and middle < empty + HISTORY_KB
            if not self.roles[pid].startswith("lab"):
                print(f"    {self.roles[pid]}: {middle:.0f} KiB, {rate * seconds:+.0f} +- {2 * error * seconds:.0f} KiB over the soak, "
                      f"descriptors at most {first}, then {last}")
            if growth > GROWTH_KB and not is_filling:
                fail("soak", f"{self.roles[pid]}: {growth:.0f} KiB more")
            if not is_filling:
                worst = max(worst, growth)
            # Connections come and go.
            if last > first + 2:
                fail("soak", f"{self.roles[pid]}: {last} descriptors, {first} before")
            if middle > HISTORY_KB + 32 * 1024:
                fail("soak", f"{self.roles[pid]}: {middle:.0f} KiB")
        roles = {self.roles[pid] for pid in lasting}
        for needed in ("serve", "live", "route watch", "study run", "agent"):
            if not any(role.startswith(needed) for role in roles):
                ends = [open(f"{self.folder}/log{number}").read()[-200:] for number in range(len(self.children))
                        if os.path.exists(f"{self.folder}/log{number}")]
                fail("soak", f"{needed} did not last: {sorted(roles)}: {ends}")
        return f"{self.tests} tests beside {len(lasting)} processes, largest growth {worst:.0f} KiB"


STUDY = """schema = "clearstream.study"
version = 1
name = "soak"
title = "The same short trial again and again"
[[experiment]]
name = "again"
title = "Again"
workload = "flow"
figure = "throughput"
repetitions = {count}
[experiment.flow]
duration = "100ms"
warm-up = "50ms"
[experiment.factors]
flows = [1, 2, 3, 4]
"""


def link_of(line):
    return re.search(r"http://\S+", line)[0]


def soak(count, _):
    seconds = max(30, count)
    with tempfile.TemporaryDirectory() as folder:
        identity = f"{folder}/identity"
        token = subprocess.run([PROGRAM, "pair", "create", "friend", "--identity", identity], capture_output=True, check=True).stdout
        subprocess.run([PROGRAM, "pair", "accept", f"{folder}/pairing"], input=token, capture_output=True, check=True)
        with open(f"{folder}/soak.toml", "w") as study:
            study.write(STUDY.format(count=min(1000, seconds * 4)))
        for lab in ("two-hosts", "gateways-6"):
            subprocess.run([PROGRAM, "lab", "up", lab], check=True, capture_output=True)
        running = Soak(folder, seconds)
        try:
            running.start("serve", "--identity", identity)
            running.start("study", "run", "soak.toml", "--lab", "two-hosts")
            fabric = os.path.join(ROOT, "fabrics/gateways-6.toml")
            on_host = ["lab", "exec", "gateways-6", "compute-1", "--", PROGRAM, "route"]
            running.test(*on_host, "apply", fabric, "--host", "compute-1", "--yes")
            running.start(*on_host, "watch", fabric, "--host", "compute-1")
            live = subprocess.Popen([PROGRAM, "live", "--web", "-i", "50ms", "-n", "100", "--lines"], stdin=subprocess.DEVNULL,
                                    stdout=open(f"{folder}/live", "w"), stderr=subprocess.STDOUT)
            running.children.append(live)
            time.sleep(3)
            link = link_of(open(f"{folder}/live").read())
            parts = [running.daemon, running.gateways, running.sample, lambda: running.page(link.replace("/?", "/events?"))]
            threads = [threading.Thread(target=part) for part in parts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return running.judge(seconds)
        finally:
            for child in running.children:
                child.send_signal(signal.SIGINT)
            for child in running.children:
                try:
                    child.wait(30)
                except subprocess.TimeoutExpired:
                    fail("soak", f"{child.args[1]} did not end")
                    child.kill()
            for lab in ("two-hosts", "gateways-6"):
                subprocess.run([PROGRAM, "lab", "down", lab], capture_output=True)
