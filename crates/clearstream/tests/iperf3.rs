//! `flow --compat iperf3` and `serve --compat iperf3` against Debian's iperf3, on
//! loopback: figures of both ends agree, and nothing that a peer says harms.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use common::{Run, assert_published, assert_valid, clearstream, eventually, finish, run, signal};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn iperf3(arguments: &[&str]) -> Child {
    let mut command = Command::new("iperf3");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("iperf3 ({error}): `.ci/install test` installs it"))
}

/// A port that nobody has, as text.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// Somebody listens: asked of the kernel, since a connection would be taken for a client.
fn wait_for_listener(port: &str) {
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
struct TheirServer {
    child: Child,
    port: String,
}

impl TheirServer {
    fn start() -> Self {
        let port = free_port();
        let child = iperf3(&["-s", "-1", "-J", "-B", "127.0.0.1", "-p", &port]);
        wait_for_listener(&port);
        Self { child, port }
    }

    fn target(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn output(self) -> Value {
        let run = finish(self.child, LIMIT);
        serde_json::from_str(&run.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", run.stdout, run.stderr))
    }
}

/// Our server, whose events are read.
struct OurServer {
    child: Child,
    events: BufReader<std::process::ChildStdout>,
    port: String,
}

impl OurServer {
    fn start(arguments: &[&str]) -> Self {
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
    fn wait_for(&mut self, name: &str) -> Value {
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
    fn summary(&mut self) -> Value {
        self.wait_for("test-finished")["summary"].clone()
    }

    fn stop(mut self) {
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

fn event(events: &mut impl BufRead) -> Value {
    let mut line = String::new();
    events.read_line(&mut line).unwrap();
    let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_published(&event);
    event
}

/// iperf3's client towards a port, with its output as JSON.
fn their_client(port: &str, arguments: &[&str]) -> Value {
    let all = ["-c", "127.0.0.1", "-p", port, "-J"];
    let run = finish(iperf3(&[&all[..], arguments].concat()), LIMIT);
    let document: Value = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.stdout, run.stderr));
    assert!(document.get("error").is_none(), "{arguments:?}: {}", document["error"]);
    document
}

fn our_client(target: &str, arguments: &[&str]) -> Run {
    run(&[&["flow", "--compat", "iperf3", target, "-O", "0s", "--json"], arguments].concat())
}

/// Bytes of the streams that iperf3's server sends on, or does not, as it counted
/// them: it prints before it hears the client's figures.
fn server_sum(document: &Value, sender: bool) -> u64 {
    let streams = document["end"]["streams"].as_array().unwrap();
    let own = streams.iter().filter(|stream| stream["sender"]["sender"] == sender);
    own.map(|stream| stream[if sender { "sender" } else { "receiver" }]["bytes"].as_u64().unwrap()).sum()
}

/// Sums over the streams that iperf3's client sends on, or does not: as both ends
/// say, (sent, received).
fn stream_sums(document: &Value, sender: bool) -> (u64, u64) {
    let streams = document["end"]["streams"].as_array().unwrap();
    let own = streams.iter().filter(|stream| stream["sender"]["sender"] == sender);
    own.fold((0, 0), |(sent, received), stream| {
        let of = |side: &str| stream[side]["bytes"].as_u64().unwrap();
        (sent + of("sender"), received + of("receiver"))
    })
}

fn bytes(direction: &Value, key: &str) -> u64 {
    direction[key].as_u64().unwrap_or_else(|| panic!("{key} in {direction}"))
}

/// Both ends have the same numbers for both ends.
fn assert_tcp_agrees(direction: &Value, (sent, received): (u64, u64)) {
    assert_eq!((bytes(direction, "sent_bytes"), bytes(direction, "received_bytes")), (sent, received));
    assert_tcp(direction);
}

/// What is on the way at the end was sent and not received. Not so with a warm-up,
/// at whose end data is on the way too.
fn assert_received_at_most(direction: &Value) {
    assert!(bytes(direction, "received_bytes") <= bytes(direction, "sent_bytes"), "{direction}");
}

fn assert_tcp(direction: &Value) {
    let (sent, received) = (bytes(direction, "sent_bytes"), bytes(direction, "received_bytes"));
    assert!(received > 0 && sent > 0, "{received} of {sent}");
    assert!(direction["goodput_bps"].as_f64().unwrap() > 1e6, "{direction}");
    assert!(direction["retransmit_count"].is_u64(), "the sender counts them: {direction}");
}

const DIRECTIONS: [(&str, &str); 3] = [("forward", ""), ("reverse", "-R"), ("both", "--bidir")];

#[test]
fn tcp_to_their_server_agrees_in_every_direction() {
    for (direction, _) in DIRECTIONS {
        for flows in ["1", "3"] {
            let server = TheirServer::start();
            let arguments = ["-t", "500ms", "-P", flows, "--direction", direction];
            let document = our_client(&server.target(), &arguments).json();
            let theirs = server.output();
            assert!(theirs.get("error").is_none(), "{direction} {flows}: {}", theirs["error"]);
            let summary = &document["summary"];
            assert_eq!((&summary["role"], &summary["complete"]), (&"client".into(), &true.into()));
            assert_eq!(summary["forward"].is_object(), direction != "reverse");
            assert_eq!(summary["reverse"].is_object(), direction != "forward");
            if direction != "reverse" {
                assert_tcp(&summary["forward"]);
                assert_eq!(bytes(&summary["forward"], "received_bytes"), server_sum(&theirs, false));
                assert_received_at_most(&summary["forward"]);
                assert_eq!(summary["forward"]["goodput_source"], "peer");
                assert_eq!(summary["forward"]["streams"].as_array().unwrap().len().to_string(), flows);
            }
            if direction != "forward" {
                assert_tcp(&summary["reverse"]);
                assert_eq!(bytes(&summary["reverse"], "sent_bytes"), server_sum(&theirs, true));
                assert_received_at_most(&summary["reverse"]);
                assert_eq!(summary["reverse"]["goodput_source"], "this-end");
            }
            assert!(summary["peer"]["cpu_ratio"].as_f64().unwrap() > 0.0);
            assert!(!document["intervals"].as_array().unwrap().is_empty());
            assert!(summary["not_measured"].as_array().unwrap().contains(&"peer-cores".into()));
        }
    }
}

#[test]
fn udp_to_their_server_agrees_in_every_direction() {
    for (direction, _) in DIRECTIONS {
        for flows in ["1", "2"] {
            let server = TheirServer::start();
            let arguments = [
                "-t",
                "500ms",
                "-P",
                flows,
                "--direction",
                direction,
                "--protocol",
                "udp",
                "--pacing",
                "20Mb/s",
                "--datagram",
                "1400",
            ];
            let document = our_client(&server.target(), &arguments).json();
            let theirs = server.output();
            assert!(theirs.get("error").is_none(), "{direction} {flows}: {}", theirs["error"]);
            let summary = &document["summary"];
            let flows: f64 = flows.parse().unwrap();
            for name in ["forward", "reverse"] {
                let Some(part) = summary.get(name) else { continue };
                let goodput = part["goodput_bps"].as_f64().unwrap() / flows;
                assert!((10e6..30e6).contains(&goodput), "{name}: {goodput}");
                let counted = &part["datagrams"];
                let expected = bytes(counted, "expected_count");
                assert!(expected > 100 && bytes(counted, "lost_count") < expected / 2, "{counted}");
            }
            if let Some(forward) = summary.get("forward") {
                let streams = theirs["end"]["streams"].as_array().unwrap();
                let received = streams.iter().filter(|stream| stream["udp"]["sender"] == false);
                let of = |key: &str| {
                    let each = received.clone().map(|stream| stream["udp"][key].as_u64().unwrap());
                    each.sum::<u64>()
                };
                let counted = &forward["datagrams"];
                assert_eq!(bytes(counted, "expected_count"), of("packets"));
                assert_eq!(bytes(counted, "lost_count"), of("lost_packets"));
            }
        }
    }
}

#[test]
fn tcp_from_their_client_agrees_in_every_direction() {
    let mut server = OurServer::start(&[]);
    for (direction, option) in DIRECTIONS {
        for flows in ["1", "3"] {
            let mut arguments = vec!["-t", "1", "-P", flows];
            arguments.extend((!option.is_empty()).then_some(option));
            let theirs = their_client(&server.port, &arguments);
            let summary = server.summary();
            assert_eq!((&summary["role"], &summary["complete"]), (&"server".into(), &true.into()));
            assert_eq!(summary["direction"], direction);
            assert!(summary["peer"]["version"].as_str().is_some_and(|version| version.starts_with('3')));
            if direction != "reverse" {
                assert_tcp_agrees(&summary["forward"], stream_sums(&theirs, true));
            }
            if direction != "forward" {
                assert_tcp_agrees(&summary["reverse"], stream_sums(&theirs, false));
            }
        }
    }
    server.stop();
}

#[test]
fn udp_from_their_client_agrees_in_every_direction() {
    let mut server = OurServer::start(&[]);
    for (_, option) in DIRECTIONS {
        for wide in [false, true] {
            let mut arguments = vec!["-u", "-t", "1", "-b", "20M", "-l", "1200", "-P", "2"];
            arguments.extend((!option.is_empty()).then_some(option));
            arguments.extend(wide.then_some("--udp-counters-64bit"));
            let theirs = their_client(&server.port, &arguments);
            let summary = server.summary();
            for name in ["forward", "reverse"] {
                let Some(part) = summary.get(name) else { continue };
                let counted = &part["datagrams"];
                let expected = bytes(counted, "expected_count");
                // 20 Mb/s of 1200 bytes are 2083 datagrams a second for each of 2 streams.
                assert!((2000..8400).contains(&expected), "{name} {wide}: {counted}");
                assert!(bytes(counted, "lost_count") < expected / 2, "{counted}");
            }
            if summary.get("forward").is_some() {
                let sums: Vec<&Value> = theirs["end"]["streams"].as_array().unwrap().iter().collect();
                let sent = sums.iter().filter(|stream| stream["udp"]["sender"] == true);
                let lost: u64 = sent.map(|stream| stream["udp"]["lost_packets"].as_u64().unwrap()).sum();
                assert_eq!(bytes(&summary["forward"]["datagrams"], "lost_count"), lost);
            }
        }
    }
    server.stop();
}

#[test]
fn the_warm_up_counts_at_neither_end() {
    let server = TheirServer::start();
    let arguments = ["flow", "--compat", "iperf3", &server.target(), "-t", "1s", "-O", "1s", "--json"];
    let document = run(&arguments).json();
    let theirs = server.output();
    let forward = &document["summary"]["forward"];
    assert_tcp(forward);
    assert_eq!(bytes(forward, "received_bytes"), server_sum(&theirs, false));
    let warm_up: Vec<bool> = document["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|interval| interval["warm_up"].as_bool().unwrap())
        .collect();
    assert_eq!(warm_up, [true, false]);

    let mut server = OurServer::start(&["--once"]);
    let theirs = their_client(&server.port, &["-t", "1", "-O", "1", "-R"]);
    assert_tcp_agrees(&server.summary()["reverse"], stream_sums(&theirs, false));
    eventually(LIMIT, "the end after one test", || server.child.try_wait().unwrap().is_some());
}

#[test]
fn an_amount_of_data_is_sent_and_not_more() {
    let server = TheirServer::start();
    let document = our_client(&server.target(), &["-n", "4MiB", "-P", "2"]).json();
    let theirs = server.output();
    let forward = &document["summary"]["forward"];
    assert_eq!(bytes(forward, "sent_bytes"), 8 << 20);
    assert_eq!(bytes(forward, "received_bytes"), server_sum(&theirs, false));

    let server = TheirServer::start();
    let document = our_client(&server.target(), &["-n", "4MiB", "--direction", "reverse"]).json();
    server.output();
    assert!(bytes(&document["summary"]["reverse"], "received_bytes") >= 4 << 20);

    let mut server = OurServer::start(&[]);
    let theirs = their_client(&server.port, &["-n", "8M"]);
    assert_tcp_agrees(&server.summary()["forward"], stream_sums(&theirs, true));
    their_client(&server.port, &["-n", "8M", "-R"]);
    assert!(bytes(&server.summary()["reverse"], "sent_bytes") >= 8 << 20);
    server.stop();
}

#[test]
fn options_of_a_client_are_in_force_at_the_server() {
    let mut server = OurServer::start(&[]);
    let arguments = ["-t", "1", "-R", "-w", "64K", "-M", "1000", "-S", "184", "-C", "reno", "-b", "80M"];
    let theirs = their_client(&server.port, &arguments);
    let summary = server.summary();
    let socket = &summary["settings"]["flows"][0];
    // socket(7): doubled.
    assert_eq!(
        (&socket["send_buffer_bytes"], &socket["receive_buffer_bytes"]),
        (&131_072.into(), &131_072.into())
    );
    assert_eq!(
        (&socket["congestion_control"], &socket["pacing_rate_bps"]),
        (&"reno".into(), &80_000_000.into())
    );
    assert!(socket["segment_bytes"].as_u64().unwrap() <= 1000, "{socket}");
    assert_eq!(theirs["end"]["sender_tcp_congestion"], "reno");
    let goodput = summary["reverse"]["goodput_bps"].as_f64().unwrap_or(0.0);
    assert!(goodput < 100e6, "paced: {goodput}");
    // As before: the next client gets a socket of its own size.
    their_client(&server.port, &["-t", "1"]);
    let next = server.summary();
    assert_ne!(next["settings"]["flows"][0]["send_buffer_bytes"], 131_072);
    server.stop();
}

#[test]
fn options_of_ours_are_in_force_at_their_server() {
    let server = TheirServer::start();
    let arguments = [
        "-t",
        "500ms",
        "--window",
        "64KiB",
        "--transfer",
        "32KiB",
        "-C",
        "reno",
        "--pacing",
        "80Mb/s",
        "--dscp",
        "46",
        "--direction",
        "reverse",
    ];
    let document = our_client(&server.target(), &arguments).json();
    let theirs = server.output();
    let start = &theirs["start"];
    assert_eq!((&start["sock_bufsize"], &start["test_start"]["blksize"]), (&65_536.into(), &32_768.into()));
    assert_eq!(start["test_start"]["tos"], 184);
    assert_eq!(document["summary"]["peer"]["congestion_control"], "reno");
    let goodput = document["summary"]["reverse"]["goodput_bps"].as_f64().unwrap();
    assert!((10e6..100e6).contains(&goodput), "paced by the server: {goodput}");
}

#[test]
fn a_clients_wish_for_our_output_is_met_under_our_name() {
    let mut server = OurServer::start(&[]);
    let theirs = their_client(&server.port, &["-t", "1", "--get-server-output"]);
    let text = theirs["server_output_text"].as_str().unwrap();
    assert!(text.starts_with("ClearStream ") && text.contains("received"), "{text}");
    server.summary();
    server.stop();
}

#[test]
fn one_test_at_a_time() {
    let mut server = OurServer::start(&[]);
    let first = iperf3(&["-c", "127.0.0.1", "-p", &server.port, "-t", "2", "-J"]);
    server.wait_for("test-started");
    let second = finish(iperf3(&["-c", "127.0.0.1", "-p", &server.port, "-t", "1"]), LIMIT);
    assert!(second.stderr.contains("busy"), "{}{}", second.stdout, second.stderr);
    let ours = our_client(&format!("127.0.0.1:{}", server.port), &["-t", "1s"]);
    ours.refused(4, &["busy with another test"]);
    assert_eq!(finish(first, LIMIT).code(), 0);
    server.summary();
    server.stop();
}

#[test]
fn our_two_ends_understand_each_other() {
    let mut server = OurServer::start(&[]);
    let target = format!("127.0.0.1:{}", server.port);
    for protocol in ["tcp", "udp"] {
        for (direction, _) in DIRECTIONS {
            let mut arguments =
                vec!["-t", "300ms", "--direction", direction, "--protocol", protocol, "-P", "2"];
            arguments.extend(if protocol == "udp" { vec!["--pacing", "20Mb/s"] } else { vec![] });
            let client = our_client(&target, &arguments).json()["summary"].clone();
            let server = server.summary();
            for name in ["forward", "reverse"] {
                for key in ["sent_bytes", "received_bytes"] {
                    assert_eq!(client[name][key], server[name][key], "{protocol} {direction}: {name} {key}");
                }
            }
        }
    }
    server.stop();
}

#[test]
fn nobody_and_somebody_else_are_named() {
    let port = free_port();
    our_client(&format!("127.0.0.1:{port}"), &[]).refused(3, &["no iperf3 server", "nothing listens", &port]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        drop(stream.read(&mut [0; 100]));
    });
    our_client(&target, &[]).refused(3, &["is it an iperf3 program"]);
    other.join().unwrap();
    our_client("nowhere.invalid", &[]).refused(3, &["cannot reach nowhere.invalid"]);
    run(&["flow", "--compat", "iperf3"]).refused(2, &["name the iperf3 server"]);
    run(&["flow", "--compat", "iperf3", "127.0.0.1", "-O", "500ms"]).refused(2, &["whole seconds"]);
    run(&["flow", "--compat", "iperf3", "127.0.0.1", "--lab", "x"]).refused_by_usage("cannot be used with");
    run(&["serve", "--compat", "iperf3", "--queue"]).refused_by_usage("cannot be used with");
    run(&["serve", "--once"]).refused_by_usage("--compat");
}

/// A server that runs as iperf3's does and then says what cannot be, for a
/// client; each entry is what it says after the cookie.
#[test]
fn a_server_that_lies_ends_the_test_with_a_reason() {
    let results = |text: &str| {
        [&[9, 10, 1, 2][..], &[13], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    };
    let cases: [(Vec<u8>, i32, &str); 6] = [
        (vec![9, 254, 0, 0, 0, 134, 0, 0, 0, 2], 4, "lacks the congestion control"),
        (vec![9, 11], 6, "ended by its operator"),
        (vec![9, 9], 6, "PARAM_EXCHANGE where CREATE_STREAMS"),
        (vec![7], 3, "is it an iperf3 program"),
        (vec![9], 6, "closed the control connection"),
        (results("{}"), 6, "where nothing was to come"),
    ];
    for (says, code, words) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let liar = std::thread::spawn(move || {
            let mut control = listener.accept().unwrap().0;
            control.read_exact(&mut [0; 37]).unwrap();
            control.write_all(&says).unwrap();
            // What the client still says is read, so that no reset overtakes ours.
            drop(control.shutdown(std::net::Shutdown::Write));
            let mut rest = Vec::new();
            drop(control.read_to_end(&mut rest));
        });
        our_client(&target, &["-t", "300ms"]).refused(code, &[words]);
        liar.join().unwrap();
    }
}

#[test]
fn hostile_clients_do_not_stop_the_server() {
    let mut server = OurServer::start(&[]);
    let target = format!("127.0.0.1:{}", server.port);
    let connect = || TcpStream::connect(&target).unwrap();
    let frame = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
    let said: [Vec<u8>; 8] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0xff; 4],
        vec![0, 1, 0, 1],
        frame(b"{"),
        frame(br#"{"tcp":true,"parallel":100000}"#),
        frame(br#"{"tcp":true,"len":1e18}"#),
        frame(br#"{"udp":true,"len":1}"#),
        frame(br#"{"sctp":true}"#),
    ];
    let _silent = connect();
    for message in &said {
        let mut stranger = connect();
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stranger.write_all(&[b'x'; 37]).unwrap();
        let mut state = [0];
        stranger.read_exact(&mut state).unwrap();
        assert_eq!(state, [9], "PARAM_EXCHANGE");
        stranger.write_all(message).unwrap();
        drop(stranger.shutdown(std::net::Shutdown::Write));
        let mut rest = Vec::new();
        drop(stranger.read_to_end(&mut rest));
        server.wait_for("test-failed");
    }
    their_client(&server.port, &["-t", "1"]);
    assert_eq!(server.summary()["complete"], true);
    server.stop();
}

#[test]
fn an_interrupted_client_has_its_figures_until_then() {
    let server = TheirServer::start();
    let target = server.target();
    let mut child = clearstream(&[
        "flow",
        "--compat",
        "iperf3",
        &target,
        "-t",
        "60s",
        "-O",
        "0s",
        "-i",
        "200ms",
        "--json-stream",
    ])
    .spawn()
    .unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap());
    while event(&mut events)["kind"] != "interval" {}
    signal(child.id(), "INT");
    let mut last = Value::Null;
    let mut line = String::new();
    while events.read_line(&mut line).unwrap() > 0 {
        last = serde_json::from_str(&line).unwrap();
        line.clear();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let summary = &last["payload"]["summary"];
    assert_eq!((&last["kind"], &summary["complete"]), (&"result".into(), &false.into()));
    assert!(bytes(&summary["forward"], "received_bytes") > 0, "the server reports what it has");
    let theirs = server.output();
    assert!(theirs.get("error").is_none(), "{}", theirs["error"]);
}

#[test]
fn people_read_who_reported_what() {
    let server = TheirServer::start();
    let text = run(&["flow", "--compat", "iperf3", &server.target(), "-t", "1s", "-O", "0s"]);
    let shown = text.ok();
    for part in ["client to server: goodput", "reported by the peer", "iperf3 program", "cores (its process"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    drop(server.output());
}
