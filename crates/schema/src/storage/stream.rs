//! Results of streaming I/O.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RankSpan, StorageClock, StorageLatency, StorageStatistics, StreamConfig};
use crate::{
    control::Failure,
    notice::Notice,
    outcome::{Axis, Metric, MetricKind, Outcome, Series, SettingValue, Unit},
};

/// Name of the format of [`StreamSummary`].
pub const STORAGE_STREAM_SCHEMA: &str = "clearstream.storage-stream-summary";

/// What a phase does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StreamPhase {
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Writes and reads in turns, by the shares of `mix-reads`.
    Mixed,
}

impl StreamPhase {
    /// As in tables, and in the names of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Mixed => "mixed",
        }
    }

    /// Whether files are written.
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether files are read.
    pub fn reads(self) -> bool {
        self != Self::Write
    }
}

/// A rank's part of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamRank {
    /// Its host.
    pub host: String,
    /// Bytes that it transferred.
    pub bytes: u64,
    /// Time to open the file.
    pub open_ns: u64,
    /// Time of its transfers, fsync included.
    pub transfer_ns: u64,
    /// Time to close the file.
    pub close_ns: u64,
    /// From before its open to behind its close.
    #[serde(default)]
    pub span: RankSpan,
}

/// A phase up to the stonewall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamStonewall {
    /// Bytes of all ranks until then.
    pub bytes: u64,
    /// From the first rank's begin until the last one stood at the wall.
    pub time_ns: u64,
    /// Bits of `bytes` per second of `time_ns`.
    pub bandwidth_bps: f64,
}

/// The transfers of one direction in a phase that mixes them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamShare {
    /// Bytes of all ranks.
    pub bytes: u64,
    /// Transfers of all ranks.
    pub operation_count: u64,
    /// Bits of `bytes` per second of the phase.
    pub bandwidth_bps: f64,
    /// Transfers per second of the phase.
    pub operations_per_second: f64,
    /// Time of its transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<StorageLatency>,
}

/// Both directions of a phase that mixes them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamMix {
    /// What was read.
    pub read: StreamShare,
    /// What was written.
    pub write: StreamShare,
}

/// One phase of an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamPoint {
    /// Iteration, from 0.
    pub iteration: u32,
    /// What was done.
    pub phase: StreamPhase,
    /// Bytes of all ranks.
    pub bytes: u64,
    /// Transfers of all ranks.
    pub operation_count: u64,
    /// From the first rank's begin to the last one's end: open, transfers, fsync and close.
    pub total_ns: u64,
    /// What joined the ranks' clocks.
    #[serde(default)]
    pub clock: StorageClock,
    /// With `wear-out`: what there was when the stonewall's time was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stonewall: Option<StreamStonewall>,
    /// Bits of `bytes` per second of `total_ns`.
    pub bandwidth_bps: f64,
    /// Transfers per second of `total_ns`.
    pub operations_per_second: f64,
    /// Time of single transfers, of all ranks: of a system call, or from submission to completion (`io_uring`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<StorageLatency>,
    /// Of a phase that mixes them: reads and writes apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<StreamMix>,
    /// In the order of ranks.
    pub ranks: Vec<StreamRank>,
}

/// Bandwidth of a phase over the iterations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamStatistics {
    /// The phase.
    pub phase: StreamPhase,
    /// Bandwidth in bits per second.
    pub bandwidth_bps: StorageStatistics,
    /// Mean of the total times.
    pub mean_ns: f64,
}

/// A finished measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Requested configuration.
    pub requested: StreamConfig,
    /// False when it was interrupted or failed: the points are those until then.
    pub complete: bool,
    /// What ended it early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Host of the ranks; absent for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// File system type with its source, of `/proc/self/mountinfo`.
    pub file_system: String,
    /// Folder of the files that remain (`--keep`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_folder: Option<String>,
    /// One per phase, in the order in which they ran.
    pub points: Vec<StreamPoint>,
    /// One per phase that has a point.
    pub statistics: Vec<StreamStatistics>,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

const WRITE: MetricKind = MetricKind::higher("write-bandwidth", Unit::BytesPerSecond);
const READ: MetricKind = MetricKind::higher("read-bandwidth", Unit::BytesPerSecond);
const WRITE_RATE: MetricKind = MetricKind::higher("write-rate", Unit::PerSecond);
const READ_RATE: MetricKind = MetricKind::higher("read-rate", Unit::PerSecond);
const WRITE_P99: MetricKind = MetricKind::lower("write-p99", Unit::Nanoseconds);
const READ_P99: MetricKind = MetricKind::lower("read-p99", Unit::Nanoseconds);
const MIXED: MetricKind = MetricKind::higher("mixed-bandwidth", Unit::BytesPerSecond);
const MIXED_RATE: MetricKind = MetricKind::higher("mixed-rate", Unit::PerSecond);
const MIXED_P99: MetricKind = MetricKind::lower("mixed-p99", Unit::Nanoseconds);
/// Both directions of a mixed phase: bandwidth, rate and latency as of a phase of its own.
const SHARES: [[MetricKind; 3]; 2] = [
    [
        MetricKind::higher("mixed-read-bandwidth", Unit::BytesPerSecond),
        MetricKind::higher("mixed-read-rate", Unit::PerSecond),
        MetricKind::lower("mixed-read-p99", Unit::Nanoseconds),
    ],
    [
        MetricKind::higher("mixed-write-bandwidth", Unit::BytesPerSecond),
        MetricKind::higher("mixed-write-rate", Unit::PerSecond),
        MetricKind::lower("mixed-write-p99", Unit::Nanoseconds),
    ],
];

fn kinds(phase: StreamPhase) -> [MetricKind; 3] {
    match phase {
        StreamPhase::Write => [WRITE, WRITE_RATE, WRITE_P99],
        StreamPhase::Read => [READ, READ_RATE, READ_P99],
        StreamPhase::Mixed => [MIXED, MIXED_RATE, MIXED_P99],
    }
}

/// The name of a phase's headline.
pub fn bandwidth_name(phase: StreamPhase) -> &'static str {
    let [bandwidth, ..] = kinds(phase);
    bandwidth.name
}

impl StreamConfig {
    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        let mut kinds: Vec<[MetricKind; 3]> = self.phases().iter().map(|phase| kinds(*phase)).collect();
        kinds.extend(SHARES.into_iter().filter(|_| self.phases().contains(&StreamPhase::Mixed)));
        (0..3).flat_map(|place| kinds.iter().filter_map(move |of| of.get(place).copied())).collect()
    }
}

/// Statistics of each phase.
pub fn stream_statistics(points: &[StreamPoint]) -> Vec<StreamStatistics> {
    let of = |phase: StreamPhase| {
        let found: Vec<&StreamPoint> = points.iter().filter(|point| point.phase == phase).collect();
        let values: Vec<f64> = found.iter().map(|point| point.bandwidth_bps).collect();
        Some(StreamStatistics {
            phase,
            bandwidth_bps: StorageStatistics::of(&values)?,
            mean_ns: found.iter().map(|point| point.total_ns as f64).sum::<f64>() / found.len() as f64,
        })
    };
    [StreamPhase::Write, StreamPhase::Mixed, StreamPhase::Read].into_iter().filter_map(of).collect()
}

impl StreamSummary {
    /// As the outcome of a trial: means over the iterations, bandwidth of each iteration as series.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let outcome = Outcome {
            complete: self.complete,
            series: self.statistics.iter().map(|of| self.series(of.phase)).collect(),
            settings: vec![
                SettingValue::of("file-system").at("client").effective(Some(self.file_system.as_str())),
            ],
            notices: self.notices.clone(),
            ..Outcome::of(self.metrics())
        };
        outcome.with_detail(STORAGE_STREAM_SCHEMA, 1, self)
    }

    fn of(&self, phase: StreamPhase) -> impl Iterator<Item = &StreamPoint> {
        self.points.iter().filter(move |point| point.phase == phase)
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for statistics in &self.statistics {
            let count = self.of(statistics.phase).count() as f64;
            let mean =
                |value: fn(&StreamPoint) -> f64| self.of(statistics.phase).map(value).sum::<f64>() / count;
            let values = [
                statistics.bandwidth_bps.mean / 8.0,
                mean(|point| point.operations_per_second),
                mean(|point| point.latency.map_or(0.0, |latency| latency.p99_ns as f64)),
            ];
            metrics
                .extend(kinds(statistics.phase).into_iter().zip(values).map(|(kind, value)| kind.of(value)));
        }
        metrics.extend(self.shares());
        metrics
    }

    /// Both directions of mixed phases, means over the iterations.
    fn shares(&self) -> Vec<Metric> {
        let mixes: Vec<StreamMix> = self.points.iter().filter_map(|point| point.mix).collect();
        let of = |(kinds, pick): ([MetricKind; 3], fn(&StreamMix) -> StreamShare)| {
            let mean = |value: fn(StreamShare) -> f64| {
                mixes.iter().map(pick).map(value).sum::<f64>() / mixes.len() as f64
            };
            let values = [
                mean(|share| share.bandwidth_bps / 8.0),
                mean(|share| share.operations_per_second),
                mean(|share| share.latency.map_or(0.0, |latency| latency.p99_ns as f64)),
            ];
            kinds.into_iter().zip(values).map(|(kind, value)| kind.of(value)).collect::<Vec<_>>()
        };
        let picks: [fn(&StreamMix) -> StreamShare; 2] = [|mix| mix.read, |mix| mix.write];
        let all = SHARES.into_iter().zip(picks).filter(|_| !mixes.is_empty());
        all.flat_map(of).collect()
    }

    fn series(&self, phase: StreamPhase) -> Series {
        let [bandwidth, ..] = kinds(phase);
        Series {
            name: bandwidth.name.to_owned(),
            x: Axis::new("iteration", Unit::Count),
            y: Axis::new(bandwidth.name, bandwidth.unit),
            points: self
                .of(phase)
                .map(|point| (f64::from(point.iteration), point.bandwidth_bps / 8.0))
                .collect(),
        }
    }
}
