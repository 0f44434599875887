//! A client that writes what a browser would not.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use clearstream_dashboard::{Content, Dashboard};
use clearstream_schema::live::LiveSample;
use serde_json::json;

pub(crate) fn page() -> Dashboard {
    let content = Content::Live { title: "live: <b>dtn1</b>".to_owned() };
    Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap()
}

pub(crate) fn token(page: &Dashboard) -> String {
    page.link().split_once("token=").unwrap().1.to_owned()
}

pub(crate) fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes and reads until the server closes, or an error.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connected(address);
    // The server may close before it has everything.
    let _ = stream.write_all(request);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

/// A request with these lines of its head after the first.
pub(crate) fn request(first: &str, lines: &[&str]) -> Vec<u8> {
    format!("{first} HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n")).into_bytes()
}

/// A reader of the events.
pub(crate) fn reader(page: &Dashboard, lines: &[&str]) -> TcpStream {
    let mut stream = connected(page.address());
    let host = format!("Host: {}", page.address());
    let head = request(&format!("GET /events?token={}", token(page)), &[&[host.as_str()], lines].concat());
    stream.write_all(&head).unwrap();
    stream
}

/// Reads until a text was received.
pub(crate) fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut all, mut buffer) = (String::new(), vec![0; 1 << 16]);
    let mut searched = 0;
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the stream ended before {text:?}: {all}");
        all.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if all[searched..].contains(text) {
            return all;
        }
        // The text may have begun.
        searched = all.floor_char_boundary(all.len().saturating_sub(text.len()));
    }
}

/// A second in which `eth0` received 1.25 GB: 10 Gb/s.
pub(crate) fn sample(number: u32) -> LiveSample {
    let time = format!("2026-11-24T12:{:02}:{:02}Z", number / 60 % 60, number % 60);
    let core = json!({"core": 0, "user_ns": 250_000_000, "system_ns": 0, "softirq_ns": 500_000_000, "irq_ns": 0,
        "idle_ns": 250_000_000, "net_rx_count": 0, "interrupt_count": 0, "softnet_processed_count": 0,
        "softnet_dropped_count": 3, "softnet_squeezed_count": 0});
    let interface = json!({"name": "eth0", "receive_bytes": 1_250_000_000u64, "receive_packet_count": 150_000,
        "receive_error_count": 0, "receive_drop_count": 7, "send_bytes": 125_000, "send_packet_count": 10,
        "send_error_count": 0, "send_drop_count": 0});
    serde_json::from_value(json!({
        "schema": "clearstream.live-sample", "version": 1, "host": "dtn1", "time": time,
        "interval_ns": 1_000_000_000, "counters": {"cores": [core], "interfaces": [interface]},
        "places": [{"core": 0, "node": 0, "package": 0}],
        "tcp": {"sent_segment_count": 0, "received_segment_count": 0, "retransmit_count": 12, "reset_count": 0,
            "receive_error_count": 0, "open_count": 0, "established_count": 4, "memory_bytes": 0},
        "connections": [{"local": "192.0.2.1:5201", "remote": "192.0.2.2:40000", "program": "<img src=x> (17)",
            "out_bps": 0.0, "in_bps": 9.9e9, "rtt_ns": 17_000_000, "retransmit_count": 12,
            "limit": "receiver-window", "sentence": "the window of 6.00 MiB"}],
        "connections_ns": 3_000_000_000u64, "connection_count": 4,
        "paths": [{"network": "storage", "family": "ipv4", "interval_ns": 100_000_000, "targets": [], "installed": true, "heard": true,
            "gateways": [{"name": "gw1", "address": "192.0.2.9", "used": false, "drained": false,
                "neighbour": "failed", "sent_count": 9, "answered_count": 0, "lost_count": 9, "out_count": 1,
                "in_count": 0}]}],
    }))
    .unwrap()
}
