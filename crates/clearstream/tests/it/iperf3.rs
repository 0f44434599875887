//! `flow --compat iperf3` and `serve --compat iperf3` against the system's iperf3, and
//! against those that `IPERF3` names, on loopback: figures of both ends agree.

use crate::common::{eventually, run};
use crate::iperf3_programs::{
    LIMIT, OurServer, TheirServer, bytes, each_program, has_sender_threads, our_client, programs,
    their_client,
};
use serde_json::Value;

/// Bytes of the streams that iperf3's server sends on, or does not, as it counted
/// them: it prints before it hears the client's figures.
fn server_sum(document: &Value, sender: bool) -> u64 {
    let streams = document["end"]["streams"].as_array().unwrap();
    let own = streams.iter().filter(|stream| stream["sender"]["sender"] == sender);
    own.map(|stream| stream[if sender { "sender" } else { "receiver" }]["bytes"].as_u64().unwrap()).sum()
}

/// Sums over the streams that iperf3's client sends on, or does not: as both ends
/// report them, (sent, received).
fn stream_sums(document: &Value, sender: bool) -> (u64, u64) {
    let streams = document["end"]["streams"].as_array().unwrap();
    let own = streams.iter().filter(|stream| stream["sender"]["sender"] == sender);
    own.fold((0, 0), |(sent, received), stream| {
        let of = |side: &str| stream[side]["bytes"].as_u64().unwrap();
        (sent + of("sender"), received + of("receiver"))
    })
}

/// Both ends have the same numbers for both ends.
fn assert_tcp_agrees(direction: &Value, (sent, received): (u64, u64)) {
    assert_eq!((bytes(direction, "sent_bytes"), bytes(direction, "received_bytes")), (sent, received));
    assert_tcp(direction);
}

/// What is in flight at the end was sent and not received. Not so with a warm-up,
/// at whose end data is in flight too.
fn assert_received_at_most(direction: &Value) {
    assert!(bytes(direction, "received_bytes") <= bytes(direction, "sent_bytes"), "{direction}");
}

/// Bytes that iperf3's server sent, as we got them and as it printed them: equal, or, where its
/// sender threads outlive the test, apart by the block that each of them ends with.
fn assert_sent_by_their_server(direction: &Value, theirs: &Value) {
    let (ours, printed) = (bytes(direction, "sent_bytes"), server_sum(theirs, true));
    let start = &theirs["start"]["test_start"];
    let last_blocks = bytes(start, "num_streams") * bytes(start, "blksize");
    let most = if has_sender_threads() { last_blocks } else { 0 };
    assert!((printed..=printed + most).contains(&ours), "{ours} and {printed}, blocks of {most}");
    assert!(bytes(direction, "received_bytes") <= ours + most, "{direction}");
}

/// What a direction's streams and all intervals without a warm-up received is what it received.
fn assert_parts_add_up(document: &Value, name: &str) {
    let direction = &document["summary"][name];
    let streams = direction["streams"].as_array().unwrap();
    for key in ["sent_bytes", "received_bytes"] {
        let sum: u64 = streams.iter().map(|stream| bytes(stream, key)).sum();
        assert_eq!(sum, bytes(direction, key), "{key}: {direction}");
    }
    let key = if name == "forward" { "sent_bytes" } else { "received_bytes" };
    let intervals = document["intervals"].as_array().unwrap();
    let flows = intervals.iter().flat_map(|interval| interval["local"]["flows"].as_array().unwrap());
    assert_eq!(flows.map(|flow| bytes(flow, key)).sum::<u64>(), bytes(direction, key), "{document}");
}

fn assert_tcp(direction: &Value) {
    let (sent, received) = (bytes(direction, "sent_bytes"), bytes(direction, "received_bytes"));
    assert!(received > 0 && sent > 0, "{received} of {sent}");
    let goodput = received as f64 * 8e9 / direction["received_ns"].as_f64().unwrap();
    assert!(
        (direction["goodput_bps"].as_f64().unwrap() / goodput - 1.0).abs() < 1e-9,
        "{goodput}: {direction}"
    );
    assert!(direction["retransmit_count"].is_u64(), "the sender counts them: {direction}");
}

const DIRECTIONS: [(&str, &str); 3] = [("forward", ""), ("reverse", "-R"), ("both", "--bidir")];

#[test]
fn tcp_to_their_server_agrees_in_every_direction() {
    each_program(|| {
        for (direction, _) in DIRECTIONS {
            for flows in ["1", "3"] {
                let server = TheirServer::start();
                let arguments = ["-t", "200ms", "-P", flows, "--direction", direction];
                let document = our_client(&server.target(), &arguments).json();
                let theirs = server.output();
                assert!(theirs.get("error").is_none(), "{direction} {flows}: {}", theirs["error"]);
                let summary = &document["summary"];
                assert_eq!((&summary["role"], &summary["complete"]), (&"client".into(), &true.into()));
                assert_eq!(summary["forward"].is_object(), direction != "reverse");
                assert_eq!(summary["reverse"].is_object(), direction != "forward");
                if direction != "reverse" {
                    assert_tcp(&summary["forward"]);
                    assert_parts_add_up(&document, "forward");
                    assert_eq!(bytes(&summary["forward"], "received_bytes"), server_sum(&theirs, false));
                    assert_received_at_most(&summary["forward"]);
                    assert_eq!(summary["forward"]["goodput_source"], "peer");
                    assert_eq!(summary["forward"]["streams"].as_array().unwrap().len().to_string(), flows);
                }
                if direction != "forward" {
                    assert_tcp(&summary["reverse"]);
                    assert_parts_add_up(&document, "reverse");
                    assert_sent_by_their_server(&summary["reverse"], &theirs);
                    assert_eq!(summary["reverse"]["goodput_source"], "this-end");
                }
                assert!(summary["peer"]["cpu_ratio"].as_f64().unwrap() > 0.0);
                assert!(!document["intervals"].as_array().unwrap().is_empty());
                assert!(summary["not_measured"].as_array().unwrap().contains(&"peer-cores".into()));
            }
        }
    });
}

/// What arrived are whole datagrams: those that were expected and are not lost.
fn assert_datagrams(direction: &Value, size: u64) {
    let counted = &direction["datagrams"];
    let (expected, lost) = (bytes(counted, "expected_count"), bytes(counted, "lost_count"));
    assert!(lost < expected / 2, "{direction}");
    let received = bytes(direction, "received_bytes");
    if direction["goodput_source"] == "peer" {
        assert_eq!(received, (expected - lost) * size, "{direction}");
    } else {
        // Our intervals have ended by then, and the count goes on.
        assert!(received.is_multiple_of(size) && received <= (expected - lost) * size, "{direction}");
    }
    assert!(bytes(direction, "sent_bytes") >= expected * size, "{direction}");
}

/// No more was sent than the rate makes of the sender's time, with a second in which a busy machine may
/// have stood still: without pacing loopback carries far more.
fn assert_paced(sent: &Value, direction: &Value, rate_bps: f64) {
    let most = rate_bps / 8.0 * (direction["sent_ns"].as_f64().unwrap() / 1e9 + 1.0);
    assert!(bytes(sent, "sent_bytes") as f64 <= most, "{most}: {direction}");
}

#[test]
fn udp_to_their_server_agrees_in_every_direction() {
    each_program(|| {
        for (direction, _) in DIRECTIONS {
            for flows in ["1", "2"] {
                let server = TheirServer::start();
                let arguments = [
                    "-t",
                    "300ms",
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
                let start = &theirs["start"]["test_start"];
                assert_eq!((&start["target_bitrate"], &start["blksize"]), (&20_000_000.into(), &1400.into()));
                for name in ["forward", "reverse"] {
                    let Some(part) = summary.get(name) else { continue };
                    assert_parts_add_up(&document, name);
                    assert_datagrams(part, 1400);
                    assert!(bytes(&part["datagrams"], "expected_count") > 100, "{part}");
                    part["streams"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .for_each(|stream| assert_paced(stream, part, 20e6));
                }
                // Of ours the first ones send, where any does.
                let sending = if direction == "reverse" { 0 } else { flows.parse().unwrap() };
                for flow in &summary["settings"]["flows"].as_array().unwrap()[..sending] {
                    assert_eq!(flow["pacing_rate_bps"], 20_000_000, "{flow}");
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
    });
}

#[test]
fn tcp_from_their_client_agrees_in_every_direction() {
    each_program(|| {
        let mut server = OurServer::start(&[]);
        for (direction, option) in DIRECTIONS {
            for flows in ["1", "3"] {
                let mut arguments = vec!["-t", "1", "-P", flows];
                // One of both at full speed is enough.
                arguments.extend((flows == "1").then_some(["-b", "200M"]).into_iter().flatten());
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
    });
}

#[test]
fn udp_from_their_client_agrees_in_every_direction() {
    each_program(|| {
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
                    // Counts of ours and of theirs; 2 streams of 20 Mb/s.
                    assert!(expected > 100, "{name} {wide}: {counted}");
                    assert_datagrams(part, 1200);
                    assert_paced(part, part, 40e6);
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
    });
}

#[test]
fn the_warm_up_counts_at_neither_end() {
    each_program(|| {
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
    });
}

#[test]
fn an_amount_of_data_is_sent_and_not_more() {
    each_program(|| {
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
    });
}

#[test]
fn options_of_a_client_are_in_effect_at_the_server() {
    each_program(|| {
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
    });
}

#[test]
fn options_of_ours_are_in_effect_at_their_server() {
    each_program(|| {
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
        assert_eq!(
            (&start["sock_bufsize"], &start["test_start"]["blksize"]),
            (&65_536.into(), &32_768.into())
        );
        assert_eq!(start["test_start"]["tos"], 184);
        assert_eq!(document["summary"]["peer"]["congestion_control"], "reno");
        let reverse = &document["summary"]["reverse"];
        assert_tcp(reverse);
        assert_paced(reverse, reverse, 80e6);
    });
}

#[test]
fn a_clients_wish_for_our_output_is_met_under_our_name() {
    each_program(|| {
        let mut server = OurServer::start(&[]);
        let theirs = their_client(&server.port, &["-t", "1", "--get-server-output"]);
        let text = theirs["server_output_text"].as_str().unwrap();
        assert!(text.starts_with("ClearStream ") && text.contains("received"), "{text}");
        server.summary();
        server.stop();
    });
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
fn people_read_who_reported_what() {
    each_program(|| {
        let server = TheirServer::start();
        let text = run(&["flow", "--compat", "iperf3", &server.target(), "-t", "1s", "-O", "0s"]);
        let shown = text.ok();
        for part in
            ["client to server: goodput", "reported by the peer", "iperf3 program", "cores (its process"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        drop(server.output());
    });
}

/// A path list, as PATH is one; the system's own is always among them.
#[test]
fn further_programs_are_a_path_list() {
    let of = |list: &str| programs(Some(list.into())).len();
    assert_eq!(
        (programs(None).len(), of(""), of("/opt/a/iperf3"), of("/opt/a/iperf3:/b/iperf3")),
        (1, 1, 2, 3)
    );
}
