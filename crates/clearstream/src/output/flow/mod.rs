//! A flow test for people: effective settings, rows per interval, and at the
//! end the figures with what must be known before believing them. All of it
//! fits 80 columns.

mod rows;

use clearstream_schema::{
    flow::{
        CpuUse, Direction, DirectionSummary, FlowAdaptation, FlowConfig, FlowSettings, FlowSummary,
        InterruptCore, Protocol, ReceiveMethod, SocketSettings, ThreadPlacement,
    },
    probe::LatencyUnderLoad,
    provenance::HostIdentity,
};

use super::{
    Paint,
    quantity::{bytes, count, rate, time},
    table::{cores, table},
};

pub use rows::IntervalTable;

/// Flows whose addresses are shown.
const SHOWN_FLOWS: usize = 8;

/// The names of both ends.
#[derive(Debug, Clone)]
pub struct Ends {
    /// The one that connects.
    pub client: String,
    /// The one that listens.
    pub server: String,
}

impl Ends {
    /// By the names on the command line; an end without one by its host name.
    pub fn of(hosts: &[HostIdentity]) -> Self {
        let name = |role: &str| {
            let host = hosts.iter().find(|host| host.role.as_deref() == Some(role));
            host.map_or_else(
                || role.to_owned(),
                |host| {
                    let named = host.name.as_deref().filter(|name| *name != role);
                    named.unwrap_or(&host.host_name).to_owned()
                },
            )
        };
        Self { client: name("client"), server: name("server") }
    }
}

/// Whether both ends run on one kernel: then the host's CPU is one figure.
fn is_one_machine(client: &FlowSettings, server: &FlowSettings) -> bool {
    client.boot_id.is_some() && client.boot_id == server.boot_id
}

/// Effective settings, before the first interval.
pub fn settings(config: &FlowConfig, ends: &Ends, client: &FlowSettings, server: &FlowSettings) -> String {
    let arrow = match config.direction {
        Direction::Forward => "->",
        Direction::Reverse => "<-",
        Direction::Both => "<->",
    };
    let protocol = match config.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Mptcp => "MPTCP",
    };
    let receiver = match config.receive {
        ReceiveMethod::Discard => " (receiver: discard)",
        _ => "",
    };
    let streams = count(config.flows, &format!("{protocol} stream"));
    let rows = [("client", client), ("server", server)].into_iter().flat_map(|(side, it)| alike(side, it));
    format!(
        "{streams}, {} {arrow} {}{receiver}. Effective settings:\n{}\n{}",
        ends.client,
        ends.server,
        table(
            &["side", "flows", ">send buf", ">recv buf", "cc", ">CPU", ">transfer", ">segment"],
            rows.collect()
        ),
        addresses(client),
    )
}

/// A row for each group of flows whose settings are the same.
fn alike(side: &str, settings: &FlowSettings) -> Vec<Vec<String>> {
    let mut groups: Vec<(Vec<String>, Vec<u32>)> = Vec::new();
    for (flow, socket) in (0u32..).zip(&settings.flows) {
        let cells = cells(socket);
        match groups.iter_mut().find(|(shown, _)| *shown == cells) {
            Some((_, flows)) => flows.push(flow),
            None => groups.push((cells, vec![flow])),
        }
    }
    let row = |(cells, flows): (Vec<String>, Vec<u32>)| {
        [side.to_owned(), cores(&flows)].into_iter().chain(cells).collect()
    };
    groups.into_iter().map(row).collect()
}

fn cells(socket: &SocketSettings) -> Vec<String> {
    vec![
        bytes(socket.send_buffer_bytes),
        bytes(socket.receive_buffer_bytes),
        socket.congestion_control.clone().unwrap_or_else(|| "-".to_owned()),
        socket.pinned_core.map_or_else(|| "not pinned".to_owned(), |core| core.to_string()),
        bytes(socket.transfer_bytes),
        bytes(socket.segment_bytes),
    ]
}

/// Addresses and ports, as the client has them.
fn addresses(client: &FlowSettings) -> String {
    let line = |(flow, socket): (usize, &SocketSettings)| {
        format!("flow {flow}: client {}, server {}", socket.local, socket.remote)
    };
    let mut lines: Vec<String> = client.flows.iter().enumerate().take(SHOWN_FLOWS).map(line).collect();
    let more = client.flows.len().saturating_sub(SHOWN_FLOWS);
    if more > 0 {
        lines.push(format!("and {} more (--json has all addresses)", count(more, "flow")));
    }
    lines.join("\n")
}

/// What the warm-up chose, as options that can be repeated.
fn adaptation(found: &FlowAdaptation) -> String {
    let Some(chosen) = found.chosen else { return format!("warm-up kept the defaults: {}", found.reason) };
    let mut options = vec![format!("--transfer {}", chosen.transfer)];
    options.extend(chosen.receive_low_water.map(|mark| format!("--receive-low-water {mark}")));
    let placement = match chosen.placement {
        ThreadPlacement::Scheduler => "",
        ThreadPlacement::Together => "\nits threads are pinned: both ends of a flow to one core",
        ThreadPlacement::Apart => "\nits threads are pinned: each to a core of its own",
    };
    format!("warm-up: {}, {}{placement}", options.join(" "), found.reason)
}

/// The end: figures first, then what to know.
pub fn summary(summary: &FlowSummary, paint: Paint) -> String {
    let mut lines = vec![headline(summary, paint)];
    if summary.flow_goodput_bps.len() > 1 {
        let each: Vec<String> = summary.flow_goodput_bps.iter().map(|bps| rate(*bps)).collect();
        lines.push(format!("each flow: {}", each.join(", ")));
    }
    for one in &summary.directions {
        lines.extend(direction(one, summary.directions.len() > 1));
    }
    lines.extend(processors(summary));
    lines.extend(summary.adaptation.as_ref().map(adaptation));
    if let Some(zerocopy) = summary.zerocopy {
        lines.push(format!(
            "zero-copy: {} of {} sends were copied by the kernel",
            zerocopy.copied_count, zerocopy.completed_count
        ));
    }
    lines.extend(summary.interrupt_core.as_ref().map(interrupt_core));
    for (flow, sender, receiver) in &summary.seen_cores {
        let core = |core: &Option<u32>| core.map_or_else(|| "-".to_owned(), |core| core.to_string());
        lines.push(format!(
            "flow {flow} was mostly seen on: sender CPU {}, receiver CPU {}",
            core(sender),
            core(receiver)
        ));
    }
    for notice in &summary.notices {
        lines.push(paint.warning(&format!("note: {}", notice.message)));
    }
    lines.join("\n")
}

/// The figure that the command was run for.
pub fn headline(summary: &FlowSummary, paint: Paint) -> String {
    format!(
        "goodput {}{} over {} ({} received{})",
        paint.figure(&rate(summary.goodput_bps)),
        match (&summary.requested.receive, summary.directions.len()) {
            (ReceiveMethod::Discard, _) => " (discard)",
            (_, 2) => ", both directions together,",
            _ => "",
        },
        time(summary.measured_ns),
        bytes(summary.received_bytes),
        match summary.complete {
            true => "",
            false if misses_samples(summary) => ", samples are missing",
            false => ", test ended early",
        },
    )
}

/// TCP or datagram statistics of one direction; its rate where there are two.
fn direction(one: &DirectionSummary, is_one_of_two: bool) -> Vec<String> {
    let label = match one.direction {
        Direction::Reverse => "server to client",
        Direction::Forward | Direction::Both => "client to server",
    };
    let mut lines = Vec::new();
    if is_one_of_two {
        lines.push(format!("{label}: {} ({} received)", rate(one.goodput_bps), bytes(one.received_bytes)));
    }
    let margin = if is_one_of_two { "  " } else { "" };
    if let Some(resent) = one.retransmit_count {
        lines.push(format!("{margin}retransmitted: {}", count(resent, "segment")));
    }
    if let (Some(rtt), Some(least)) = (one.rtt_ns, one.min_rtt_ns) {
        lines.push(format!(
            "{margin}TCP round trip at the sender: median {} (tcpi_rtt), lowest {}",
            time(rtt),
            time(least)
        ));
    }
    if let (Some(received), Some(lost)) = (one.datagram_count, one.lost_count) {
        let share = one.loss_ratio.map_or_else(String::new, |ratio| format!(" ({:.3} %)", ratio * 100.0));
        let reordered = one.reordered_count.unwrap_or(0);
        let jitter = one
            .jitter_ns
            .map_or_else(String::new, |jitter| format!("; jitter {} between sends (RFC 3550)", time(jitter)));
        lines.push(format!(
            "{margin}datagrams: {received} received, {lost} lost{share}, {reordered} reordered{jitter}"
        ));
    }
    lines
}

/// What the test cost, and what else the hosts did.
fn processors(summary: &FlowSummary) -> Vec<String> {
    let cycles = summary.cycles_per_byte_ratio;
    let mut lines = vec![format!(
        "CPU seconds per GB, of the flow threads: client {:.3}, server {:.3}{}",
        summary.client_cpu_seconds_per_gb,
        summary.server_cpu_seconds_per_gb,
        cycles.map_or_else(String::new, |cycles| format!("; {cycles:.2} cycles per byte")),
    )];
    let (Some(client), Some(server)) = (summary.client_cpu, summary.server_cpu) else { return lines };
    let host = |cpu: &CpuUse| {
        let softirq =
            cpu.host_softirq_ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2} in softirqs)"));
        cpu.host_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}{softirq}"))
    };
    lines.push(format!(
        "CPU cores busy: flow threads {:.2} at the client, {:.2} at the server",
        client.threads_ratio, server.threads_ratio
    ));
    lines.push(match is_one_machine(&summary.client_settings, &summary.server_settings) {
        true => format!("  whole host, other programs included: {}", host(&client)),
        false => format!(
            "  whole hosts, other programs included: client {}, server {}",
            host(&client),
            host(&server)
        ),
    });
    lines
}

fn interrupt_core(found: &InterruptCore) -> String {
    let (core, share) = (found.core, found.softirq_share_percent);
    let how = match found.confirmed {
        Some(true) => format!("CPU {core} ({share} % of the NET_RX softirqs, and SO_INCOMING_CPU agrees)"),
        Some(false) => {
            format!("CPU {core} according to SO_INCOMING_CPU; softirq counters disagree ({share} %)")
        }
        None => format!("CPU {core} ({share} % of the NET_RX softirqs)"),
    };
    format!("interrupt core of the receiver: {how}")
}

/// Round trips without and with the flow.
pub fn latency(latency: &LatencyUnderLoad) -> String {
    let row = |name: &str, sample: &clearstream_schema::probe::LatencySample| {
        let range = &sample.range;
        let mut row = vec![name.to_owned(), format!("{:.2} %", sample.loss_ratio * 100.0)];
        row.extend([range.min_ns, range.p50_ns, range.p90_ns, range.p99_ns, range.max_ns].map(time));
        row
    };
    let signed = |ns: i64| {
        let size = time(ns.unsigned_abs());
        if ns < 0 { format!("{size} less") } else { format!("{size} more") }
    };
    format!(
        "UDP round trip beside the flow{}:\n{}\nunder load: median {}, 99 % {}",
        if latency.includes_local_queueing { ", the sender's own queue included" } else { "" },
        table(
            &["", ">loss", ">min", ">median", ">90 %", ">99 %", ">max"],
            vec![row("idle", &latency.idle), row("loaded", &latency.loaded)]
        ),
        signed(latency.added_p50_ns),
        signed(latency.added_p99_ns),
    )
}

/// An agent stood still for part of the test, which ran to its end.
pub fn misses_samples(summary: &FlowSummary) -> bool {
    summary.notices.iter().any(|notice| notice.id == "samples-missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interrupt_core_names_its_sources() {
        let text =
            |confirmed| interrupt_core(&InterruptCore { core: 3, softirq_share_percent: 12, confirmed });
        assert_eq!(
            text(Some(true)),
            "interrupt core of the receiver: CPU 3 (12 % of the NET_RX softirqs, and SO_INCOMING_CPU agrees)"
        );
        assert_eq!(
            text(Some(false)),
            "interrupt core of the receiver: CPU 3 according to SO_INCOMING_CPU; softirq counters disagree (12 %)"
        );
        assert_eq!(text(None), "interrupt core of the receiver: CPU 3 (12 % of the NET_RX softirqs)");
    }
}
