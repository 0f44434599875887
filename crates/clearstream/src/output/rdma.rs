//! RDMA for people: what is in force, a line per size, and what to know; pings,
//! and what a far end has done.

use clearstream_rdma::{ServerEvent, perftest, rping};
use clearstream_schema::rdma::{
    PingSummary, RdmaConfig, RdmaEffective, RdmaLatency, RdmaOperation, RdmaProgress, RdmaRate, RdmaResult,
    RdmaSide, RdmaSummary, RdmaWait, SizeList,
};

use super::{
    Paint,
    quantity::{bytes, rate, time},
};

/// What is in force, before the first line.
pub fn settings(operation: RdmaOperation, config: &RdmaConfig, effective: &RdmaEffective) -> String {
    let what = match operation {
        RdmaOperation::Send => "Sends into posted receives",
        RdmaOperation::Write => "Writes into the far end's memory",
        RdmaOperation::Read => "Reads out of the far end's memory",
    };
    let pairs = if config.queue_pairs == 1 { "queue pair" } else { "queue pairs" };
    let flow = match (config.latency, config.both_ways) {
        (true, _) => "one message at a time".to_owned(),
        (_, true) => format!("{} in flight on each, both ways", config.depth),
        _ => format!("{} in flight on each", config.depth),
    };
    let markers = match (effective.markers_sent, effective.markers_received) {
        (false, false) => "no markers",
        (true, true) => "markers both ways",
        (true, false) => "markers sent",
        (false, true) => "markers received",
    };
    format!(
        "{what}: {} {pairs}, {flow}; in force:\n  near {}, {}\n  far  {}, {}\n  MPA revision {}, {}, {markers}, \
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
        None => return "a program of perftest".to_owned(),
    };
    let wait = match side.wait {
        Some(RdmaWait::Poll) => "polling",
        Some(RdmaWait::Sleep) => "sleeping for completions",
        None => "waiting in its own way",
    };
    let core = side.core.map_or_else(|| "no core asked for".to_owned(), |core| format!("core {core}"));
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
    format!("      size{figures}   CPU near    CPU far{verified}")
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
    let verified = match (config.verify, result.verified) {
        (true, Some(true)) => "       ok",
        (true, _) => "    WRONG",
        (false, _) => "",
    };
    format!(
        "{:>10}{:>12}{figures} {:>10} {:>10}{verified}",
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

/// `3.20 M`, with as many figures as mean something.
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
            "round (2 Sends each way, Read, Write): median {}, 99 % {}, min {}, max {}",
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
    let text = &text[..rping::echo_length(text)];
    let shown: String =
        text.iter().filter(|byte| (b' '..=b'~').contains(*byte)).map(|byte| *byte as char).collect();
    format!("ping data: {shown}")
}

/// A client's measurement with perftest's protocol.
fn perftest_client(served: &perftest::Served) -> String {
    let pairs = served.queue_pairs;
    let pairs = format!("{pairs} queue pair{}", if pairs == 1 { "" } else { "s" });
    let mut parts = vec![format!("{}, {pairs}", served.program.name())];
    for run in &served.runs {
        let size = bytes(run.bytes / run.message_count.max(1));
        let figure = if served.program.latency {
            String::new()
        } else {
            format!(", {} received", rate(run.goodput_bps))
        };
        parts.push(format!("{} messages of {size}{figure}", run.message_count));
    }
    if let Some(report) = &served.report {
        let goodput = report.rate * 1e6 * report.size as f64 * 8.0;
        parts.push(format!(
            "{} messages of {}, {} as the client counts",
            report.iterations,
            bytes(report.size),
            rate(goodput)
        ));
    }
    parts.join("; ")
}

/// A line of the log of a server of perftest's protocol.
pub fn perftest_event(event: &perftest::ServerEvent) -> String {
    match event {
        perftest::ServerEvent::Served { peer, served } => format!("{peer}: {}", perftest_client(served)),
        perftest::ServerEvent::Failed { peer, error } => format!("{peer}: {error}"),
    }
}

/// Sizes that a client has requested, however many, in a bounded text.
fn sizes(sizes: &SizeList) -> String {
    match sizes.0.len() {
        0..=8 => format!("sizes {sizes}"),
        count => format!("{count} sizes up to {}", bytes(sizes.largest())),
    }
}

/// A line of the log of a server.
pub fn server_event(event: &ServerEvent<'_>) -> String {
    match event {
        ServerEvent::PingText { peer, text } => format!("{peer}: {}", ping_text(text)),
        ServerEvent::PingServed { peer, served } => {
            let wrong = match served.mismatches {
                0 => String::new(),
                count => format!("; {count} were not as rping sends them"),
            };
            format!("{peer}: {} pings of up to {}{wrong}", served.rounds, bytes(served.largest_bytes.into()))
        }
        ServerEvent::Served { peer, served } => {
            let what = match served.operation {
                RdmaOperation::Send => "send",
                RdmaOperation::Write => "write",
                RdmaOperation::Read => "read",
            };
            let kind = if served.config.latency { "latency" } else { "bandwidth" };
            let pairs = served.config.queue_pairs;
            let sizes = sizes(&served.config.size);
            format!("{peer}: {what} {kind}, {sizes}, {pairs} queue pair(s), done")
        }
        ServerEvent::VerbsServed { peer } => format!("{peer}: verbs calls were timed"),
        ServerEvent::Rejected { peer, reason } => format!("{peer}: rejected: {reason}"),
        ServerEvent::Failed { peer, error } => format!("{peer}: {error}"),
    }
}
