"""Random kills of a command that changes settings and of its guardian, in any phase, with the folder of the journals
in each of its bad states: what is not kept is restored by the deadline or by the next start, and nothing stays."""
import concurrent.futures, glob, json, os, random, signal, subprocess, sys, tempfile, time

STATES = ["as-before", "full", "read-only", "gone", "moved", "other-owner"]
WITHIN, PATIENCE = 1.0, 5.0


def guardians(count, chance):
    from .common import PROGRAM, fail

    seeds = [chance.randrange(1 << 30) for _ in range(count)]
    inside = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, __file__]

    def attempt(seed):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([*inside, PROGRAM, str(seed), folder], capture_output=True, text=True)

    by_next_start = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for seed, ended in zip(seeds, pool.map(attempt, seeds)):
            if ended.returncode != 0:
                fail("guardians", f"seed {seed}: {ended.stdout}{ended.stderr}")
            by_next_start += "next start" in ended.stdout
    return f"{count} kills while settings change, {by_next_start} restored by the next start"


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
        subprocess.run(["chown", "-R", "nobody", folder])
    return ["true"]


def attempt(program, seed, folder):
    chance = random.Random(seed)
    subprocess.run(f"""mount -t tmpfs -o size=256k state {folder}; mount -t sysfs sys /sys; ip link set lo up
        ip link add d0 type veth peer name d1; ip address add 10.7.0.1/24 dev d0; ip link set d1 up; ip link set d0 up""",
                   shell=True, check=True)
    plans = f"{folder}/plans"
    os.environ.update(CLEARSTREAM_PLANS=plans)
    os.environ.pop("SSH_CONNECTION", None)
    plan(f"{folder}/plan.json")
    before, state = shown(), chance.choice(STATES)
    spoils_early, kills = chance.random() < 0.5, chance.choice([["plan apply"], ["plan guard"], ["plan apply", "plan guard"]])
    child = subprocess.Popen([program, "plan", "apply", f"{folder}/plan.json", "--yes", "--confirm-within", f"{WITHIN}s"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(chance.uniform(0, 0.08) if chance.random() < 0.6 else chance.uniform(0, WITHIN))
    repair = spoil(state, folder, plans) if spoils_early else ["true"]
    for words in kills:
        for pid in processes(words):
            os.kill(pid, chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
    repair = repair if spoils_early else spoil(state, folder, plans)
    child.wait(60)
    until = time.monotonic() + WITHIN + PATIENCE
    while shown() != before and time.monotonic() < until:
        time.sleep(0.05)
    how = "deadline"
    if shown() != before:
        how = "next start"
        # What is gone is gone: a guardian that was killed as well was the last that knew.
        if state == "gone" and "plan guard" in kills:
            print("nobody left that knows")
            return 0
        subprocess.run(repair)
        said = subprocess.run([program, "plan", "history"], capture_output=True, text=True)
        if shown() != before:
            print(f"{state}, {kills}: {shown()} instead of {before}; {said.stdout} {said.stderr}")
            return 1
    else:
        subprocess.run(repair)
    for _ in range(100):
        output(program, "plan", "history")
        files = [name for name in glob.glob(f"{folder}/**/*", recursive=True) if name.endswith((".trial", ".test"))]
        if not files and not processes("plan guard"):
            break
        time.sleep(0.1)
    else:
        print(f"{state}, {kills}, {how}: left {files} {processes('plan guard')}")
        return 1
    print(how)
    return 0


if __name__ == "__main__":
    sys.exit(attempt(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
