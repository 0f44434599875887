//! iperf3's programs and ours at either end of a test, on loopback.

use std::{
    cell::RefCell,
    ffi::OsString,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use clearstream_testkit::listening::free_port;
use serde_json::Value;

use crate::common::{Run, assert_published, assert_valid, clearstream, eventually, finish, run, signal};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

thread_local! {
    /// The iperf3 that the test of this thread runs.
    static PROGRAM: RefCell<PathBuf> = RefCell::new(PathBuf::from("iperf3"));
}

/// The system's iperf3, and those of a path list as the environment variable `IPERF3` has it.
pub(crate) fn programs(more: Option<OsString>) -> Vec<PathBuf> {
    let more = more.unwrap_or_default();
    let named = std::env::split_paths(&more).filter(|path| !path.as_os_str().is_empty());
    [PathBuf::from("iperf3")].into_iter().chain(named).collect()
}

/// Runs a test against each of [`programs`]; the output of one that fails ends with its name.
#[allow(clippy::print_stderr, reason = "the output of a test that fails")]
pub(crate) fn each_program(test: impl Fn()) {
    for program in programs(std::env::var_os("IPERF3")) {
        eprintln!("against {}", program.display());
        PROGRAM.set(program);
        test();
    }
}

/// From 3.16 on iperf3 has a thread per stream: its sender threads still count while the results
/// are exchanged, so that its own totals differ between its messages and its output.
pub(crate) fn has_sender_threads() -> bool {
    let program = PROGRAM.with_borrow(Clone::clone);
    let text = String::from_utf8(Command::new(&program).arg("--version").output().unwrap().stdout).unwrap();
    let version = text.strip_prefix("iperf 3.").unwrap_or_else(|| panic!("{text}"));
    let minor = version.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    minor.parse::<u32>().unwrap() >= 16
}

pub(crate) fn iperf3(arguments: &[&str]) -> Child {
    let program = PROGRAM.with_borrow(Clone::clone);
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| {
        panic!("{} ({error}): `.ci/install test` installs the system's", program.display())
    })
}

/// Waits for a listener in the kernel's tables: a connection would be taken for a client.
pub(crate) fn wait_for_listener(port: &str) {
    let place = format!(":{:04X} ", port.parse::<u16>().unwrap());
    eventually(Duration::from_secs(10), "a listener", || {
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|path| {
            let table = std::fs::read_to_string(path).unwrap_or_default();
            // Column 2 is the local address, column 4 the state; 0A listens.
            table.lines().any(|line| {
                let columns: Vec<&str> = line.split_whitespace().collect();
                columns.len() > 3 && format!("{} ", columns[1]).ends_with(&place) && columns[3] == "0A"
            })
        })
    });
}

/// iperf3's server for one test, with its own output as JSON.
pub(crate) struct TheirServer {
    child: Option<Child>,
    pub(crate) port: String,
}

impl TheirServer {
    pub(crate) fn start() -> Self {
        let port = free_port().to_string();
        let child = iperf3(&["-s", "-1", "-J", "-B", "127.0.0.1", "-p", &port]);
        wait_for_listener(&port);
        Self { child: Some(child), port }
    }

    pub(crate) fn target(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn output(mut self) -> Value {
        let run = finish(self.child.take().unwrap(), LIMIT);
        serde_json::from_str(&run.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", run.stdout, run.stderr))
    }
}

impl Drop for TheirServer {
    fn drop(&mut self) {
        // A test that failed did not wait for its end.
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Our server, whose events are read.
pub(crate) struct OurServer {
    pub(crate) child: Child,
    pub(crate) events: BufReader<std::process::ChildStdout>,
    pub(crate) port: String,
}

impl OurServer {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let all = ["serve", "--compat", "iperf3", "--listen", "127.0.0.1:0", "--json-stream"];
        let mut child = clearstream(&[&all[..], arguments].concat()).spawn().unwrap();
        let mut events = BufReader::new(child.stdout.take().unwrap());
        let listening = event(&mut events);
        assert_eq!(listening["payload"]["name"], "listening", "{listening}");
        let address = listening["payload"]["detail"]["address"].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        Self { child, events, port }
    }

    /// The facts of the next state of this name.
    pub(crate) fn wait_for(&mut self, name: &str) -> Value {
        loop {
            let next = event(&mut self.events);
            if next["kind"] == "interval" {
                assert_valid("iperf3-interval", &next["payload"]);
            }
            if next["payload"]["name"] == name {
                return next["payload"]["detail"].clone();
            }
        }
    }

    /// The summary of the next test.
    pub(crate) fn summary(&mut self) -> Value {
        self.wait_for("test-finished")["summary"].clone()
    }

    pub(crate) fn stop(mut self) {
        signal(self.child.id(), "TERM");
        eventually(LIMIT, "the server's end", || self.child.try_wait().unwrap().is_some());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for OurServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn event(events: &mut impl BufRead) -> Value {
    let mut line = String::new();
    events.read_line(&mut line).unwrap();
    let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_published(&event);
    event
}

/// iperf3's client towards a port, with its output as JSON.
pub(crate) fn their_client(port: &str, arguments: &[&str]) -> Value {
    let all = ["-c", "127.0.0.1", "-p", port, "-J"];
    let run = finish(iperf3(&[&all[..], arguments].concat()), LIMIT);
    let document: Value = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.stdout, run.stderr));
    assert!(document.get("error").is_none(), "{arguments:?}: {}", document["error"]);
    document
}

pub(crate) fn our_client(target: &str, arguments: &[&str]) -> Run {
    run(&[&["flow", "--compat", "iperf3", target, "-O", "0s", "--json"], arguments].concat())
}

/// A count of a document's direction.
pub(crate) fn bytes(direction: &Value, key: &str) -> u64 {
    direction[key].as_u64().unwrap_or_else(|| panic!("{key} in {direction}"))
}
