//! Streaming I/O for people: a line per phase as soon as it is measured, then statistics and what to know.

use clearstream_schema::{
    human,
    storage::{
        ClockMethod, RankSpan, StorageClock, StorageLatency, StreamConfig, StreamPoint, StreamShare,
        StreamSummary, host_names,
    },
};

use super::{Paint, quantity::count, table::or_dash};

const MIB: f64 = 1_048_576.0;

/// What is measured, by so many ranks, and the heads of the columns.
pub fn head(config: &StreamConfig, ranks: u64) -> String {
    let files = if config.file_per_process { "a file per rank" } else { "one shared file" };
    format!(
        "{files} in {}: {} by {}{}, transfers of {}\n{:>4} {:<5} {:>10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9}",
        config.directory,
        human::bytes(config.transfer_count().saturating_mul(config.transfer.0).saturating_mul(ranks)),
        count(ranks, "rank"),
        on_hosts(config.hosts.as_deref()),
        human::bytes(config.transfer.0),
        "iter",
        "phase",
        "MiB/s",
        "calls/s",
        "median",
        "99 %",
        "longest",
        "total",
        "own span",
    )
}

/// A phase.
pub fn row(point: &StreamPoint) -> String {
    let latency = |of: fn(StorageLatency) -> u64| or_dash(point.latency.map(|found| human::time(of(found))));
    // Of fewer samples it would be the longest.
    let p99 = point.latency.filter(|latency| latency.sample_count >= 100);
    let mut text = format!(
        "{:>4} {:<5} {:>10} {:>9.0} {:>8} {:>8} {:>8} {:>8} {:>9}",
        point.iteration,
        point.phase.name(),
        mebibytes(point.bandwidth_bps),
        point.operations_per_second,
        latency(|latency| latency.p50_ns),
        or_dash(p99.map(|latency| human::time(latency.p99_ns))),
        latency(|latency| latency.max_ns),
        human::time(point.total_ns),
        own_spans(point.ranks.iter().map(|rank| rank.span), point.total_ns),
    );
    if let Some(mix) = point.mix {
        text.push_str(&share("reads", &mix.read));
        text.push_str(&share("writes", &mix.write));
    }
    if let Some(wall) = point.stonewall {
        text.push_str(&format!(
            "\n     at the stonewall: {} MiB/s, {} in {}",
            mebibytes(wall.bandwidth_bps),
            human::bytes(wall.bytes),
            human::time(wall.time_ns)
        ));
    }
    text
}

/// One direction of a mixed phase, in the columns of its row.
fn share(name: &str, share: &StreamShare) -> String {
    let latency = |of: fn(StorageLatency) -> u64| or_dash(share.latency.map(|found| human::time(of(found))));
    let p99 = share.latency.filter(|latency| latency.sample_count >= 100);
    format!(
        "\n     {name:<6} {:>8} {:>9.0} {:>8} {:>8} {:>8}",
        mebibytes(share.bandwidth_bps),
        share.operations_per_second,
        latency(|latency| latency.p50_ns),
        or_dash(p99.map(|latency| human::time(latency.p99_ns))),
        latency(|latency| latency.max_ns),
    )
}

/// Statistics, and what to know.
pub fn end(summary: &StreamSummary, paint: Paint) -> String {
    let config = &summary.requested;
    let mut lines = Vec::new();
    for of in summary.statistics.iter().filter(|_| config.iterations > 1) {
        lines.push(format!(
            "{}: mean {} MiB/s, {} to {}, standard deviation {}",
            of.phase.name(),
            mebibytes(of.bandwidth_bps.mean),
            mebibytes(of.bandwidth_bps.min),
            mebibytes(of.bandwidth_bps.max),
            mebibytes(of.bandwidth_bps.standard_deviation)
        ));
    }
    if !summary.complete {
        let planned = config.phases().len() * config.iterations as usize;
        lines.push(paint.warning(&format!("partial: {} of {planned} phases", summary.points.len())));
    }
    lines.push(format!("file system: {}", summary.file_system));
    lines.extend(clocks(summary.points.iter().map(|point| (point.clock, point.total_ns))));
    if let Some(folder) = &summary.kept_folder {
        lines.push(format!("files remain in {}/{folder}", config.directory));
    }
    lines.extend(summary.notices.iter().map(|notice| paint.warning(&format!("note: {}", notice.message))));
    lines.join("\n")
}

/// Hosts of an MPI job.
pub(super) fn on_hosts(list: Option<&str>) -> String {
    list.map_or_else(String::new, |list| format!(" on {}", host_names(list).join(", ")))
}

/// Each rank's own span as a part of the whole: the shortest and the longest.
pub(super) fn own_spans(spans: impl Iterator<Item = RankSpan>, total_ns: u64) -> String {
    let of =
        |span: RankSpan| span.end_ns.saturating_sub(span.begin_ns) as f64 * 100.0 / total_ns.max(1) as f64;
    // Those that had nothing to do have no span.
    let parts: Vec<f64> = spans.filter(|span| span.end_ns > 0).map(of).collect();
    let bound = |pick: fn(f64, f64) -> f64| parts.iter().copied().reduce(pick).unwrap_or(0.0).min(100.0);
    format!("{:.0}-{:.0} %", bound(f64::min).floor(), bound(f64::max))
}

/// How clocks of several hosts were joined, with the largest uncertainty of a phase.
pub(super) fn clocks(phases: impl Iterator<Item = (StorageClock, u64)>) -> Option<String> {
    let uncertain = phases.filter(|(clock, _)| clock.method != ClockMethod::OneClock);
    let part = |(clock, total): &(StorageClock, u64)| clock.uncertainty_ns as f64 / (*total).max(1) as f64;
    let (clock, total) = uncertain.max_by(|one, other| part(one).total_cmp(&part(other)))?;
    let how = match clock.method {
        ClockMethod::OneClock => return None,
        ClockMethod::JoinedClocks => "the hosts' clocks, joined by measured offsets",
        ClockMethod::Barriers => "barriers of rank 0",
    };
    Some(format!("times: of {how}, within {} of {}", human::time(clock.uncertainty_ns), human::time(total)))
}

/// Storage is measured in bytes.
fn mebibytes(bps: f64) -> String {
    format!("{:.1}", bps / 8.0 / MIB)
}
