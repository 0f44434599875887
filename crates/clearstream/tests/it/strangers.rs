//! Whoever connects to a service and shows no right: idle, slow, with garbage, too many at a time, from one address
//! or from many, and at a small RLIMIT_NOFILE. Who has a right is served meanwhile and afterwards, the service needs
//! no processor for those who wait, and gives back its descriptors.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::common::{eventually, program, run, run_with_input};

const LIMIT: Duration = Duration::from_secs(30);
/// Descriptors of the services (`ulimit -n`), and strangers at a time: more than twice as many.
const DESCRIPTORS: usize = 64;
const STRANGERS: usize = 150;

/// A running service.
struct Service {
    child: Child,
    states: Receiver<Value>,
}

impl Service {
    fn start(arguments: &[&str]) -> Self {
        let limited = format!("ulimit -n {DESCRIPTORS} && exec \"$@\"");
        let mut child = Command::new("sh")
            .args(["-c", &limited, "sh"])
            .arg(program())
            .args(arguments)
            .arg("--json-stream")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, states) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Reads all the time: a full pipe would stop the service.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                if event["kind"] == "state" {
                    let _ = sender.send(event["payload"].clone());
                }
            }
        });
        Self { child, states }
    }

    /// The detail of a state that it reports.
    fn state(&self, name: &str) -> Value {
        loop {
            let state = self.states.recv_timeout(LIMIT).unwrap();
            if state["name"] == name {
                return state["detail"].clone();
            }
        }
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Processor time so far, in ticks of 10 ms (proc_pid_stat(5): utime and stime).
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What strangers do.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Nothing.
    Idle,
    /// The beginning of what is right, a byte now and then.
    Slow,
    /// Everything that is right but the end.
    Unfinished,
    Garbage,
    /// Connects and resets.
    Reset,
}

const KINDS: [Kind; 5] = [Kind::Idle, Kind::Slow, Kind::Unfinished, Kind::Garbage, Kind::Reset];

/// A connection from one of the addresses of loopback.
fn connect(to: SocketAddr, last: u8) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)).into()).unwrap();
    socket.connect_timeout(&to.into(), LIMIT).unwrap();
    socket.into()
}

fn stranger(to: SocketAddr, kind: Kind, number: usize, right: &[u8]) -> TcpStream {
    // Half of them from the address of who has a right.
    let mut stream = connect(to, if number.is_multiple_of(2) { 1 } else { 2 + (number % 100) as u8 });
    stream.set_nonblocking(true).unwrap();
    let bytes: &[u8] = match kind {
        Kind::Idle | Kind::Reset => &[],
        Kind::Slow => &right[..1],
        Kind::Unfinished => &right[..right.len() - 1],
        Kind::Garbage => &[0xa5; 3000],
    };
    // It may have been closed.
    let _ = stream.write_all(bytes);
    if matches!(kind, Kind::Reset) {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    stream
}

/// Every kind of stranger at a service. `right` is the beginning of what a client sends, `serve` is a client.
fn assert_stands(service: &Service, address: SocketAddr, right: &[u8], serve: impl Fn()) {
    serve();
    let settled = || {
        let mut before = service.descriptors();
        eventually(LIMIT, "descriptors settle", || {
            thread::sleep(Duration::from_millis(50));
            std::mem::replace(&mut before, service.descriptors()) == before
        });
        before
    };
    let before = settled();
    for kind in KINDS {
        let mut strangers: Vec<TcpStream> =
            (0..STRANGERS).map(|number| stranger(address, kind, number, right)).collect();
        if matches!(kind, Kind::Slow) {
            for stream in &mut strangers {
                let _ = stream.write_all(&right[1..2]);
            }
        }
        if matches!(kind, Kind::Reset) {
            strangers.clear();
        }
        serve();
        let ticks = service.ticks();
        thread::sleep(Duration::from_millis(250));
        let used = service.ticks() - ticks;
        assert!(used <= 8, "{kind:?}: {used} of 25 ticks while nothing happens");
        drop(strangers);
        eventually(LIMIT, &format!("{kind:?}: descriptors are given back"), || {
            service.descriptors() <= before + 2
        });
    }
    serve();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn http(address: SocketAddr, path: &str) {
    let mut stream = connect(address, 1);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[test]
fn serve_stands_among_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let (identity, pairing) = (folder.path().join("identity"), folder.path().join("pairing.json"));
    let service = Service::start(&["serve", "--listen", "127.0.0.1:0", "--identity", text(&identity)]);
    let address = service.state("listening")["address"].as_str().unwrap().to_owned();
    let token = run(&["pair", "create", "tester", "--identity", text(&identity), "--address", &address]);
    run_with_input(&["pair", "accept", text(&pairing)], token.ok()).ok();
    // A record of TLS that announces a ClientHello of 512 bytes (RFC 8446, section 5.1).
    let hello = [&[22, 3, 1, 2, 4, 1, 0, 2, 0, 3, 3][..], &[7; 200]].concat();
    assert_stands(&service, address.parse().unwrap(), &hello, || {
        run(&["probe", &address, "--pairing", text(&pairing), "--count", "1", "--json"]).ok();
    });
}

#[test]
fn rdma_serve_stands_among_strangers() {
    let service = Service::start(&["rdma", "serve", "--port", "0"]);
    let address = service.state("listening")["address"].as_str().unwrap().to_owned();
    let request = b"MPA ID Req Frame\x40\x01\x00\x10clearstream rdma";
    assert_stands(&service, address.parse().unwrap(), request, || {
        run(&["rdma", "write", &address, "--iterations", "10", "--warm-up", "0s", "--json"]).ok();
    });
}

#[test]
fn serve_for_iperf3_stands_among_strangers() {
    let service = Service::start(&["serve", "--compat", "iperf3", "--listen", "127.0.0.1:0"]);
    let address = service.state("listening")["address"].as_str().unwrap().to_owned();
    // A cookie, and the length of parameters that do not come.
    let hello = [&[b'x'; 37][..], &[0, 0, 1, 0, b'{']].concat();
    assert_stands(&service, address.parse().unwrap(), &hello, || {
        run(&["flow", "--compat", "iperf3", &address, "-t", "100ms", "-O", "0s", "--json"]).ok();
    });
}

#[test]
fn pages_and_metrics_stand_among_strangers() {
    let service = Service::start(&["live", "--web=127.0.0.1:0", "--metrics", "127.0.0.1:0", "-i", "5s"]);
    let [page, metrics] = ["page", "metrics"].map(|name| {
        let detail = service.state(name);
        let link = detail.as_str().or(detail["link"].as_str()).unwrap().to_owned();
        let (address, path) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
        (address.parse::<SocketAddr>().unwrap(), format!("/{path}"))
    });
    for (address, path) in [page, metrics] {
        assert_stands(&service, address, b"GET / HTTP/1.1\r\nHost: x\r\n", || http(address, &path));
    }
}
