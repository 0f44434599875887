"""Common parts of the sections of `.ci/attack`: bounded runs of the program, what
every run of it has to keep, namespaces."""
import os, re, shutil, subprocess, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("CLEARSTREAM", os.path.join(ROOT, "target/release/clearstream"))
DOCUMENTED = {0, 2, 3, 4, 5, 6, 7, 8, 9, 130}
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
MEMORY_KB = 512 * 1024
failures = []


def in_namespaces(command):
    """The command with mount, network and process namespaces of its own and private
    folders: names of networks, journals and labs of the host stay as they are."""
    setup = ("mkdir -p /var/lib/clearstream /run/clearstream /run/netns && "
             "for folder in /var/lib/clearstream /run/clearstream /run/netns; do mount -t tmpfs attack $folder || exit 1; done && "
             "ip link set lo up && exec \"$@\"")
    os.environ["ATTACK_INSIDE"] = "1"
    return ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", setup, "sh", *command]


def fail(section, what):
    failures.append((section, what))
    print(f"  FAILED {section}: {what}", flush=True)


def run(arguments, stdin=None, limit=20, **more):
    """Exit code, output, peak memory in KiB; exit code None after `limit` seconds."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            arguments, stdin=stdin or subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **more)
        deadline = time.monotonic() + limit
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                return None, b"", 0
            time.sleep(0.001)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return process.returncode, output.read(), usage.ru_maxrss


def judge(section, name, code, output, peak, saved):
    problem = None
    if code is None:
        problem = "no end within the limit"
    elif code not in DOCUMENTED:
        problem = f"exit code {code}: {output[-200:]!r}"
    elif b"panicked" in output:
        problem = f"panic: {output[-300:]!r}"
    elif CONTROL.search(output):
        at = CONTROL.search(output).start()
        problem = f"raw control characters: {output[max(0, at - 40):at + 20]!r}"
    elif peak > MEMORY_KB:
        problem = f"{peak} KiB of memory"
    if problem:
        kept = os.path.join(tempfile.gettempdir(), f"attack-{len(failures)}{os.path.splitext(saved)[1]}")
        if os.path.isdir(saved):
            kept = shutil.copytree(saved, kept, dirs_exist_ok=True)
        else:
            shutil.copy(saved, kept)
        fail(section, f"{name}: {problem} ({kept})")
