"""Random kills of measurements, of changes of settings, and of labs."""
import os, signal, subprocess, tempfile, time

from .common import PROGRAM, fail


def left_behind():
    processes = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == PROGRAM and os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
                processes.append(open(f"/proc/{pid}/cmdline").read().replace("\0", " "))
        except OSError:
            pass
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split("\n")
    return processes + [name for name in names if name.startswith("cs")]


def kills(count, chance):
    with tempfile.TemporaryDirectory() as folder:
        commands = [["flow", "--lab", "two-hosts", "-t", "2s"], ["flow", "localhost", "-t", "2s"],
                    ["probe", "--lab", "two-hosts"], ["lab", "exec", "two-hosts", "alpha", "true"],
                    ["study", "run", "clearstream-40ge", "--lab", "two-hosts", "--quick", "--runs", folder],
                    ["diagnose", "--lab", "two-hosts", "--budget", "10s"], ["rdma", "write", "--local"]]
        for number in range(count):
            command = [PROGRAM, *commands[number % len(commands)]]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, 2.5))
            process.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                fail("kills", f"{command[1:4]} does not end")
                process.kill()
                process.wait()
            for _ in range(100):
                rest = left_behind()
                if not rest:
                    break
                time.sleep(0.1)
            else:
                # A killed lab may leave names until the next start, which clears up.
                subprocess.run([PROGRAM, "lab", "list"], capture_output=True)
                if left_behind():
                    fail("kills", f"{' '.join(command[1:4])}: left behind {left_behind()}")
    return f"{count} random kills"
