//! What hosts do now, for people: a line per sample, and a screen that follows.

mod board;
mod page;
mod screen;

pub use board::Board;
pub use screen::{Screen, ScreenEvent};

use clearstream_schema::{
    counters::{CoreCounters, InterfaceCounters},
    live::{LiveConnection, LiveSample, LiveSummary},
};

use super::{
    quantity::{bytes, rate, time},
    table::table,
};

/// A sample in one line.
pub fn line(sample: &LiveSample) -> String {
    // RFC 3339: the time of day stands behind the T.
    let clock = sample.time.get(11..19).unwrap_or(&sample.time);
    let mut parts = vec![format!("{clock} {}", sample.host)];
    for interface in busy_interfaces(sample) {
        parts.push(format!(
            "{} in {} out {}",
            interface.name,
            rate(per_second(interface.receive_bytes * 8, sample)),
            rate(per_second(interface.send_bytes * 8, sample)),
        ));
    }
    let busy: f64 = sample.counters.cores.iter().map(busy_ratio).sum();
    parts.push(format!("cores {busy:.1} of {}", sample.counters.cores.len()));
    if sample.tcp.retransmit_count > 0 {
        parts.push(format!("{} retransmitted", sample.tcp.retransmit_count));
    }
    if let Some(busiest) = sample.connections.first().filter(|one| one.limit != "idle") {
        parts.push(format!(
            "{} {}: {}",
            named(busiest),
            rate(busiest.out_bps.max(busiest.in_bps)),
            busiest.limit
        ));
    }
    parts.join("  ")
}

/// Totals at the end.
pub fn summary(summary: &LiveSummary) -> String {
    let mut rows = Vec::new();
    for host in &summary.hosts {
        for interface in &host.counters.interfaces {
            if interface.receive_packet_count + interface.send_packet_count == 0 {
                continue;
            }
            rows.push(vec![
                host.host.clone(),
                interface.name.clone(),
                bytes(interface.receive_bytes),
                bytes(interface.send_bytes),
                (interface.receive_drop_count + interface.send_drop_count).to_string(),
            ]);
        }
    }
    let mut text = table(&["host", "interface", "received", "sent", "drops"], rows);
    for host in &summary.hosts {
        let gaps = match host.gap_count {
            0 => String::new(),
            count => format!(", {count} missing"),
        };
        text.push_str(&format!(
            "\n{}: {} samples over {}{gaps}",
            host.host,
            host.sample_count,
            time(host.duration_ns)
        ));
    }
    if let Some(folder) = &summary.record {
        text.push_str(&format!("\nrecorded: clearstream report {folder}"));
    }
    text
}

/// Interfaces with traffic, the busiest first.
fn busy_interfaces(sample: &LiveSample) -> Vec<&InterfaceCounters> {
    let total = |one: &InterfaceCounters| one.receive_bytes + one.send_bytes;
    let mut busy: Vec<&InterfaceCounters> =
        sample.counters.interfaces.iter().filter(|one| total(one) > 0).collect();
    busy.sort_by(|one, two| total(two).cmp(&total(one)).then_with(|| one.name.cmp(&two.name)));
    busy
}

/// A difference over the interval as a rate.
fn per_second(count: u64, sample: &LiveSample) -> f64 {
    if sample.interval_ns == 0 { 0.0 } else { count as f64 * 1e9 / sample.interval_ns as f64 }
}

/// Fraction of the time that a core was not idle.
fn busy_ratio(core: &CoreCounters) -> f64 {
    let busy = core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns + core.steal_ns;
    let all = busy + core.idle_ns;
    if all == 0 { 0.0 } else { busy as f64 / all as f64 }
}

/// The program of a connection, else where it goes.
fn named(connection: &LiveConnection) -> String {
    if connection.program.is_empty() { connection.remote.to_string() } else { connection.program.clone() }
}
