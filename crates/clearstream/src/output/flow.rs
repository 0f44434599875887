//! A flow test for people: what is in force, a line per interval, and at the
//! end the figures with what must be known before believing them.

use clearstream_schema::{
    counters::CoreCounters,
    flow::{
        Direction, FlowConfig, FlowSettings, FlowSummary, Interval, Protocol, ReceiveMethod, SideInterval,
    },
};

use super::{
    Paint,
    quantity::{bytes, count, rate, time},
    table::table,
};

/// Heading over the interval lines.
pub const INTERVAL_HEADING: &str = "     interval        goodput   retransmits     rtt      cwnd  client CPU (softirq)  server CPU (softirq)";

/// One interval, one line.
pub fn interval(interval: &Interval) -> String {
    let senders =
        interval.client.flows.iter().chain(&interval.server.flows).filter(|flow| flow.sent_bytes > 0);
    let tcp: Vec<_> = senders.filter_map(|flow| flow.tcp.as_ref()).collect();
    let rtt = tcp.iter().map(|info| info.rtt_ns).max();
    let window: u64 =
        tcp.iter().map(|info| u64::from(info.congestion_window_count) * u64::from(info.send_mss_bytes)).sum();
    let lost: u64 =
        interval.client.flows.iter().chain(&interval.server.flows).filter_map(|flow| flow.lost_count).sum();
    let repair = match tcp.as_slice() {
        [] => format!("{lost} lost"),
        infos => infos.iter().map(|info| u64::from(info.total_retransmit_count)).sum::<u64>().to_string(),
    };
    format!(
        "{:>6.2} - {:>6.2} s  {:>11}  {:>11}  {:>7}  {:>8}  {:>20}  {:>20}{}",
        interval.client.start_ns as f64 / 1e9,
        interval.client.end_ns as f64 / 1e9,
        rate(interval.goodput_bps),
        repair,
        rtt.map_or_else(|| "-".to_owned(), time),
        if tcp.is_empty() { "-".to_owned() } else { bytes(window) },
        processors(&interval.client),
        processors(&interval.server),
        if interval.warm_up { "  warm-up" } else { "" },
    )
}

/// Busy cores of the host in this interval, in cores: all and softirq alone.
fn processors(side: &SideInterval) -> String {
    if side.cores.is_empty() {
        return "-".to_owned();
    }
    let wall = side.end_ns.saturating_sub(side.start_ns).max(1) as f64;
    let sum = |of: fn(&CoreCounters) -> u64| side.cores.iter().map(of).sum::<u64>() as f64 / wall;
    let busy = sum(|core| core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns);
    format!("{busy:.2} cores ({:.2})", sum(|core| core.softirq_ns))
}

/// What is in force, before the first interval.
pub fn settings(config: &FlowConfig, client: &FlowSettings, server: &FlowSettings) -> String {
    let receiver = match config.receive {
        ReceiveMethod::Discard => ", receiver: discard",
        _ => "",
    };
    let mut rows = Vec::new();
    for (side, settings) in [("client", client), ("server", server)] {
        for (index, flow) in settings.flows.iter().enumerate() {
            rows.push(vec![
                side.to_owned(),
                index.to_string(),
                flow.local.clone(),
                flow.remote.clone(),
                bytes(flow.send_buffer_bytes),
                bytes(flow.receive_buffer_bytes),
                flow.congestion_control.clone().unwrap_or_else(|| "-".to_owned()),
                flow.pinned_core.map_or_else(|| "scheduler".to_owned(), |core| core.to_string()),
                bytes(flow.transfer_bytes),
                bytes(flow.segment_bytes),
            ]);
        }
    }
    let way = match config.direction {
        Direction::Forward => "client to server",
        Direction::Reverse => "server to client",
        Direction::Both => "both ways",
    };
    let protocol = match config.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Mptcp => "MPTCP",
    };
    format!(
        "{} {way}{receiver}; in force:\n{}",
        count(config.flows, &format!("{protocol} flow")),
        table(
            &[
                "side",
                ">flow",
                "local",
                "remote",
                ">send buffer",
                ">receive buffer",
                "cc",
                ">core",
                ">transfer",
                ">segment"
            ],
            rows
        )
    )
}

/// The end: figures first, then what to know.
pub fn summary(summary: &FlowSummary, paint: Paint) -> String {
    let mut lines = vec![format!(
        "goodput {}{} over {} ({} received{})",
        paint.figure(&rate(summary.goodput_bps)),
        if summary.requested.receive == ReceiveMethod::Discard { " (discard)" } else { "" },
        time(summary.measured_ns),
        bytes(summary.received_bytes),
        match summary.complete {
            true => "",
            false if misses_samples(summary) => ", samples are missing",
            false => ", test ended early",
        },
    )];
    if summary.flow_goodput_bps.len() > 1 {
        let each: Vec<String> = summary.flow_goodput_bps.iter().map(|bps| rate(*bps)).collect();
        lines.push(format!("each flow: {}", each.join(", ")));
    }
    lines.push(format!(
        "CPU seconds per GB: client {:.3}, server {:.3}{}",
        summary.client_cpu_seconds_per_gb,
        summary.server_cpu_seconds_per_gb,
        summary
            .cycles_per_byte_ratio
            .map_or_else(String::new, |cycles| format!("; {cycles:.2} cycles per byte")),
    ));
    if let (Some(rtt), Some(min)) = (summary.rtt_ns, summary.min_rtt_ns) {
        lines.push(format!(
            "rtt {} (lowest {}), {} retransmits",
            time(rtt),
            time(min),
            summary.retransmit_count.unwrap_or(0)
        ));
    }
    if let Some(loss) = summary.loss_ratio {
        lines.push(format!("lost {:.3} % of the datagrams", loss * 100.0));
    }
    if let Some(zerocopy) = summary.zerocopy {
        lines.push(format!(
            "zero-copy: {} of {} sends were copied by the kernel",
            zerocopy.copied_count, zerocopy.completed_count
        ));
    }
    if let Some(found) = &summary.interrupt_core {
        let confirmed = match found.confirmed {
            Some(true) => ", and SO_INCOMING_CPU agrees",
            Some(false) => " by SO_INCOMING_CPU, which the softirq counters do not confirm",
            None => "",
        };
        lines.push(format!(
            "interrupt core of the receiver: {} ({} % of its NET_RX softirqs{confirmed})",
            found.core, found.softirq_share_percent
        ));
    }
    for (flow, sender, receiver) in &summary.seen_cores {
        let core = |core: &Option<u32>| core.map_or_else(|| "-".to_owned(), |core| core.to_string());
        lines.push(format!(
            "flow {flow} was mostly seen on: sender core {}, receiver core {}",
            core(sender),
            core(receiver)
        ));
    }
    for notice in &summary.notices {
        lines.push(paint.warning(&format!("note: {}", notice.message)));
    }
    lines.join("\n")
}

/// An agent stood still for part of the test, which ran to its end.
pub fn misses_samples(summary: &FlowSummary) -> bool {
    summary.notices.iter().any(|notice| notice.id == "samples-missing")
}
