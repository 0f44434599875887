//! Programs with a connection, and what `diagnose --socket` and ss(8) show of it.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::common::{Lab, assert_published, clearstream, eventually, finish, program, run};
use clearstream_testkit::{lab::two_hosts, listening::free_port};
use serde_json::Value;

/// Reads 64 KiB at a time: port, pause after each in milliseconds, SO_RCVBUF (0: the kernel's).
pub(crate) const READER: &str = "
import socket, sys, time
port, pause, size = map(int, sys.argv[1:4])
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if size: listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
listener.bind(('0.0.0.0', port))
listener.listen()
one, _ = listener.accept()
while one.recv(65536): time.sleep(pause / 1000)
";

/// Writes all of the time: address, port, SO_SNDBUF.
pub(crate) const WRITER: &str = "
import socket, sys
one = socket.socket()
size = int(sys.argv[3])
if size: one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
one.connect((sys.argv[1], int(sys.argv[2])))
data = bytes(65536)
while True: one.sendall(data)
";

/// A program of a test, killed whatever happens.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts it here, or in a host of a lab: `lab exec` becomes the program.
    pub(crate) fn start(host: Option<(&str, &str)>, line: &[&str]) -> Self {
        let mut command = match host {
            Some((lab, host)) => {
                let mut command = clearstream(&["lab", "exec", lab, host, "--"]);
                command.args(line);
                command
            }
            None => {
                let mut command = Command::new(line[0]);
                command.args(&line[1..]);
                command
            }
        };
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap_or_else(|error| panic!("{line:?}: {error}: `.ci/install test`")))
    }

    pub(crate) fn pid(&self) -> u64 {
        self.0.id().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The system's iperf3, or the first of those that `IPERF3` names.
pub(crate) fn iperf3() -> String {
    let listed = std::env::var("IPERF3").ok();
    listed.and_then(|list| list.split(':').next().map(str::to_owned)).unwrap_or_else(|| "iperf3".to_owned())
}

/// Waits for a listener in the kernel's tables: a connection would be taken for a client.
pub(crate) fn wait_for_listener(host: Option<(&str, &str)>, port: &str) {
    let filter = format!("sport = {port}");
    eventually(Duration::from_secs(20), "a listener", || !ss(host, &["-Htln", &filter]).trim().is_empty());
}

pub(crate) fn ss(host: Option<(&str, &str)>, arguments: &[&str]) -> String {
    match host {
        Some((lab, host)) => {
            run(&[&["lab", "exec", lab, host, "--", "ss"], arguments].concat()).ok().to_owned()
        }
        None => {
            let output = Command::new("ss").args(arguments).output().unwrap();
            assert!(output.status.success(), "ss {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        }
    }
}

/// A reader or iperf3 server with a writer or client of it, both started and past slow start.
pub(crate) struct Pair {
    pub(crate) receiver: Running,
    pub(crate) sender: Running,
    pub(crate) port: String,
}

impl Pair {
    pub(crate) fn python(lab: Option<&str>, pause: &str, receive: &str, send: &str) -> Self {
        let port = free_port().to_string();
        let [here, there] = ["here", "there"].map(|host| lab.map(|lab| (lab, host)));
        let receiver = Running::start(there, &["python3", "-c", READER, &port, pause, receive]);
        wait_for_listener(there, &port);
        let to = if lab.is_some() { "10.0.0.2" } else { "127.0.0.1" };
        let sender = Running::start(here, &["python3", "-c", WRITER, to, &port, send]);
        Self::settled(receiver, sender, port)
    }

    pub(crate) fn iperf3(lab: Option<&str>, options: &[&str]) -> Self {
        let (port, program) = (free_port().to_string(), iperf3());
        let [here, there] = ["here", "there"].map(|host| lab.map(|lab| (lab, host)));
        let receiver = Running::start(there, &[&program, "-s", "-1", "-p", &port]);
        wait_for_listener(there, &port);
        let to = if lab.is_some() { "10.0.0.2" } else { "127.0.0.1" };
        let line = [&[&*program, "-c", to, "-p", &port, "-t", "60"], options].concat();
        Self::settled(receiver, Running::start(here, &line), port)
    }

    pub(crate) fn settled(receiver: Running, sender: Running, port: String) -> Self {
        thread::sleep(Duration::from_secs(2));
        Self { receiver, sender, port }
    }
}

pub(crate) fn starts(host: Option<(&str, &str)>, filter: &str, more: &[&str]) -> Child {
    let arguments = [&["diagnose", "--socket", filter, "-t", "2", "--json"], more].concat();
    match host {
        Some((lab, host)) => {
            let exec = ["lab", "exec", lab, host, "--", program().to_str().unwrap()];
            clearstream(&[&exec, &arguments[..]].concat()).spawn().unwrap()
        }
        None => clearstream(&arguments).spawn().unwrap(),
    }
}

/// The document of a child of [`starts`].
pub(crate) fn document(child: Child) -> Value {
    let document = finish(child, Duration::from_secs(30)).json();
    assert_published(&document);
    document
}

pub(crate) fn diagnose(host: Option<(&str, &str)>, filter: &str, more: &[&str]) -> Value {
    document(starts(host, filter, more))
}

/// The kind of the cause, `unknown` or `idle`.
pub(crate) fn kind(connection: &Value) -> String {
    let verdict = &connection["verdict"];
    match verdict["found"]["cause"]["kind"].as_str() {
        Some(kind) => kind.to_owned(),
        None if verdict == "idle" => "idle".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// Of ss: `word:NUMBER`, up to a character that is none of a number.
pub(crate) fn shown(text: &str, key: &str) -> f64 {
    let (_, rest) = text.split_once(key).unwrap_or_else(|| panic!("no {key} in: {text}"));
    let end = rest.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap()
}

/// What does not change in the course of a connection, and that ss names the same owner.
pub(crate) fn agrees_with_ss(host: Option<(&str, &str)>, end: &Value) {
    let port = |end: &Value| end.as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let filter = format!("sport = {} and dport = {}", port(&end["local"]), port(&end["remote"]));
    let text = ss(host, &["-HtinmepO", &filter]);
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    assert_eq!(shown(&text, "ino:"), end["inode"].as_f64().unwrap(), "{text}");
    assert_eq!(shown(&text, " mss:"), end["send_mss_bytes"].as_f64().unwrap(), "{text}");
    assert_eq!(shown(&text, ",pid="), end["owners"][0]["pid"].as_f64().unwrap(), "{text}");
    assert!(text.contains(&format!(" {} ", end["congestion_control"].as_str().unwrap())), "{text}");
    let minimum = shown(&text, "minrtt:");
    let ours = end["min_rtt_ns"].as_f64().unwrap() / 1e6;
    assert!(ours >= minimum * 0.999, "{ours} {text}");
}

pub(crate) fn long_lab(folder: &std::path::Path, name: &str, link: &str) -> Lab {
    let link = format!("delay = \"8ms\"\nbackend = \"delay-line\"\n{link}");
    let cubic = |text: String, host: &str| {
        let line = format!("name = \"{host}\"\n");
        text.replace(&line, &format!("{line}congestion-control = \"cubic\"\n"))
    };
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, cubic(cubic(two_hosts(name, &link), "here"), "there")).unwrap();
    Lab::up(&path, name)
}
