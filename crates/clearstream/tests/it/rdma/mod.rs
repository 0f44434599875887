//! `clearstream rdma` as a person runs it, over loopback: pings as rping makes
//! them, measurements, and what people do wrong.

use crate::common;
pub(crate) mod exchange;
mod far;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command},
    time::Duration,
};

use crate::common::{alive, assert_valid, children, clearstream, eventually, finish, run, signal};
use clearstream_testkit::{namespace::Host, pcap};
use serde_json::Value;

/// Enough for every path of the code, and no more.
const SHORT: [&str; 6] = ["--local", "--json", "-t", "60ms", "-O", "10ms"];

/// A peer in a process of its own, on a free port.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        Self::started(&mut Self::command(arguments))
    }

    /// On another host.
    fn start_on(host: &Host, arguments: &[&str]) -> Self {
        let mut command = Self::command(arguments);
        host.enter(&mut command);
        Self::started(&mut command)
    }

    fn command(arguments: &[&str]) -> Command {
        clearstream(&[&["rdma"], arguments, &["--port", "0"]].concat())
    }

    fn started(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(';').next());
        Self { child, address: address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap() }
    }

    fn target(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measured(operation: &str, more: &[&str]) -> Value {
    let document = run(&[&["rdma", operation], SHORT.as_slice(), more].concat()).json();
    assert_eq!((&document["schema"], &document["version"]), (&"clearstream.rdma".into(), &1.into()));
    assert_valid("rdma-summary", &document["summary"]);
    let summary = document["summary"].clone();
    assert_eq!(summary["complete"], true);
    assert!(!summary["results"].as_array().unwrap().is_empty());
    for result in summary["results"].as_array().unwrap() {
        let forward = &result["forward"];
        let count = forward["message_count"].as_u64().unwrap();
        assert!(count > 0, "{result}");
        assert_eq!(forward["bytes"].as_u64().unwrap(), count * result["size_bytes"].as_u64().unwrap());
        assert!(result["near_cpu_ns"].as_u64().unwrap() > 0 && result["far_cpu_ns"].as_u64().unwrap() > 0);
    }
    summary
}

#[test]
fn every_operation_moves_what_was_sent_with_both_kinds_of_progress() {
    for operation in ["send", "write", "read"] {
        for progress in ["inline", "offloaded", "adaptive"] {
            let sizes = ["--size", "1,4096,200000", "--depth", "8", "--queue-pairs", "2", "--verify"];
            let summary = measured(operation, &[&["--progress", progress], sizes.as_slice()].concat());
            assert_eq!(summary["operation"], operation);
            assert_eq!(summary["effective"]["far"]["progress"], progress);
            let results = summary["results"].as_array().unwrap();
            assert_eq!(results.len(), 3);
            for result in results {
                assert_eq!(result["verified"], true, "{operation} {progress}: {result}");
            }
        }
    }
}

#[test]
fn immediate_data_comes_with_each_message_also_with_empty_ones() {
    for (operation, more) in [
        ("send", ["--depth", "8"].as_slice()),
        ("write", &["--both-ways"]),
        ("send", &["--latency"]),
        ("write", &["--latency"]),
    ] {
        let sizes = ["--immediate", "--size", "0,1,20000", "--queue-pairs", "2", "--verify"];
        let summary = measured(operation, &[more, sizes.as_slice()].concat());
        assert_eq!(summary["effective"]["immediate"], true);
        for result in summary["results"].as_array().unwrap() {
            let compared = (&result["immediate_verified"], &result["verified"]);
            assert_eq!(compared, (&true.into(), &true.into()), "{operation} {more:?}: {result}");
        }
    }
    let run = run(&["rdma", "write", "--local", "-t", "60ms", "--size", "0", "--immediate"]);
    let text = run.ok();
    for expected in ["Writes with immediate data", "  immediate\n", "ok\n", "messages/s of 0 B"] {
        assert!(text.contains(expected), "\"{expected}\" is not in:\n{text}");
    }
}

#[test]
fn both_directions_at_once_arrive_as_sent() {
    for operation in ["send", "write", "read"] {
        let summary = measured(operation, &["--both-ways", "--size", "20000", "--depth", "8", "--verify"]);
        let result = &summary["results"][0];
        assert_eq!(result["verified"], true, "{operation}: {result}");
        assert!(result["reverse"]["message_count"].as_u64().unwrap() > 0, "{operation}: {result}");
    }
}

#[test]
fn times_of_single_messages_are_in_order_however_they_are_awaited() {
    for (operation, wait) in
        [("send", "poll"), ("send", "sleep"), ("write", "poll"), ("write", "sleep"), ("read", "poll")]
    {
        let how = ["--latency", "--wait", wait, "--size", "1,5000", "-q", "2", "--verify"];
        let summary = measured(operation, &how);
        for result in summary["results"].as_array().unwrap() {
            assert_eq!(result["verified"], true, "{operation} {wait}: {result}");
            let of = |key: &str| result["latency"][key].as_u64().unwrap();
            let order = [of("min_ns"), of("p50_ns"), of("p99_ns"), of("max_ns")];
            assert!(order.is_sorted() && order[0] > 0, "{operation} {wait}: {order:?}");
            assert_eq!(of("sample_count"), result["forward"]["message_count"].as_u64().unwrap());
        }
    }
}

#[test]
fn counted_messages_are_as_many_as_requested() {
    for operation in ["send", "write", "read"] {
        let arguments =
            ["rdma", operation, "--local", "--json", "-n", "37", "-O", "0s", "-q", "3", "--size", "64"];
        let summary = &run(&arguments).json()["summary"];
        assert_eq!(summary["results"][0]["forward"]["message_count"], 3 * 37, "{operation}");
    }
}

#[test]
fn effective_settings_are_the_requested_ones() {
    let summary = measured("write", &["--no-crc", "--markers", "--revision", "1", "--size", "3000"]);
    let effective = &summary["effective"];
    assert_eq!((&effective["crc"], &effective["revision"]), (&false.into(), &1.into()));
    assert_eq!((&effective["markers_sent"], &effective["markers_received"]), (&true.into(), &true.into()));
    let summary = measured("write", &["--outstanding-reads", "3"]);
    let effective = &summary["effective"];
    assert_eq!((&effective["crc"], &effective["revision"]), (&true.into(), &2.into()));
    assert_eq!((&effective["outstanding_reads"], &effective["incoming_reads"]), (&3.into(), &3.into()));
}

#[test]
fn people_see_effective_settings_a_line_per_size_and_the_figure() {
    let run = run(&["rdma", "write", "--local", "-t", "60ms", "--size", "64,4KiB", "--verify"]);
    let text = run.ok();
    for expected in ["in effect", "inline progress", "MPA revision 2", "CRC32C", "4 KiB", "ok", "goodput"] {
        assert!(text.contains(expected), "\"{expected}\" is not in:\n{text}");
    }
    let ping = common::run(&["rdma", "ping", "--local", "--verify", "-v", "-C", "2"]);
    let text = ping.ok();
    for expected in ["ping data: rdma-ping-1: BCDEF", "2 pings of 64 B", "median", "as it was sent"] {
        assert!(text.contains(expected), "\"{expected}\" is not in:\n{text}");
    }
}

#[test]
fn pings_itself_as_two_processes_repeatedly() {
    let server = Server::start(&["ping", "--serve", "--verify"]);
    for (count, size) in [("3", "26"), ("20", "65535")] {
        let ping = ["rdma", "ping", &server.target(), "--count", count, "--size", size, "--verify", "--json"];
        let document = run(&ping).json();
        assert_valid("rdma-ping-summary", &document["summary"]);
        let summary = &document["summary"];
        assert_eq!(summary["round_count"].as_u64().unwrap().to_string(), count);
        assert_eq!((&summary["mismatch_count"], &summary["complete"]), (&0.into(), &true.into()));
    }
}

#[test]
fn a_server_of_pings_ends_with_the_rounds_it_was_started_for() {
    let server = Server::start(&["ping", "--serve", "--count", "5"]);
    let target = server.target();
    run(&["rdma", "ping", &target, "-C", "4"]).ok();
    assert!(alive(server.child.id()), "that was one too few");
    run(&["rdma", "ping", &target, "-C", "5"]).ok();
    eventually(Duration::from_secs(10), "the server ends", || !alive(server.child.id()));
}

#[test]
fn one_server_serves_pings_and_measurements() {
    let far = Server::start(&["serve"]);
    let target = far.target();
    run(&["rdma", "ping", &target, "--verify"]).ok();
    run(&["rdma", "send", &target, "-n", "10", "-O", "0s"]).ok();
    run(&["rdma", "read", &target, "--latency", "-n", "10", "-O", "0s"]).ok();
}

#[test]
fn the_exchange_is_byte_for_byte_that_of_captured_rpings() {
    for (capture, crc) in [("siw", false), ("siw-crc", true)] {
        let server = Server::start(&["ping", "--serve", "--once"]);
        let recorder = exchange::Recorder::before(server.address);
        let target = recorder.address.to_string();
        let mut ping = vec!["rdma", "ping", &target, "--count", "2", "--size", "256"];
        if !crc {
            ping.push("--no-crc");
        }
        run(&ping).ok();
        let path = format!("{}/../../fixtures/iwarp/{capture}.pcap", env!("CARGO_MANIFEST_DIR"));
        let captured = pcap::streams(path.as_ref())
            .into_iter()
            .find(|stream| stream.sent[0].len() > 500)
            .expect("rping's conversation is the first that came about");
        let ours = recorder.streams();
        for (side, name) in ["client", "server"].into_iter().enumerate() {
            let [ours, theirs] =
                [&ours[side], &captured.sent[side]].map(|stream| exchange::comparable(stream, crc));
            assert_eq!(ours.len(), theirs.len(), "{capture}: frames of the {name}");
            for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(ours, theirs, "{capture}: frame {number} of the {name}");
            }
        }
    }
}

#[test]
fn rejects_invalid_options_before_connecting() {
    let refused = |arguments: &[&str], expected: &[&str]| {
        run(&[&["rdma"], arguments].concat()).refused(2, expected);
    };
    refused(&["write", "--local", "--size", "0"], &["0B", "1 B to 1 GiB"]);
    refused(&["read", "--local", "--immediate"], &["a Read has no immediate data", "--immediate"]);
    refused(&["send", "--local", "-q", "0"], &["0 queue pairs", "1 to 1024"]);
    refused(&["read", "--local", "--revision", "3"], &["revision 3", "1 or 2"]);
    refused(&["write", "--local", "-q", "1000", "--size", "8MiB"], &["choose fewer"]);
    refused(&["write", "--local", "--inline", "1MiB"], &["--inline 1MiB"]);
    refused(&["write", "--local", "--core", "4095"], &["core 4095"]);
    refused(&["write", "--local", "--remote-core", "4095"], &["core 4095"]);
    refused(&["write"], &["--local", "rdma serve"]);
    refused(&["ping", "--local", "--size", "25"], &["26 to 65535"]);
    refused(&["ping", "--local", "--once"], &["--serve"]);
    refused(&["ping", "--serve", "--size", "70000"], &["26 to 65535"]);
    run(&["rdma", "send", "192.0.2.1", "--perftest", "--immediate"]).refused_by_usage("--immediate");
    run(&["rdma", "write", "--local", "--size", "big"]).refused_by_usage("`all`");
    run(&["rdma", "send", "--local", "--latency", "--both-ways"]).refused_by_usage("--both-ways");
}

#[test]
fn a_wrong_peer_is_reported_with_its_problem() {
    // No listener: a port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    run(&["rdma", "write", &free]).refused(3, &["rdma serve"]);
    run(&["rdma", "ping", &free]).refused(3, &["rping"]);
    run(&["rdma", "ping", "nowhere.invalid"]).refused(3, &["nowhere.invalid"]);

    // Another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let web = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
    });
    run(&["rdma", "ping", &target]).refused(4, &["MPA"]);
    web.join().unwrap();

    // An rping, which accepts without private data (its captured reply).
    let path = format!("{}/../../fixtures/iwarp/siw-crc.pcap", env!("CARGO_MANIFEST_DIR"));
    let captured = pcap::streams(path.as_ref()).into_iter().find(|stream| stream.sent[0].len() > 500);
    let reply = captured.unwrap().sent[1][..24].to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let rping = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = [0; 20];
        socket.read_exact(&mut request).unwrap();
        socket.write_all(&reply).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    run(&["rdma", "write", &target]).refused(4, &["not the protocol of `clearstream rdma serve`"]);
    rping.join().unwrap();

    // Only pings, and a listener that is there already.
    let pings = Server::start(&["ping", "--serve"]);
    let target = pings.target();
    run(&["rdma", "write", &target]).refused(4, &["only pings", "rdma serve"]);
    let port = pings.address.port().to_string();
    run(&["rdma", "serve", "--port", &port]).refused(4, &["cannot listen", &target]);
}

#[test]
fn one_test_at_a_time() {
    let far = Server::start(&["serve"]);
    let target = far.target();
    let long = ["rdma", "write", &target, "-t", "30s", "-O", "0s", "--wait", "sleep"];
    let mut first = clearstream(&long).spawn().unwrap();
    connected(&mut first);
    let busy = || run(&["rdma", "write", &target, "-n", "1", "-O", "0s"]);
    busy().refused(4, &["busy", "try again later"]);
    signal(first.id(), "INT");
    let first = finish(first, Duration::from_secs(10));
    assert_eq!(first.code(), 130, "{}", first.stderr);
    assert!(first.stdout.contains("ended early") && first.stdout.contains("goodput"), "{}", first.stdout);
    eventually(Duration::from_secs(10), "the peer is free", || busy().status.code() == Some(0));
}

/// Waits for the first line, which has the effective settings.
fn connected(near: &mut Child) {
    let mut line = String::new();
    BufReader::new(near.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("in effect"), "{line}");
}

#[test]
fn the_first_ctrl_c_ends_it_while_the_peer_is_silent() {
    let interrupted = |near: Child| {
        signal(near.id(), "INT");
        // Left alone it would fail with a timeout after some seconds.
        finish(near, Duration::from_secs(30)).refused(130, &["interrupted", "had not responded"]);
    };
    for what in ["ping", "write"] {
        // Takes the connection and the request, and never replies.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = silent.local_addr().unwrap().to_string();
        let near = clearstream(&["rdma", what, &target]).spawn().unwrap();
        let (mut taken, _) = silent.accept().unwrap();
        taken.read_exact(&mut [0; 20]).unwrap();
        interrupted(near);

        // Not even takes it: one connection waits there, and no more may.
        rustix::net::listen(&silent, 0).unwrap();
        let _first = TcpStream::connect(&target).unwrap();
        let near = clearstream(&["rdma", what, &target]).spawn().unwrap();
        let port = format!(":{:04X} 02 ", silent.local_addr().unwrap().port());
        eventually(Duration::from_secs(10), "it tries to connect (proc_net_tcp(5): SYN_SENT)", || {
            std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&port)
        });
        interrupted(near);
    }
}

#[test]
fn the_peer_dies_and_leaves_one_clear_line() {
    for more in [["--depth", "4"].as_slice(), &["--latency"]] {
        let mut far = Server::start(&["serve"]);
        let target = far.target();
        let arguments = [&["rdma", "send", &target, "-t", "30s", "--wait", "sleep"], more].concat();
        let mut near = clearstream(&arguments).spawn().unwrap();
        connected(&mut near);
        far.child.kill().unwrap();
        far.child.wait().unwrap();
        let near = finish(near, Duration::from_secs(30));
        near.refused(6, &["lost"]);
    }
}

#[test]
fn a_local_server_ends_with_its_client() {
    let mut near =
        clearstream(&["rdma", "write", "--local", "-t", "30s", "--wait", "sleep"]).spawn().unwrap();
    let mut seen = String::new();
    BufReader::new(near.stdout.as_mut().unwrap()).read_line(&mut seen).unwrap();
    let far = children(near.id());
    assert_eq!(far.len(), 1);
    near.kill().unwrap();
    near.wait().unwrap();
    eventually(Duration::from_secs(10), "the peer ends", || !alive(far[0]));
}
