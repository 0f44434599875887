//! Two hosts in namespaces, joined by a veth pair, and programs on them with
//! the library preloaded.

pub(crate) mod c;

use std::{
    io::Read,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_testkit::{listening::is_listening, namespace::Host};
use socket2::{Domain, Protocol, Socket, Type};

/// Generous bound of a program.
const BOUND: Duration = Duration::from_secs(40);
/// Key of an MPA Request (RFC 5044, section 7.1.1).
pub(crate) const MPA_REQUEST: &[u8] = b"MPA ID Req Frame";
/// Address of the server.
pub(crate) const SERVER: &str = "10.77.0.1";

/// Returns the library that `cargo build` created beside this test.
pub(crate) fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().unwrap().join("libclearstream_verbs.so");
    assert!(beside.exists(), "no {}: cargo build -p clearstream-verbs makes it", beside.display());
    beside
}

/// Two hosts.
pub(crate) struct Network {
    pub(crate) server: Host,
    pub(crate) client: Host,
}

impl Network {
    pub(crate) fn new() -> Self {
        let (server, client) = (Host::new(), Host::new());
        let peer = client.pid();
        server.tool("ip link set lo up");
        client.tool("ip link set lo up");
        server.tool(&format!("ip link add cs-verbs-a type veth peer name cs-verbs-b netns {peer}"));
        for (host, end, number) in [(&server, "cs-verbs-a", 1), (&client, "cs-verbs-b", 2)] {
            host.tool(&format!("ip address add 10.77.0.{number}/24 dev {end}"));
            host.tool(&format!("ip address add fd77::{number}/64 dev {end} nodad"));
            host.tool(&format!("ip link set {end} up"));
        }
        Self { server, client }
    }
}

/// A running program, ended when dropped.
pub(crate) struct Program {
    line: String,
    child: Child,
}

/// Output of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    /// Starts a program with the library preloaded; `settings` are variables.
    pub(crate) fn start(host: &Host, settings: &[(&str, &str)], line: &str) -> Self {
        let library = library();
        let preloaded = [("LD_PRELOAD", library.to_str().unwrap())];
        Self::start_alone(host, &[&preloaded, settings].concat(), line)
    }

    /// Starts a program without the library.
    pub(crate) fn start_alone(host: &Host, settings: &[(&str, &str)], line: &str) -> Self {
        let mut fields = line.split_whitespace();
        let mut command = Command::new(fields.next().unwrap());
        command.args(fields).env("LC_ALL", "C");
        command.envs(settings.iter().copied()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        host.enter(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}: .ci/install test"));
        Self { line: line.to_owned(), child }
    }

    /// Waits until the program, or one that it starts, listens on a TCP port.
    pub(crate) fn await_listening(&mut self, host: &Host, port: u16) {
        self.await_listening_on_one(host, &[port]);
    }

    /// The same on one of several ports.
    pub(crate) fn await_listening_on_one(&mut self, host: &Host, ports: &[u16]) {
        let begin = Instant::now();
        loop {
            if host.run(|| is_listening(ports)) {
                return;
            }
            assert_eq!(self.child.try_wait().unwrap(), None, "{} ended early", self.line);
            assert!(begin.elapsed() < BOUND, "{} does not listen", self.line);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the program ends.
    pub(crate) fn end(mut self) -> Ended {
        let mut pipes = (self.child.stdout.take().unwrap(), self.child.stderr.take().unwrap());
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            pipes.1.read_to_end(&mut text).unwrap();
            text
        });
        let output = thread::spawn(move || {
            let mut text = Vec::new();
            pipes.0.read_to_end(&mut text).unwrap();
            text
        });
        let begin = Instant::now();
        let mut status = None;
        while status.is_none() && begin.elapsed() < BOUND {
            status = self.child.try_wait().unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        // Its pipes close, also when it hangs.
        let _ = self.child.kill();
        let text = |bytes: JoinHandle<Vec<u8>>| String::from_utf8_lossy(&bytes.join().unwrap()).into_owned();
        let ended = Ended {
            code: status.and_then(|status| status.code()),
            stdout: text(output),
            stderr: text(errors),
        };
        assert!(status.is_some(), "{} hangs: {ended:?}", self.line);
        ended
    }

    /// Waits until the program ends successfully; returns its output.
    pub(crate) fn succeeds(self) -> Ended {
        let line = self.line.clone();
        let ended = self.end();
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a server and a client; both must succeed.
pub(crate) fn pair(network: &Network, settings: &[(&str, &str)], port: u16, lines: [&str; 2]) -> [Ended; 2] {
    let mut server = Program::start(&network.server, settings, lines[0]);
    server.await_listening(&network.server, port);
    let client = Program::start(&network.client, settings, lines[1]);
    // The client first: it reports the reason when both hang.
    let client = client.succeeds();
    [server.succeeds(), client]
}

/// Bytes that are kept of a packet: what tests count is in the first ones, or in short messages.
const KEPT: usize = 2048;

/// Packets that a host sends and receives, the first bytes of each.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Vec<u8>>>>,
}

impl Capture {
    pub(crate) fn start(host: &Host) -> Self {
        let socket = host.run(|| {
            // ETH_P_ALL in network order (packet(7)).
            Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(3u16.to_be())))).unwrap()
        });
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let _ = socket.set_recv_buffer_size(8 << 20);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = stop.clone();
            move || {
                let mut packets = Vec::new();
                let mut buffer = vec![0; KEPT];
                loop {
                    match (&socket).read(&mut buffer) {
                        Ok(length) => packets.push(buffer[..length].to_vec()),
                        Err(_) if stop.load(Ordering::Acquire) => return packets,
                        Err(_) => {}
                    }
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }

    pub(crate) fn packets(mut self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Number of packets that contain bytes.
pub(crate) fn count(packets: &[Vec<u8>], bytes: &[u8]) -> usize {
    packets.iter().filter(|packet| packet.windows(bytes.len()).any(|window| window == bytes)).count()
}
