"""Connections without a pairing to the daemon."""
import os, re, socket, ssl, subprocess, tempfile, time

from .common import PROGRAM, fail, run


def resources(pid):
    status = open(f"/proc/{pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]), len(os.listdir(f"/proc/{pid}/fd")), int(re.search(r"Threads:\s+(\d+)", status)[1])


def stranger(kind, port, chance, certificate):
    link = socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(f"127.0.0.{chance.randint(2, 250)}", 0))
    try:
        if kind == "rubbish":
            link.sendall(chance.randbytes(chance.randint(1, 4096)))
        elif kind == "http":
            link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        elif kind == "silent":
            return link
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if kind == "tls12":
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            if kind == "certificate":
                context.load_cert_chain(*certificate)
            tls = context.wrap_socket(link)
            tls.sendall(b"{}")
            return (b"ANSWERED", tls.recv(100))
        link.settimeout(7)
        data = link.recv(4096)
        # A TLS alert (RFC 8446, section 6) is all that a stranger gets.
        return (b"ANSWERED", data) if data and data[0] != 21 else None
    except (OSError, ssl.SSLError):
        return None
    finally:
        if kind not in ("silent",):
            link.close()


def strangers(count, chance):
    with tempfile.TemporaryDirectory() as folder:
        identity, port = f"{folder}/identity", 5740
        token = subprocess.run([PROGRAM, "pair", "create", "friend", "--identity", identity], capture_output=True, check=True).stdout
        subprocess.run([PROGRAM, "pair", "accept", f"{folder}/pairing"], input=token, capture_output=True, check=True)
        certificate = (f"{folder}/cert.pem", f"{folder}/key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=friend",
                        "-out", certificate[0], "-keyout", certificate[1], "-days", "2"], capture_output=True, check=True)
        daemon = subprocess.Popen([PROGRAM, "serve", "--identity", identity], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            friend = [PROGRAM, "flow", f"127.0.0.1:{port}", "--pairing", f"{folder}/pairing", "-t", "200ms", "--warm-up", "100ms", "--json"]
            for _ in range(50):
                if run(friend)[0] == 0:
                    break
                time.sleep(0.1)
            memory, descriptors, threads = resources(daemon.pid)
            silent = []
            for number in range(count):
                kind = ["rubbish", "http", "tls12", "certificate", "tls13", "silent"][number % 6]
                try:
                    result = stranger(kind, port, chance, certificate)
                except OSError as error:
                    fail("strangers", f"{kind}: {error}")
                    continue
                if isinstance(result, tuple) and result[1]:
                    fail("strangers", f"{kind} got {result[1][:60]!r}")
                elif kind == "silent":
                    silent.append(result)
                if number % 200 == 199:
                    code, output, _ = run(friend, limit=30)
                    if code != 0:
                        fail("strangers", f"a paired controller ended with {code} among strangers: {output[-200:]!r}")
            for link in silent:
                link.close()
            time.sleep(6)
            last = resources(daemon.pid)
            if last[0] > memory + 16 * 1024 or last[1] > descriptors + 2 or last[2] > threads + 2:
                fail("strangers", f"memory KiB, descriptors, threads: {(memory, descriptors, threads)} before, {last} after")
            code, output, _ = run(friend, limit=30)
            if code != 0:
                fail("strangers", f"a paired controller ended with {code} afterwards: {output[-200:]!r}")
        finally:
            daemon.terminate()
            daemon.wait(10)
    return f"{count} strangers"
