"""Strangers at every service that listens, started with few descriptors: in random order idle, slow and unfinished
connections, garbage and resets, from one address and from many. Who has a right is served meanwhile and afterwards, and the
service neither ends nor spins nor keeps descriptors."""
import json, os, socket, subprocess, tempfile, threading, time, urllib.request

from .common import PROGRAM, fail, run

DESCRIPTORS = 40
STRANGERS = 100
KINDS = ["idle", "slow", "unfinished", "garbage", "reset"]


class Service:
    def __init__(self, *arguments):
        command = ["sh", "-c", f"ulimit -n {DESCRIPTORS} && exec \"$@\"", "sh", PROGRAM, *arguments, "--json-stream"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.states, self.changed = {}, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["kind"] == "state":
                with self.changed:
                    self.states[event["payload"]["name"]] = event["payload"].get("detail")
                    self.changed.notify_all()

    def state(self, name):
        with self.changed:
            if not self.changed.wait_for(lambda: name in self.states, timeout=20):
                raise RuntimeError(f"no state {name}")
            return self.states[name]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ticks(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def end(self):
        self.process.kill()
        self.process.wait()


def stranger(address, kind, beginning, chance):
    source = f"127.0.0.{chance.choice([1, chance.randint(2, 250)])}"
    link = socket.create_connection(address, timeout=5, source_address=(source, 0))
    link.setblocking(False)
    sent = {"idle": b"", "reset": b"", "slow": beginning[:1], "unfinished": beginning[:chance.randint(1, len(beginning))],
            "garbage": chance.randbytes(chance.randint(1, 4096))}[kind]
    try:
        link.sendall(sent)
    except OSError:
        pass
    return link


def attack(name, service, address, beginning, serve, count, chance):
    """`count` rounds of strangers at one service."""
    def served(when):
        if not serve():
            fail("admission", f"{name}: not served {when}")
    served("before")
    time.sleep(0.5)
    before = service.descriptors()
    for _ in range(count):
        kind = chance.choice(KINDS)
        try:
            links = [stranger(address, kind, beginning, chance) for _ in range(STRANGERS)]
        except OSError as error:
            fail("admission", f"{name}: {kind}: {error}")
            continue
        served(f"among {kind}")
        ticks = service.ticks()
        time.sleep(0.5)
        if (used := service.ticks() - ticks) > 10:
            fail("admission", f"{name}: {kind}: {used} of 50 ticks while nothing happens")
        for link in links:
            link.close()
        served(f"after {kind}")
        if service.process.poll() is not None:
            return fail("admission", f"{name}: {kind}: ended with {service.process.returncode}")
    deadline = time.monotonic() + 15
    while service.descriptors() > before + 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    if service.descriptors() > before + 2:
        fail("admission", f"{name}: {before} descriptors before, {service.descriptors()} after")


def fetched(link):
    try:
        with urllib.request.urlopen(link, timeout=10) as reply:
            return reply.status == 200
    except OSError:
        return False


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def admission(count, chance):
    rounds = max(1, count // 5)
    with tempfile.TemporaryDirectory() as folder:
        pairing = f"{folder}/pairing"
        services = []
        try:
            serve = Service("serve", "--listen", "127.0.0.1:0", "--identity", f"{folder}/identity")
            services.append(serve)
            at = serve.state("listening")["address"]
            token = subprocess.run([PROGRAM, "pair", "create", "friend", "--identity", f"{folder}/identity", "--address", at],
                                   capture_output=True, check=True).stdout
            subprocess.run([PROGRAM, "pair", "accept", pairing], input=token, capture_output=True, check=True)
            probe = [PROGRAM, "probe", at, "--pairing", pairing, "--count", "1", "--json"]
            attack("serve", serve, address_of(at), b"\x16\x03\x01\x02\x04\x01\x00\x02\x00\x03\x03" + b"7" * 200,
                   lambda: run(probe, limit=30)[0] == 0, rounds, chance)
            rdma = Service("rdma", "serve", "--port", "0")
            services.append(rdma)
            at = rdma.state("listening")["address"]
            write = [PROGRAM, "rdma", "write", at, "--iterations", "10", "--warm-up", "0s", "--json"]
            attack("rdma serve", rdma, address_of(at), b"MPA ID Req Frame\x40\x01\x00\x10clearstream rdma"[:-1],
                   lambda: run(write, limit=30)[0] == 0, rounds, chance)
            iperf3 = Service("serve", "--compat", "iperf3", "--listen", "127.0.0.1:0")
            services.append(iperf3)
            at = iperf3.state("listening")["address"]
            flow = [PROGRAM, "flow", "--compat", "iperf3", at, "-t", "100ms", "-O", "0s", "--json"]
            attack("serve --compat iperf3", iperf3, address_of(at), b"x" * 37 + b"\0\0\1\0{",
                   lambda: run(flow, limit=30)[0] == 0, rounds, chance)
            live = Service("live", "--web=127.0.0.1:0", "--metrics", "127.0.0.1:0")
            services.append(live)
            for name in ("page", "metrics"):
                detail = live.state(name)
                link = detail["link"] if isinstance(detail, dict) else detail
                attack(name, live, address_of(link.split("/")[2]), b"GET / HTTP/1.1\r\nHost: x\r\n",
                       lambda: fetched(link), rounds, chance)
        finally:
            for service in services:
                service.end()
    return f"{5 * rounds} crowds of {STRANGERS}"
