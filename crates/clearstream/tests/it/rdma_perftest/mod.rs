//! `clearstream rdma --perftest` end to end: its client against its
//! server, and each against one half of conversations that perftest's own
//! programs had on Linux' siw.

use crate::common;
mod perftest;

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};

use crate::common::{Run, assert_valid, clearstream, finish, run};
use clearstream_schema::BitRate;
use perftest::{Fpdu, Frames, Play, introduced};
use serde_json::Value;

/// Long enough for a machine that does many things at once.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One of perftest's programs, with its capture: five messages of 64 bytes, or
/// as `messages` has it.
struct Program {
    name: &'static str,
    client: &'static [&'static str],
    server: &'static [&'static str],
    capture: &'static str,
    /// Messages and their bytes, in the capture.
    messages: (usize, usize),
}

const PROGRAMS: [Program; 6] = [
    Program {
        name: "ib_send_bw",
        client: &["send", "-n", "12", "--rx-depth", "6", "--depth", "4"],
        server: &[],
        capture: "perftest-send-bw",
        messages: (12, 100),
    },
    Program {
        name: "ib_send_lat",
        client: &["send", "--latency", "-n", "5"],
        server: &[],
        capture: "perftest-send-lat",
        messages: (5, 64),
    },
    Program {
        name: "ib_write_bw",
        client: &["write", "-n", "5"],
        server: &[],
        capture: "perftest-write-bw",
        messages: (5, 200),
    },
    Program {
        name: "ib_write_lat",
        client: &["write", "--latency", "-n", "5"],
        server: &["-n", "5"],
        capture: "perftest-write-lat",
        messages: (5, 64),
    },
    Program {
        name: "ib_read_bw",
        client: &["read", "-n", "5", "--outstanding-reads", "128"],
        server: &[],
        capture: "perftest-read-bw",
        messages: (5, 200),
    },
    Program {
        name: "ib_read_lat",
        client: &["read", "--latency", "-n", "5", "--outstanding-reads", "128"],
        server: &[],
        capture: "perftest-read-lat",
        messages: (5, 64),
    },
];

impl Program {
    fn size(&self) -> String {
        self.messages.1.to_string()
    }

    fn server(&self, more: &[&str]) -> Server {
        let size = self.size();
        Server::of_program(self.name, &[&["--size", &size], self.server, more].concat())
    }

    /// The client's end: its figures.
    fn client(&self, server: SocketAddr, more: &[&str]) -> Value {
        let (size, target) = (self.size(), server.to_string());
        let known = ["--perftest", "--json", "--size", &size, &target];
        let document = run(&[&["rdma"], self.client, &known, more].concat()).json();
        let summary = document["summary"].clone();
        assert_valid("rdma-summary", &summary);
        assert_eq!(summary["complete"], true);
        assert_eq!(summary["requested"]["perftest"], true);
        summary
    }

    fn capture(&self) -> PathBuf {
        format!("{}/../../fixtures/iwarp/{}.pcap", env!("CARGO_MANIFEST_DIR"), self.capture).into()
    }

    fn latency(&self) -> bool {
        self.name.ends_with("_lat")
    }
}

/// A server of ours in a process of its own.
struct Server {
    child: Option<Child>,
    address: SocketAddr,
}

impl Server {
    /// One of perftest's programs, for one client.
    fn of_program(name: &str, options: &[&str]) -> Self {
        Self::start(&[&["rdma", "serve", "--port", "0", "--once", "--perftest", name], options].concat())
    }

    fn start(arguments: &[&str]) -> Self {
        let mut child = clearstream(arguments).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split([' ', ';']).next());
        let address = address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        Self { child: Some(child), address }
    }

    /// Its end, with what it reported of its client.
    fn end(mut self) -> Run {
        finish(self.child.take().unwrap(), TIMEOUT)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn each_program_runs_against_itself_with_both_kinds_of_progress() {
    for program in &PROGRAMS {
        for progress in ["inline", "offloaded", "adaptive"] {
            let server = program.server(&["--progress", progress]);
            let summary = program.client(server.address, &["--progress", progress]);
            let result = &summary["results"][0];
            let (count, size) = program.messages;
            assert_eq!(result["forward"]["message_count"], count, "{}", program.name);
            assert_eq!(result["forward"]["bytes"], count * size);
            assert_eq!(result["latency"].is_object(), program.latency());
            assert_eq!(result["far_cpu_ns"], Value::Null, "perftest does not report it");
            let run = server.end();
            let log = run.stderr.clone();
            assert_eq!(run.code(), 0, "{log}");
            assert!(log.contains(&format!(": {}, 1 queue pair", program.name)), "{log}");
            if program.name != "ib_read_lat" {
                assert!(log.contains(&format!("{count} messages of {size} B")), "{log}");
            }
        }
    }
}

#[test]
fn several_queue_pairs_and_more_messages_than_receives() {
    for (name, operation) in [("ib_send_bw", "send"), ("ib_write_bw", "write"), ("ib_read_bw", "read")] {
        let server = Server::of_program(name, &["-q", "3", "--rx-depth", "16"]);
        let target = server.address.to_string();
        let arguments =
            ["--perftest", "--json", "-q", "3", "-n", "700", "-s", "3000", "--rx-depth", "16", &target];
        let document = run(&[&["rdma", operation], arguments.as_slice()].concat()).json();
        assert_eq!(document["summary"]["results"][0]["forward"]["message_count"], 2100);
        let log = server.end().stderr;
        assert!(log.contains("3 queue pairs; 2100 messages of 2.93 KiB"), "{log}");
    }
}

/// Bytes that connections to a port of this host have sent, as ss(8) reads them from the kernel.
fn sent_bytes(port: u16) -> u64 {
    let output = Command::new("ss").args(["-tinH", "dport", "=", &format!(":{port}")]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let counts = text.split_whitespace().filter_map(|field| field.strip_prefix("bytes_sent:"));
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

/// A client that stands still within its run, far longer than any gap between
/// messages: for the server it is one run, and the pause counts.
#[test]
fn a_run_with_a_pause_is_one_run() {
    const COUNT: u64 = 2_500;
    const BYTES: u64 = 64 << 10;
    const PAUSE: Duration = Duration::from_millis(200);
    let size = BYTES.to_string();
    let server = Server::of_program("ib_send_bw", &["--size", &size]);
    let (count, target) = (COUNT.to_string(), server.address.to_string());
    let mut client =
        clearstream(&["rdma", "send", "--perftest", "--json", "-n", &count, "--size", &size, &target])
            .spawn()
            .unwrap();
    // Well after the start, and well before the last message.
    let sent_to = server.address.port();
    common::eventually(TIMEOUT, "messages are sent", || sent_bytes(sent_to) > BYTES * 50);
    common::signal(client.id(), "STOP");
    std::thread::sleep(PAUSE);
    assert!(client.try_wait().unwrap().is_none(), "it stood still within the run");
    common::signal(client.id(), "CONT");
    let summary = finish(client, TIMEOUT).json()["summary"].clone();
    let log = server.end().stderr;
    assert_eq!(log.matches(" messages of ").count(), 1, "{log}");
    assert!(log.contains(&format!("{COUNT} messages of 64 KiB, ")), "{log}");
    // Whatever the machine sends in no time at all, the pause is part of the run.
    let most_bps = (COUNT * BYTES * 8) as f64 / PAUSE.as_secs_f64();
    let received = log.split("64 KiB, ").nth(1).and_then(|rest| rest.split(" received").next()).unwrap();
    let received: BitRate = received.replace(' ', "").parse().unwrap();
    assert!((received.0 as f64) < most_bps, "{log}");
    let goodput_bps = summary["results"][0]["forward"]["goodput_bps"].as_f64().unwrap();
    assert!(goodput_bps < most_bps, "{goodput_bps}");
}

/// Our client, against the captured frames of perftest's server.
#[test]
fn a_client_runs_against_a_captured_server() {
    for program in &PROGRAMS {
        let play = Play::of(&program.capture(), 1);
        let expected = play.expected();
        let (address, played) = play.serve();
        let summary = program.client(address, &["--no-crc"]);
        let received = played.join().unwrap();
        assert_eq!(summary["results"][0]["forward"]["message_count"], program.messages.0);
        assert_same_control(program.name, &received[0], &expected[0]);
        assert_eq!(received[1].setup, expected[1].setup, "{}", program.name);
        assert_eq!(shapes(&received[1].fpdus), shapes(&expected[1].fpdus), "{}", program.name);
        if program.name == "ib_write_lat" {
            assert_eq!(stamps(&received[1].fpdus), stamps(&expected[1].fpdus));
        }
    }
}

/// Our server, against the captured frames of perftest's client.
#[test]
fn a_server_runs_against_a_captured_client() {
    for program in &PROGRAMS {
        let server = program.server(&[]);
        let play = Play::of(&program.capture(), 0);
        let (expected, own) = (play.expected(), play.own());
        let received = play.connect(server.address);
        let log = server.end().stderr;
        assert_same_control(program.name, &received[0], &expected[0]);
        let name = program.name;
        match name {
            "ib_send_bw" => {
                // The counts that it reports are its own, and end with all.
                let counts: Vec<u32> = received[1].fpdus.iter().map(|fpdu| count_of(&fpdu.payload)).collect();
                assert!(counts.is_sorted(), "{counts:?}");
                assert_eq!(counts.last(), Some(&12));
                assert_eq!(expected[1].fpdus.last().map(|fpdu| count_of(&fpdu.payload)), Some(12));
            }
            "ib_send_lat" => {
                assert_eq!(shapes(&received[1].fpdus), shapes(&own.fpdus), "as it was sent to it")
            }
            "ib_write_lat" => {
                assert_eq!(shapes(&received[1].fpdus), shapes(&expected[1].fpdus));
                assert_eq!(stamps(&received[1].fpdus), [1, 2, 3, 4, 5]);
            }
            _ => assert_eq!(shapes(&received[1].fpdus), shapes(&expected[1].fpdus), "{name}"),
        }
        if name.ends_with("_bw") {
            let (count, size) = program.messages;
            assert!(log.contains(&format!("{count} messages of {size} B")), "{log}");
        }
    }
}

/// The control messages are the captured ones, except for values of each host: in
/// introductions all but the outstanding Reads, and a server's reply to figures.
fn assert_same_control(name: &str, received: &Frames, expected: &Frames) {
    assert_eq!(received.setup, expected.setup, "{name}");
    assert_eq!(received.fpdus.len(), expected.fpdus.len(), "{name}");
    for (number, (ours, theirs)) in received.fpdus.iter().zip(&expected.fpdus).enumerate() {
        let (ours, theirs) = (&ours.payload, &theirs.payload);
        assert_eq!(ours.len(), theirs.len(), "{name}: message {number}");
        if ![56, 8].contains(&ours.len()) {
            assert_eq!(ours, theirs, "{name}: message {number}");
        }
    }
    let places = |frames: &Frames| frames.fpdus.iter().filter_map(introduced).count();
    assert!(places(received) > 0 && places(received) <= places(expected), "{name}");
}

fn shapes(fpdus: &[Fpdu]) -> Vec<(u8, usize)> {
    fpdus.iter().map(|fpdu| (fpdu.opcode, fpdu.payload.len())).collect()
}

fn stamps(fpdus: &[Fpdu]) -> Vec<u8> {
    fpdus.iter().filter_map(|fpdu| fpdu.payload.last().copied()).collect()
}

fn count_of(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload.try_into().unwrap())
}

#[test]
fn refuses_what_perftest_does_not_do() {
    // The agent behind --local serves its own test alone and drops other clients unread.
    run(&["rdma", "send", "--local", "--perftest"]).refused_by_usage("cannot be used with '--");
    let refused = |arguments: &[&str], expected: &[&str]| {
        run(&[&["rdma"], arguments].concat()).refused(2, expected);
    };
    refused(
        &["write", "--perftest", "--latency", "-q", "2", "127.0.0.1"],
        &["ib_write_lat has one queue pair"],
    );
    refused(&["send", "--perftest", "--sizes", "1,2", "127.0.0.1"], &["ib_send_bw must know the size"]);
    refused(&["read", "--perftest", "-n", "4", "127.0.0.1"], &["perftest takes 5 or more"]);
    refused(&["send", "--perftest", "--rx-depth", "2", "127.0.0.1"], &["at least 3 receives"]);
    refused(&["serve", "--perftest", "ib_send_lat", "-q", "2"], &["ib_send_lat has one queue pair"]);
    refused(&["serve", "--perftest", "ib_send_bw", "--size", "0"], &["1 B to 1 GiB"]);
}

#[test]
fn a_wrong_peer_is_reported_in_one_line() {
    // A server of our own protocol: it takes the first connection for rping's.
    let server = Server::start(&["rdma", "serve", "--port", "0", "--once"]);
    let target = server.address.to_string();
    let wrong = run(&["rdma", "write", "--perftest", "-n", "5", &target]);
    assert_ne!(wrong.code(), 0);
    assert_eq!(wrong.stderr.lines().count(), 1, "{}", wrong.stderr);
}
