//! A test with an iperf3 program for people: what is in effect at this end, a line
//! per interval, and at the end who reported which figure.

use std::net::SocketAddr;

use clearstream_iperf3::Parameters;
use clearstream_iperf3::document::{
    Iperf3Direction, Iperf3Interval, Iperf3Role, Iperf3Source, Iperf3Summary,
};
use clearstream_schema::flow::{Direction, FlowConfig, FlowSettings, Protocol};

use super::{
    Paint, escaped,
    quantity::{bytes, count, rate, time},
    table::table,
};

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Mptcp => "MPTCP",
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "client to server",
        Direction::Reverse => "server to client",
        Direction::Both => "both directions",
    }
}

/// What is in effect at this end, before the first interval.
pub fn settings(config: &FlowConfig, settings: &FlowSettings) -> String {
    let rows = settings.flows.iter().enumerate().map(|(index, flow)| {
        vec![
            index.to_string(),
            if flow.method.is_some() { "send" } else { "receive" }.to_owned(),
            flow.local.clone(),
            flow.remote.clone(),
            bytes(flow.send_buffer_bytes),
            bytes(flow.receive_buffer_bytes),
            flow.congestion_control.clone().unwrap_or_else(|| "-".to_owned()),
            bytes(flow.segment_bytes),
        ]
    });
    let header = [">flow", "here", "local", "remote", ">send buffer", ">receive buffer", "cc", ">segment"];
    format!(
        "{} {} with an iperf3 server. Effective settings at this end:\n{}\n{}",
        count(config.flows, &format!("{} flow", protocol_name(config.protocol))),
        direction_name(config.direction),
        table(&header, rows.collect()),
        heading(config.protocol),
    )
}

/// Heading over the interval lines.
fn heading(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "         interval       sent   received    lost/datagrams   jitter",
        _ => "         interval       sent   received     retr      rtt      cwnd",
    }
}

/// One interval, one line of at most 80 columns.
pub fn interval(protocol: Protocol, interval: &Iperf3Interval) -> String {
    let or_dash = |bps: Option<f64>| bps.map_or_else(|| "-".to_owned(), rate);
    let mut line = format!(
        "{:>6.2} - {:>6.2} s  {:>9}  {:>9}",
        interval.local.start_ns as f64 / 1e9,
        interval.local.end_ns as f64 / 1e9,
        or_dash(interval.sent_bps),
        or_dash(interval.received_bps),
    );
    if protocol == Protocol::Udp {
        let (lost, jitter) = interval.datagrams.map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |counted| (format!("{}/{}", counted.lost_count, counted.expected_count), time(counted.jitter_ns)),
        );
        line.push_str(&format!("  {lost:>16}  {jitter:>7}"));
    } else {
        let sends = interval.local.flows.iter().filter(|flow| flow.sent_bytes > 0);
        let tcp: Vec<_> = sends.filter_map(|flow| flow.tcp.as_ref()).collect();
        let window: u64 = tcp
            .iter()
            .map(|info| u64::from(info.congestion_window_count) * u64::from(info.send_mss_bytes))
            .sum();
        line.push_str(&format!(
            "  {:>7}  {:>7}  {:>8}",
            interval.retransmit_count.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            tcp.iter().map(|info| info.rtt_ns).max().map_or_else(|| "-".to_owned(), time),
            if tcp.is_empty() { "-".to_owned() } else { bytes(window) },
        ));
    }
    if interval.warm_up {
        line.push_str("  warm-up");
    }
    line
}

/// The end: figures with who reported them, then what to know.
pub fn summary(summary: &Iperf3Summary, paint: Paint) -> String {
    let mut lines = Vec::new();
    for (name, direction) in [("client to server", &summary.forward), ("server to client", &summary.reverse)]
    {
        if let Some(direction) = direction {
            lines.extend(direction_lines(name, direction, paint));
        }
    }
    if !summary.complete {
        lines.push("test ended early, or the peer's results are missing".to_owned());
    }
    let own = summary.cpu_ns as f64 / summary.measured_ns.max(1) as f64;
    let peer = summary.peer.cpu_ratio.map_or_else(
        || "not reported".to_owned(),
        |ratio| format!("{ratio:.2} cores (its process, as it reports)"),
    );
    lines.push(format!("CPU: this end's threads {own:.2} cores; the peer {peer}"));
    let congestion = summary.peer.congestion_control.as_deref().map(escaped);
    if let (Some(name), Iperf3Role::Client) = (congestion, summary.role) {
        lines.push(format!("congestion control of the server: {name}, as it reports"));
    }
    for notice in &summary.notices {
        lines.push(paint.warning(&format!("note: {}", notice.message)));
    }
    lines.join("\n")
}

fn direction_lines(name: &str, direction: &Iperf3Direction, paint: Paint) -> Vec<String> {
    let source = match direction.goodput_source {
        Iperf3Source::ThisEnd => "measured here",
        Iperf3Source::Peer => "reported by the peer",
    };
    let goodput = direction.goodput_bps.map_or_else(|| "not reported".to_owned(), rate);
    // Each end has a clock and a time of its own.
    let amount = |count: Option<u64>, nanos: Option<u64>| match (count, nanos) {
        (Some(count), Some(nanos)) => format!("{} in {}", bytes(count), time(nanos)),
        (Some(count), None) => format!("{} (time not reported)", bytes(count)),
        (None, _) => "not reported".to_owned(),
    };
    let mut lines = vec![format!("{name}: goodput {}, {source}", paint.figure(&goodput))];
    let mut detail = format!(
        "  received {}, sent {}",
        amount(direction.received_bytes, direction.received_ns),
        amount(direction.sent_bytes, direction.sent_ns),
    );
    if let Some(count) = direction.retransmit_count {
        detail.push_str(&format!(", {count} retransmits"));
    }
    lines.push(detail);
    if let (Some(rtt), Some(min)) = (direction.rtt_ns, direction.min_rtt_ns) {
        lines.push(format!("  median smoothed rtt {}, lowest rtt {}", time(rtt), time(min)));
    }
    if let Some(counted) = &direction.datagrams {
        let percent =
            counted.loss_ratio.map_or_else(String::new, |ratio| format!(" ({:.3} %)", ratio * 100.0));
        let late = counted.reordered_count.map_or_else(String::new, |count| format!(", {count} reordered"));
        lines.push(format!(
            "  lost {} of {} datagrams{percent}{late}, jitter {}",
            counted.lost_count,
            counted.expected_count,
            time(counted.jitter_ns)
        ));
    }
    if direction.streams.len() > 1 {
        let each = direction.streams.iter().map(|stream| stream.goodput_bps);
        let each: Vec<String> = each.map(|bps| bps.map_or_else(|| "-".to_owned(), rate)).collect();
        lines.push(format!("  each flow: {}", each.join(", ")));
    }
    lines
}

/// A client's test has begun at this server.
pub fn started(peer: &SocketAddr, parameters: &Parameters) -> String {
    let version = match parameters.version.as_deref().map(escaped) {
        // iperf3 sends a bare number.
        Some(version) if version.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("iperf3 {version}")
        }
        Some(version) => version,
        None => "iperf3".to_owned(),
    };
    format!(
        "{peer} ({version}): {} {}",
        count(parameters.streams, &format!("{} stream", protocol_name(parameters.protocol))),
        direction_name(parameters.direction),
    )
}

#[cfg(test)]
mod tests {
    use clearstream_iperf3::document::Iperf3Datagrams;
    use clearstream_schema::flow::SideInterval;

    use super::*;

    /// Bytes received and sent are those of two ends, each with its own time.
    #[test]
    fn each_amount_has_the_time_of_its_end() {
        let mut one = Iperf3Direction {
            goodput_bps: Some(14e9),
            goodput_source: Iperf3Source::Peer,
            received_bytes: Some(1_793_150_976),
            received_ns: Some(1_020_000_000),
            sent_bytes: Some(1_707_249_664),
            sent_ns: Some(1_000_000_000),
            retransmit_count: Some(3),
            rtt_ns: None,
            min_rtt_ns: None,
            datagrams: None,
            streams: Vec::new(),
        };
        let detail = |one: &Iperf3Direction| direction_lines("", one, Paint::NONE)[1].clone();
        assert_eq!(detail(&one), "  received 1.67 GiB in 1.02 s, sent 1.59 GiB in 1.00 s, 3 retransmits");
        (one.received_bytes, one.received_ns, one.sent_ns) = (None, None, None);
        assert_eq!(detail(&one), "  received not reported, sent 1.59 GiB (time not reported), 3 retransmits");
    }

    #[test]
    fn interval_lines_fit_80_columns() {
        let mut one = Iperf3Interval {
            index: 0,
            warm_up: true,
            sent_bps: Some(123.4e9),
            received_bps: Some(99.9e9),
            retransmit_count: Some(123_456),
            datagrams: None,
            local: SideInterval { end_ns: 3_600_000_000_000, ..SideInterval::default() },
        };
        assert!(interval(Protocol::Tcp, &one).chars().count() <= 80);
        one.datagrams = Some(Iperf3Datagrams {
            expected_count: 10_000_000,
            lost_count: 1_000_000,
            jitter_ns: 15_000,
            ..Iperf3Datagrams::default()
        });
        let line = interval(Protocol::Udp, &one);
        assert!(line.chars().count() <= 80 && line.contains("1000000/10000000"), "{line}");
    }
}
