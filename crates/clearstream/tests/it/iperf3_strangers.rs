//! Peers of `--compat iperf3` that are busy, gone, something else, or hostile: each
//! is named, and none harms.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use crate::common::{clearstream, finish, run, signal};
use crate::iperf3_programs::{LIMIT, OurServer, TheirServer, bytes, event, iperf3, our_client, their_client};
use serde_json::Value;

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
fn nobody_and_somebody_else_are_named() {
    let port = clearstream_testkit::listening::free_port().to_string();
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

/// A server that runs as iperf3's does and then violates the protocol; each entry is
/// what it sends after the cookie.
#[test]
fn a_server_that_violates_the_protocol_ends_the_test_with_a_reason() {
    let results = |text: &str| {
        [&[9, 10, 1, 2][..], &[13], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    };
    let cases: [(Vec<u8>, i32, &str); 6] = [
        (vec![9, 254, 0, 0, 0, 134, 0, 0, 0, 2], 4, "lacks the congestion control"),
        (vec![9, 11], 6, "stopped by its operator"),
        (vec![9, 9], 6, "PARAM_EXCHANGE where CREATE_STREAMS"),
        (vec![7], 3, "is it an iperf3 program"),
        (vec![9], 6, "closed the control connection"),
        (results("{}"), 6, "where nothing was expected"),
    ];
    for (sent, code, expected) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let mut control = listener.accept().unwrap().0;
            control.read_exact(&mut [0; 37]).unwrap();
            control.write_all(&sent).unwrap();
            // What the client still sends is read, so that no reset overtakes ours.
            drop(control.shutdown(std::net::Shutdown::Write));
            let mut rest = Vec::new();
            drop(control.read_to_end(&mut rest));
        });
        our_client(&target, &["-t", "300ms"]).refused(code, &[expected]);
        server.join().unwrap();
    }
}

#[test]
fn hostile_clients_do_not_stop_the_server() {
    let mut server = OurServer::start(&[]);
    let target = format!("127.0.0.1:{}", server.port);
    let connect = || TcpStream::connect(&target).unwrap();
    let frame = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
    let messages: [Vec<u8>; 8] = [
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
    for message in &messages {
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
