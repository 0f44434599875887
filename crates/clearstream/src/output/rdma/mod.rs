//! RDMA for people: effective settings, a line per size, and what to know; pings,
//! and what a server has done.

pub mod server;

use clearstream_rdma::rping;
use clearstream_schema::rdma::{
    PingSummary, RdmaConfig, RdmaEffective, RdmaLatency, RdmaOperation, RdmaProgress, RdmaRate, RdmaResult,
    RdmaSide, RdmaSummary, RdmaWait,
};

use super::{
    Paint,
    quantity::{bytes, rate, time},
};

/// What is in effect, before the first line.
pub fn settings(operation: RdmaOperation, config: &RdmaConfig, effective: &RdmaEffective) -> String {
    let what = match (operation, effective.immediate) {
        (RdmaOperation::Send, false) => "Sends into posted receives",
        (RdmaOperation::Send, true) => "Sends with immediate data into posted receives",
        (RdmaOperation::Write, false) => "Writes into the peer's memory",
        (RdmaOperation::Write, true) => "Writes with immediate data into the peer's memory",
        (RdmaOperation::Read, _) => "Reads out of the peer's memory",
    };
    let pairs = if config.queue_pairs == 1 { "queue pair" } else { "queue pairs" };
    let flow = match (config.latency, config.both_ways) {
        (true, _) => "one message at a time".to_owned(),
        (_, true) => format!("{} in flight on each, in both directions", config.depth),
        _ => format!("{} in flight on each", config.depth),
    };
    let markers = match (effective.markers_sent, effective.markers_received) {
        (false, false) => "no markers",
        (true, true) => "markers in both directions",
        (true, false) => "markers sent",
        (false, true) => "markers received",
    };
    format!(
        "{what}: {} {pairs}, {flow}; in effect:\n  near {}, {}\n  far  {}, {}\n  MPA revision {}, {}, {markers}, \
         {} outstanding Reads, FPDUs of {} bytes",
        config.queue_pairs,
        effective.near.address,
        side(&effective.near),
        effective.far.address,
        side(&effective.far),
        effective.revision,
        if effective.crc { "CRC32C" } else { "no CRC" },
        effective.outstanding_reads,
        effective.mulpdu_bytes,
    )
}

fn side(side: &RdmaSide) -> String {
    let progress = match side.progress {
        Some(RdmaProgress::Inline) => "inline progress",
        Some(RdmaProgress::Offloaded) => "offloaded progress",
        Some(RdmaProgress::Adaptive) => "adaptive progress",
        None => return "a program of perftest".to_owned(),
    };
    let wait = match side.wait {
        Some(RdmaWait::Poll) => "polling",
        Some(RdmaWait::Sleep) => "sleeping for completions",
        None => "wait mode unknown",
    };
    let core = side.core.map_or_else(|| "no core requested".to_owned(), |core| format!("core {core}"));
    format!("{progress}, {wait}, {core}")
}

/// Heading over the lines.
pub fn heading(config: &RdmaConfig) -> String {
    let figures = if config.latency {
        "    messages      median        99 %         min         max"
    } else if config.both_ways {
        "    messages     goodput  messages/s         back  messages/s"
    } else {
        "    messages     goodput  messages/s"
    };
    let verified = if config.verify { "  content" } else { "" };
    let immediate = if config.immediate { "  immediate" } else { "" };
    format!("      size{figures}   CPU near    CPU far{verified}{immediate}")
}

/// One size, one line.
pub fn row(config: &RdmaConfig, result: &RdmaResult) -> String {
    let figures = match (&result.latency, &result.reverse) {
        (Some(latency), _) => latency_figures(latency),
        (None, None) => rate_figures(&result.forward),
        (None, Some(back)) => {
            format!(
                "{} {:>12}  {:>10}",
                rate_figures(&result.forward),
                rate(back.goodput_bps),
                per_second(back)
            )
        }
    };
    let cores = |cpu_ns: u64| format!("{:.2} cores", cpu_ns as f64 / result.forward.elapsed_ns.max(1) as f64);
    let compared = |is_compared, outcome, width| match (is_compared, outcome) {
        (true, Some(true)) => format!("{:>width$}", "ok"),
        (true, _) => format!("{:>width$}", "WRONG"),
        (false, _) => String::new(),
    };
    let verified = compared(config.verify, result.verified, 9);
    let immediate = compared(config.immediate, result.immediate_verified, 11);
    format!(
        "{:>10}{:>12}{figures} {:>10} {:>10}{verified}{immediate}",
        bytes(result.size_bytes),
        result.forward.message_count,
        cores(result.near_cpu_ns),
        result.far_cpu_ns.map_or_else(|| "-".to_owned(), cores),
    )
}

fn latency_figures(latency: &RdmaLatency) -> String {
    format!(
        "{:>12}{:>12}{:>12}{:>12}",
        time(latency.p50_ns),
        time(latency.p99_ns),
        time(latency.min_ns),
        time(latency.max_ns)
    )
}

fn rate_figures(figures: &RdmaRate) -> String {
    format!("{:>12}{:>12}", rate(figures.goodput_bps), per_second(figures))
}

/// `3.20 M`, with the significant digits.
fn per_second(figures: &RdmaRate) -> String {
    match figures.messages_per_second {
        count if count >= 1e6 => format!("{:.2} M", count / 1e6),
        count if count >= 1e3 => format!("{:.1} k", count / 1e3),
        count => format!("{count:.1}"),
    }
}

/// What to know once all sizes are done.
pub fn ending(summary: &RdmaSummary, paint: Paint) -> String {
    let mut lines = Vec::new();
    if let Some(best) = best(summary) {
        lines.push(paint.figure(&best));
    }
    if !summary.complete {
        lines.push("test ended early".to_owned());
    }
    for notice in &summary.notices {
        lines.push(paint.warning(&format!("note: {}", notice.message)));
    }
    lines.join("\n")
}

/// The figure of the test: the best of all sizes.
fn best(summary: &RdmaSummary) -> Option<String> {
    if summary.requested.latency {
        let found = summary.results.iter().filter_map(|result| Some((result, result.latency.as_ref()?)));
        let (result, latency) = found.min_by_key(|(_, latency)| latency.p50_ns)?;
        let of = match summary.operation {
            RdmaOperation::Read => "a Read of",
            RdmaOperation::Send | RdmaOperation::Write => "half a round trip of",
        };
        return Some(format!("latency {}: {of} {}", time(latency.p50_ns), bytes(result.size_bytes)));
    }
    let best =
        summary.results.iter().max_by(|a, b| a.forward.goodput_bps.total_cmp(&b.forward.goodput_bps))?;
    if best.size_bytes == 0 {
        let back =
            best.reverse.as_ref().map_or_else(String::new, |back| format!(" and {} back", per_second(back)));
        return Some(format!("{}{back} messages/s of 0 B", per_second(&best.forward)));
    }
    let back = best
        .reverse
        .as_ref()
        .map_or_else(String::new, |back| format!(" and {} back", rate(back.goodput_bps)));
    Some(format!(
        "goodput {}{back} with messages of {}",
        rate(best.forward.goodput_bps),
        bytes(best.size_bytes)
    ))
}

/// A finished ping.
pub fn ping(summary: &PingSummary, paint: Paint) -> String {
    let mut lines = vec![format!(
        "{} ping{} of {} to {}: connected in {}, MPA revision {}, {}",
        summary.round_count,
        if summary.round_count == 1 { "" } else { "s" },
        bytes(summary.requested.size_bytes()),
        summary.far,
        time(summary.connect_ns),
        summary.revision,
        if summary.crc { "CRC32C" } else { "no CRC" },
    )];
    if let Some(round) = &summary.round {
        lines.push(format!(
            "round (2 Sends in each direction, Read, Write): median {}, 99 % {}, min {}, max {}",
            paint.figure(&time(round.p50_ns)),
            time(round.p99_ns),
            time(round.min_ns),
            time(round.max_ns)
        ));
    }
    match summary.mismatch_count {
        Some(0) => lines.push("every ping came back as it was sent".to_owned()),
        Some(count) => lines.push(paint.warning(&format!("{count} pings came back changed"))),
        None => {}
    }
    lines.join("\n")
}

/// The text of a ping, as rping shows it.
pub fn ping_text(text: &[u8]) -> String {
    format!("ping data: {}", printable_ping(text))
}

/// The printable characters of the text of a ping.
pub fn printable_ping(text: &[u8]) -> String {
    let text = &text[..rping::echo_length(text)];
    text.iter().filter(|byte| (b' '..=b'~').contains(*byte)).map(|byte| *byte as char).collect()
}
