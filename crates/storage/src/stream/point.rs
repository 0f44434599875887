//! The figures of a phase, of what its ranks report.

use clearstream_schema::storage::{
    RankSpan, StorageLatency, StreamMix, StreamPhase, StreamPoint, StreamRank, StreamShare, StreamStonewall,
};

use super::phase::Report;
use crate::{clock::Spans, latency::Latency};

pub(super) fn point(
    iteration: u32,
    phase: StreamPhase,
    transfer: u64,
    reports: Vec<Report>,
    spans: Spans,
) -> StreamPoint {
    let (bytes, count) =
        reports.iter().fold((0, 0), |(bytes, count), report| (bytes + report.bytes, count + report.count));
    let total_ns = spans.total_ns.max(1);
    let seconds = total_ns as f64 / 1e9;
    let writes = || reports.iter().map(|report| &report.latency);
    let reads = || reports.iter().filter_map(|report| report.mixed_reads.as_ref());
    let latency = Latency::of(writes().chain(reads()));
    let share = |latency: Option<StorageLatency>| {
        let count = latency.map_or(0, |latency| latency.sample_count);
        let bytes = count * transfer;
        let (bandwidth_bps, operations_per_second) = (bytes as f64 * 8.0 / seconds, count as f64 / seconds);
        StreamShare { bytes, operation_count: count, bandwidth_bps, operations_per_second, latency }
    };
    let mix = (phase == StreamPhase::Mixed)
        .then(|| StreamMix { read: share(Latency::of(reads())), write: share(Latency::of(writes())) });
    let stonewall = stonewall(&reports, &spans.ranks, transfer);
    let rank = |(report, span): (Report, RankSpan)| StreamRank {
        host: report.host,
        bytes: report.bytes,
        open_ns: report.open_ns,
        transfer_ns: report.transfer_ns,
        close_ns: report.close_ns,
        span,
    };
    StreamPoint {
        iteration,
        phase,
        bytes,
        operation_count: count,
        total_ns,
        clock: spans.clock,
        stonewall,
        bandwidth_bps: bytes as f64 * 8.0 / seconds,
        operations_per_second: count as f64 / seconds,
        latency,
        mix,
        ranks: reports.into_iter().zip(spans.ranks).map(rank).collect(),
    }
}

/// What there was at the stonewall, when all ranks went on from there.
fn stonewall(reports: &[Report], spans: &[RankSpan], transfer: u64) -> Option<StreamStonewall> {
    let walls: Option<Vec<(u64, u64)>> = reports.iter().map(|report| report.at_wall).collect();
    let walls = walls.filter(|walls| !walls.is_empty())?;
    let bytes = walls.iter().map(|(count, _)| count * transfer).sum();
    let time_ns = walls.iter().zip(spans).map(|((_, since), span)| span.begin_ns + since).max()?.max(1);
    Some(StreamStonewall { bytes, time_ns, bandwidth_bps: bytes as f64 * 8e9 / time_ns as f64 })
}
