//! Limits of connections of foreign programs, and connections without a fault.

use super::super::causes::{Ground, LONG, PAIR};

/// Programs that are started on `alpha`, which sends, and on `beta`. `FOLDER` has `nginx.conf`, `rsyncd.conf`,
/// `reader.py`, `requests.py` and `large`.
pub(super) struct PassiveCase {
    pub(super) name: &'static str,
    pub(super) ground: Ground,
    /// Settings of the hosts: `HOST: command`.
    pub(super) make: &'static [&'static str],
    /// Programs, each after the one before has begun: `HOST: command`.
    pub(super) programs: &'static [&'static str],
    /// Signal for the last program, or a command, before it is observed.
    pub(super) then: Then,
    pub(super) filter: &'static str,
    /// Whether the receiver's host is observed, too.
    pub(super) both: bool,
    /// Kinds of cause that are right; none for a healthy connection.
    pub(super) right: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// SIGSTOP to the last program.
    Stop,
    /// A command on a host.
    Make(&'static str),
}

const NGINX: &str = "alpha: nginx -p FOLDER -c FOLDER/nginx.conf";
const RSYNCD: &str = "alpha: rsync --daemon --no-detach --config=FOLDER/rsyncd.conf --port 8730";
const RSYNCD_SLOW: &str =
    "alpha: rsync --daemon --no-detach --config=FOLDER/rsyncd.conf --port 8730 --bwlimit=3000";
const RSYNC: &str = "beta: rsync --sparse --whole-file rsync://10.79.0.1:8730/files/large FOLDER/copy";
const CURL: &str = "beta: curl -s -o /dev/null http://10.79.0.1:8080/large";
const IPERF3_SERVER: &str = "beta: iperf3 -s -1 -p 5201";
const IPERF3: &str = "alpha: iperf3 -c 10.79.0.2 -p 5201 -t 60";
const WEB: &str = "address=10.79.0.0/24,port=8080";
const COPY: &str = "address=10.79.0.0/24,port=8730";
const TEST: &str = "address=10.79.0.0/24,port=5201";
const REQUESTS: &str = "address=10.79.0.0/24,port=7070";

const LINE: Ground = Ground::Link(LONG);
const VETH: Ground = Ground::Link(PAIR);
/// A line that default buffers fill.
const SLOW: Ground =
    Ground::Link("delay = \"8.5ms\"\nrate = \"300Mb/s\"\nqueue = \"34ms\"\nbackend = \"delay-line\"");
const TABLE: &str = "beta: nft add table inet bench";
const CHAIN: &str = "beta: nft add chain inet bench in '{ type filter hook input priority 0; }'";

const fn case(
    name: &'static str,
    ground: Ground,
    programs: &'static [&'static str],
    filter: &'static str,
    right: &'static [&'static str],
) -> PassiveCase {
    PassiveCase { name, ground, make: &[], programs, then: Then::Nothing, filter, both: true, right }
}

/// Every cause.
pub(super) const CAUSES: [PassiveCase; 15] = [
    case(
        "reader-sleeps",
        LINE,
        &[NGINX, "beta: python3 FOLDER/reader.py 20 0"],
        WEB,
        &["receiver-application"],
    ),
    case(
        "curl-limited",
        LINE,
        &[NGINX, "beta: curl -s -o /dev/null --limit-rate 3M http://10.79.0.1:8080/large"],
        WEB,
        &["receiver-application"],
    ),
    PassiveCase {
        then: Then::Stop,
        ..case("curl-stopped", LINE, &[NGINX, CURL], WEB, &["receiver-application"])
    },
    PassiveCase {
        then: Then::Stop,
        both: false,
        ..case("stopped-elsewhere", LINE, &[NGINX, CURL], WEB, &["zero-window"])
    },
    case("rcvbuf", LINE, &[NGINX, "beta: python3 FOLDER/reader.py 0 65536"], WEB, &["receiver-window"]),
    PassiveCase {
        make: &["beta: sysctl -qw 'net.ipv4.tcp_rmem=4096 131072 524288'"],
        ..case("rmem", LINE, &[NGINX, CURL], WEB, &["receiver-window"])
    },
    PassiveCase {
        make: &["alpha: sysctl -qw 'net.ipv4.tcp_wmem=4096 16384 524288'"],
        ..case("wmem", LINE, &[IPERF3_SERVER, IPERF3], TEST, &["send-buffer"])
    },
    case(
        "paced",
        LINE,
        &[IPERF3_SERVER, "alpha: iperf3 -c 10.79.0.2 -p 5201 -t 60 --fq-rate 50M"],
        TEST,
        &["pacing"],
    ),
    case(
        "writer-limited",
        LINE,
        &[IPERF3_SERVER, "alpha: iperf3 -c 10.79.0.2 -p 5201 -t 60 -b 20M"],
        TEST,
        &["sender-application"],
    ),
    case(
        "nginx-limited",
        LINE,
        &[NGINX, "beta: curl -s -o /dev/null http://10.79.0.1:8080/limited/large"],
        WEB,
        &["sender-application"],
    ),
    case("rsync-limited", LINE, &[RSYNCD_SLOW, RSYNC], COPY, &["sender-application"]),
    PassiveCase {
        make: &[
            TABLE,
            CHAIN,
            "beta: nft add rule inet bench in meta l4proto tcp numgen random mod 1000 0 drop",
        ],
        ..case("loss-iperf3", LINE, &[IPERF3_SERVER, IPERF3], TEST, &["loss"])
    },
    PassiveCase {
        make: &[
            TABLE,
            CHAIN,
            "beta: nft add rule inet bench in meta l4proto tcp numgen random mod 300 0 drop",
        ],
        ..case("loss-rsync", LINE, &[RSYNCD, RSYNC], COPY, &["loss"])
    },
    case("full-path", SLOW, &[NGINX, CURL], WEB, &["path-capacity"]),
    PassiveCase {
        make: &[TABLE, CHAIN],
        then: Then::Make("beta: nft add rule inet bench in meta l4proto tcp drop"),
        ..case("cut", LINE, &[IPERF3_SERVER, IPERF3], TEST, &["no-acknowledgement"])
    },
];

/// Connections without a fault.
pub(super) const HEALTHY: [PassiveCase; 7] = [
    case("iperf3 over a veth pair", VETH, &[IPERF3_SERVER, IPERF3], TEST, &[]),
    case("curl and nginx over a veth pair", VETH, &[NGINX, CURL], WEB, &[]),
    case("rsync over a veth pair", VETH, &[RSYNCD, RSYNC], COPY, &[]),
    case("iperf3 over a line of 300 Mb/s", SLOW, &[IPERF3_SERVER, IPERF3], TEST, &[]),
    case("curl and nginx over 2 Gb/s and 17 ms", LINE, &[NGINX, CURL], WEB, &[]),
    case(
        "requests every 200 ms",
        LINE,
        &["beta: python3 FOLDER/requests.py serve", "alpha: python3 FOLDER/requests.py 0.2"],
        REQUESTS,
        &[],
    ),
    case(
        "idle",
        LINE,
        &["beta: python3 FOLDER/requests.py serve", "alpha: python3 FOLDER/requests.py 1000"],
        REQUESTS,
        &[],
    ),
];

/// Files of the programs, below the folder of a trial.
pub(super) const FILES: [(&str, &str); 4] = [
    (
        "nginx.conf",
        "daemon off;\nmaster_process off;\nerror_log /dev/null;\npid nginx.pid;\nevents { worker_connections 64; }\n\
         http {\n  access_log off;\n  client_body_temp_path b;\n  proxy_temp_path p;\n  fastcgi_temp_path f;\n  \
         uwsgi_temp_path u;\n  scgi_temp_path s;\n  sendfile on;\n  server {\n    listen 8080;\n    root FOLDER;\n    \
         location /limited/ { alias FOLDER/; limit_rate 3m; }\n  }\n}\n",
    ),
    ("rsyncd.conf", "use chroot = no\nuid = 0\ngid = 0\n[files]\n  path = FOLDER\n  read only = yes\n"),
    (
        "reader.py",
        "import socket, sys, time\npause, size = map(int, sys.argv[1:3])\none = socket.socket()\nif size: \
         one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)\none.connect(('10.79.0.1', 8080))\n\
         one.sendall(b'GET /large HTTP/1.0\\r\\n\\r\\n')\nwhile one.recv(65536): time.sleep(pause / 1000)\n",
    ),
    (
        "requests.py",
        "import socket, sys, time\nif sys.argv[1] == 'serve':\n    listener = \
         socket.create_server(('0.0.0.0', 7070))\n    one, _ = listener.accept()\n    while data := one.recv(4096): \
         one.sendall(data)\nelse:\n    one = socket.create_connection(('10.79.0.2', 7070))\n    while True:\n        \
         one.sendall(b'x' * 200)\n        one.recv(4096)\n        time.sleep(float(sys.argv[1]))\n",
    ),
];
