"""An agent that lives and does not reply to one call: each call of each verb once, and one event of each kind. The command
ends by itself, with the code of a lost peer and the name of what did not come."""
import concurrent.futures, json, os, shutil, signal, subprocess, tempfile, time

from .common import PROGRAM, ROOT, fail

VERBS = {
    "diagnose": ["HOST", "--budget", "6s"],
    "probe": ["HOST", "--count", "3", "--timeout", "200ms"],
    "live": ["HOST", "-t", "2s"],
    "flow": ["HOST", "-t", "400ms"],
    "message": ["HOST", "--size", "1KiB", "--duration", "100ms"],
    "overlap": ["HOST", "--duration", "100ms"],
    "rdma write": ["--to", "HOST", "-t", "400ms"],
    "improve": ["HOST", "--yes", "--pairs", "3", "--budget", "30s", "--diagnosis-budget", "6s"],
}
# Whether a result is whole: a reply that is dropped after that is of no use to anybody.
WHOLE = {"live": lambda result: result["hosts"][0]["duration_ns"] >= 1.9e9}
LIMIT_S = 120
CALLS_MOST = 12


def start(folder, verb, environment):
    shutil.copy(os.path.join(ROOT, "crates/clearstream/tests/it/deadlines/ssh"), folder)
    address = [] if verb == "live" else ["--address", "127.0.0.1"]
    arguments = [argument.replace("HOST", "127.0.0.1") for argument in VERBS[verb]]
    path = f"{folder}:{os.environ['PATH']}"
    calls = os.path.join(folder, "calls")
    return subprocess.Popen(
        [PROGRAM, *verb.split(), *arguments, *address, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PATH": path, "CS": PROGRAM, "CALLS": calls, **environment})


def is_whole(verb, process, output):
    return verb in WHOLE and process.returncode == 0 and WHOLE[verb](json.loads(output))


def dropped(verb, number):
    """Whether there was such a call."""
    with tempfile.TemporaryDirectory() as folder:
        process = start(folder, verb, {"DROP_REPLY": str(number)})
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            fail("silence", f"{verb}: reply {number} dropped: no end within {LIMIT_S} s")
            return True
        with open(os.path.join(folder, "calls")) as calls:
            names = dict(line.split(maxsplit=1) for line in calls)
        name = names.get(str(number), "").strip()
        # The end of a session needs no reply.
        if not name or name == "shutdown":
            return False
        if is_whole(verb, process, output):
            return True
        named = f"`{name}`".encode() in errors
        if process.returncode != 6 or not named:
            fail("silence", f"{verb}: reply {number} ({name}) dropped: code {process.returncode}: {errors[-300:]!r}")
        return True


def interrupted(verb, number):
    with tempfile.TemporaryDirectory() as folder:
        process = start(folder, verb, {"DROP_REPLY": str(number)})
        deadline = time.monotonic() + LIMIT_S
        calls = os.path.join(folder, "calls")
        while process.poll() is None and time.monotonic() < deadline:
            if os.path.exists(calls) and any(line.split()[0] == str(number) for line in open(calls)):
                break
            time.sleep(0.02)
        if process.poll() is not None:
            process.communicate()
            return
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            output, errors = b"", b""
        took = time.monotonic() - began
        if is_whole(verb, process, output):
            return
        if process.returncode != 130 or took > 2.5:
            fail("silence", f"{verb}: Ctrl-C in call {number}: code {process.returncode} after {took:.1f} s: {errors[-300:]!r}")


def of_verb(verb):
    count = 0
    for number in range(1, CALLS_MOST):
        count += 1
        if not dropped(verb, number):
            return count
        interrupted(verb, number)
    return count


def silence(count, _):
    verbs = list(VERBS)[:count]
    # They wait for most of their time.
    with concurrent.futures.ThreadPoolExecutor(len(verbs)) as pool:
        counts = list(pool.map(of_verb, verbs))
    return f"{sum(counts)} calls of {len(verbs)} verbs without a reply, and as many interrupted"
