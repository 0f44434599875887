//! Samples compared with the kernel and iproute2.

use std::{net::TcpListener, process::Command};

use crate::common::{measure, measure_with, peers, short};
use clearstream_flow::FlowEvent;
use clearstream_schema::{
    BitRate, ByteCount, CoreList, TimeSpan,
    flow::{Direction, FlowConfig, Protocol},
};
use clearstream_testkit::listening::free_ports;

/// Output of `ss` for the connection between two ports, from the first one's side.
fn ss(options: &str, local: u16, remote: u16) -> String {
    let filter = format!("sport = :{local} and dport = :{remote}");
    let output = Command::new("ss").args([options, &filter]).output().expect("iproute2 is installed");
    String::from_utf8(output.stdout).unwrap()
}

/// The number after `key` in the output of `ss`.
fn number(text: &str, key: &str) -> Option<u64> {
    let digits: String = text.split_once(key)?.1.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn port(address: &str) -> u16 {
    address.rsplit(':').next().unwrap().parse().unwrap()
}

#[test]
fn a_maximum_segment_size_matches_ss() {
    let config = FlowConfig { mss: Some(ByteCount(1000)), ..short() };
    let (mut client, mut server) = peers();
    let (mut ports, mut seen) = (None, None);
    let (summary, _) = measure_with(&mut client, &mut server, &config, |event| match (&event, ports) {
        (FlowEvent::Ready { client, .. }, _) => {
            ports = Some((port(&client.flows[0].local), port(&client.flows[0].remote)));
        }
        (FlowEvent::Interval(_), Some((source, destination))) if seen.is_none() => {
            seen = Some((ss("-tmiHn", source, destination), ss("-tmiHn", destination, source)));
        }
        _ => {}
    })
    .unwrap();
    let (from, to) = seen.unwrap();
    // Less the 12 bytes of the time stamps (RFC 7323 appendix A), where enabled.
    for text in [&from, &to] {
        assert!(matches!(number(text, " mss:"), Some(988 | 1000)), "{text}");
    }
    let segment = summary.client_settings.flows[0].segment_bytes;
    assert_eq!(Some(segment), number(&from, " mss:"));
}

#[test]
fn fixed_ports_and_window_match_ss() {
    let [source, destination] = free_ports();
    let config = FlowConfig {
        source_port: Some(source),
        destination_port: Some(destination),
        window: Some(ByteCount(256 << 10)),
        congestion_control: Some("reno".to_owned()),
        pacing: Some(BitRate(2_000_000_000)),
        ..short()
    };
    let (mut client, mut server) = peers();
    // Repeated with the same ports: no connection is left in TIME_WAIT.
    for _ in 0..2 {
        let mut seen = None;
        let (summary, _) = measure_with(&mut client, &mut server, &config, |event| {
            if matches!(event, FlowEvent::Interval(_)) && seen.is_none() {
                seen = Some((ss("-tmiHn", source, destination), ss("-tmiHn", destination, source)));
            }
        })
        .unwrap();
        let (from, to) = seen.unwrap();
        let (client, server) = (&summary.client_settings.flows[0], &summary.server_settings.flows[0]);
        assert_eq!((port(&client.local), port(&client.remote)), (source, destination));
        assert_eq!(number(&from, ",tb"), Some(client.send_buffer_bytes), "{from}");
        assert_eq!(number(&to, ",rb"), Some(server.receive_buffer_bytes), "{to}");
        assert_eq!(client.send_buffer_bytes, 512 << 10, "socket(7): the kernel doubles it");
        assert_eq!(client.congestion_control.as_deref(), Some("reno"));
        assert!(from.contains("reno"), "{from}");
        assert_eq!(client.pacing_rate_bps, Some(2_000_000_000));
        assert!(summary.goodput_bps < 2.2e9, "paced: {}", summary.goodput_bps);
    }
}

#[test]
fn a_window_above_the_cap_names_the_sysctl() {
    let cap: u64 = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let (summary, _) = measure(&FlowConfig { window: Some(ByteCount(cap * 4)), ..short() }).unwrap();
    assert_eq!(summary.server_settings.flows[0].receive_buffer_bytes, cap * 2, "capped, then doubled");
    for sysctl in ["net.core.rmem_max", "net.core.wmem_max"] {
        let names_the_cap = |notice: &clearstream_schema::notice::Notice| {
            notice.id == "window-capped" && notice.message.contains(sysctl)
        };
        assert!(summary.notices.iter().any(names_the_cap), "{sysctl}: {:?}", summary.notices);
    }
}

#[test]
fn root_forces_a_window_above_the_cap() {
    let cap: u64 = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let config = FlowConfig { window: Some(ByteCount(cap * 3)), force_buffers: true, ..short() };
    let (summary, _) = measure(&config).unwrap();
    assert_eq!(summary.server_settings.flows[0].receive_buffer_bytes, cap * 6);
    assert!(summary.notices.iter().all(|notice| notice.id != "window-capped"));
}

#[test]
fn counters_of_the_socket_match_ss() {
    let mut ports = None;
    let mut pairs = Vec::new();
    let (mut client, mut server) = peers();
    measure_with(&mut client, &mut server, &short(), |event| match event {
        FlowEvent::Ready { client, .. } => {
            let flow = &client.flows[0];
            ports = Some((port(&flow.local), port(&flow.remote)));
        }
        FlowEvent::Interval(interval) => {
            let (local, remote) = ports.unwrap();
            let text = ss("-tiHn", local, remote);
            let info = interval.client.flows[0].tcp.clone().unwrap();
            pairs.push((info, text));
        }
        FlowEvent::Notice(_) => {}
    })
    .unwrap();
    // A later reading of ss is never less than the sampler's earlier one, and never more than its next one.
    let mut compared = 0;
    for window in pairs.windows(2) {
        let (before, text) = &window[0];
        let after = &window[1].0;
        let Some(acked) = number(text, "bytes_acked:") else { continue };
        assert!(before.acked_bytes.unwrap() <= acked && acked <= after.acked_bytes.unwrap(), "{text}");
        let resent = text
            .split_once("retrans:")
            .and_then(|(_, rest)| rest.split_once('/')?.1.split(' ').next()?.parse::<u32>().ok());
        let resent = resent.unwrap_or(0);
        assert!(before.total_retransmit_count <= resent && resent <= after.total_retransmit_count, "{text}");
        assert_eq!(number(text, "mss:"), Some(before.send_mss_bytes.into()), "{text}");
        compared += 1;
    }
    assert!(compared > 0, "{pairs:?}");
}

fn udp_receive_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
    let place = lines.next().unwrap().position(|name| name == "RcvbufErrors").unwrap();
    lines.next().unwrap().nth(place).unwrap().parse().unwrap()
}

#[test]
fn lost_datagrams_match_the_drops_of_the_kernel() {
    let before = udp_receive_errors();
    let config = FlowConfig {
        protocol: Protocol::Udp,
        bytes: Some(ByteCount(400_000_000)),
        // The smallest buffer that the kernel grants: it overflows at once.
        receive_buffer: Some(ByteCount(1)),
        datagram: Some(ByteCount(8000)),
        ..short()
    };
    let (summary, intervals) = measure(&config).unwrap();
    let dropped = udp_receive_errors() - before;
    let flows = || intervals.iter().map(|interval| &interval.server.flows[0]);
    let lost: u64 = flows().filter_map(|flow| flow.lost_count).sum();
    let received: u64 = flows().filter_map(|flow| flow.datagram_count).sum();
    assert_eq!(lost + received, 50_000, "every datagram is one or the other");
    assert!(lost > 0 && received > 0, "{lost} of {received}");
    // Other tests may lose datagrams of their own, and one drop of the kernel is a whole batch of coalesced
    // datagrams or a single one.
    assert!(dropped > 0 && lost <= dropped * 8, "{lost} lost, {dropped} dropped");
    let ratio = summary.loss_ratio.unwrap();
    assert!((ratio - lost as f64 / 50_000.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn pinned_threads_stay_and_others_are_reported() {
    let core = clearstream_sys::affinity::allowed_cores().unwrap()[0];
    let pinned = Some(CoreList(vec![core]));
    let config = FlowConfig { sender_cores: pinned.clone(), memory_node: Some(0), flows: 2, ..short() };
    let (summary, intervals) = measure(&config).unwrap();
    for interval in &intervals {
        for flow in &interval.client.flows {
            assert_eq!(flow.sender_core, Some(core));
        }
    }
    assert_eq!(summary.client_settings.flows[1].pinned_core, Some(core));
    assert_eq!(summary.client_settings.flows[1].memory_node, Some(0));
    assert_eq!(summary.server_settings.flows[1].pinned_core, None);
    assert_eq!(summary.seen_cores.len(), 2);
    assert!(summary.seen_cores.iter().all(|(_, sender, receiver)| sender.is_none() && receiver.is_some()));
    // A notice where the scheduler put a receiver on its sender's core for half of the time.
    let together = |flow: usize| {
        let measured = intervals.iter().filter(|interval| !interval.warm_up);
        let (mut shared, mut all) = (0, 0);
        for interval in measured {
            let sender = interval.client.flows[flow].sender_core;
            if let Some((sender, receiver)) = sender.zip(interval.server.flows[flow].receiver_core) {
                all += 1;
                shared += u32::from(sender == receiver);
            }
        }
        all > 0 && shared * 2 >= all
    };
    let has_notice = summary.notices.iter().any(|notice| notice.id == "cores-chosen");
    assert_eq!(has_notice, together(0) || together(1), "{:?}", summary.notices);
}

#[test]
fn unsupported_settings_are_rejected_in_one_line() {
    let refused = |config: FlowConfig| {
        let error = measure(&config).unwrap_err();
        assert!(error.partial().is_none());
        let failure = error.failure().unwrap().clone();
        assert!(!failure.message.contains('\n'));
        failure.message
    };
    let core = |list: &str| Some(list.parse().unwrap());
    assert!(
        refused(FlowConfig { sender_cores: core("4095"), ..short() }).contains("core 4095 does not exist")
    );
    assert!(refused(FlowConfig { receiver_cores: core("0,4095"), ..short() }).contains("receiver-cores"));
    let message = refused(FlowConfig { congestion_control: Some("nonesuch".into()), ..short() });
    assert!(message.contains("nonesuch") && message.contains("reno"), "{message}");
    let message = refused(FlowConfig { memory_node: Some(900), ..short() });
    assert!(message.contains("node 900"), "{message}");
    let message = refused(FlowConfig { bind_interface: Some("nonesuch0".into()), ..short() });
    assert!(message.contains("nonesuch0"), "{message}");
    let message = refused(FlowConfig { bind_address: Some("192.0.2.1".parse().unwrap()), ..short() });
    assert!(message.contains("192.0.2.1"), "{message}");
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().port();
    let message = refused(FlowConfig { destination_port: Some(taken), ..short() });
    assert!(message.contains(&taken.to_string()) && message.contains("--port"), "{message}");
}

#[test]
fn a_bursty_flow_pauses() {
    let config = FlowConfig {
        burst_flows: 1,
        burst_on: TimeSpan::from_millis(10),
        burst_off: TimeSpan::from_millis(490),
        flows: 2,
        duration: TimeSpan::from_millis(2000),
        direction: Direction::Reverse,
        ..short()
    };
    let (_, intervals) = measure(&config).unwrap();
    let idle_samples = |flow: usize| {
        intervals.iter().filter(|interval| interval.client.flows[flow].received_bytes == 0).count()
    };
    // A busy machine may take longer to read the data of a burst.
    assert!(idle_samples(1) >= 4, "idle for 490 of every 500 ms, seen every 100 ms");
    assert!(idle_samples(0) < idle_samples(1), "the other flow does not pause");
}
