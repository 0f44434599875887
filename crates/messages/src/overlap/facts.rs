//! Results of a measurement of overlap.

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OverlapConfig, OverlapMethod, OverlapTransport};
use clearstream_schema::{
    mpi::{InterfaceBytes, MpiJob},
    notice::Notice,
    outcome::{Axis, Metric, MetricKind, Outcome, Series, SettingValue, Unit},
};

/// Name of the format of [`OverlapSummary`].
pub const OVERLAP_SUMMARY_SCHEMA: &str = "clearstream.overlap-summary";

/// Part of the highest bandwidth that an interval of work has to keep, for the
/// headline availability.
pub const KEPT_BANDWIDTH_RATIO: f64 = 0.9;

/// Results of one interval of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverlapPoint {
    /// Iterations of work between two polls (polling), or of a cycle (post-work-wait).
    pub work_count: u64,
    /// Polls, or cycles of post, work and wait; warm-up not included.
    pub cycle_count: u64,
    /// Messages that the server's application received, as the server counted them.
    pub server_received_count: u64,
    /// Messages that the client's application received within `elapsed_ns`.
    pub client_received_count: u64,
    /// Time of all cycles at the client.
    pub elapsed_ns: u64,
    /// Time of the same iterations of work without messages.
    pub work_alone_ns: u64,
    /// `work_alone_ns` / `elapsed_ns`: the part of the core that is free for work.
    pub availability_ratio: f64,
    /// Bits of `client_received_count` and `server_received_count` messages per second of
    /// `elapsed_ns`: both directions.
    pub bandwidth_bps: f64,
    /// The same in messages.
    pub message_rate_per_second: f64,
    /// Time to post the windows of all cycles (post-work-wait).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_ns: Option<u64>,
    /// Time of the work of all cycles, beside the messages (post-work-wait).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_ns: Option<u64>,
    /// Time to wait for the messages of all cycles (post-work-wait).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<u64>,
    /// CPU time of the client's agent or rank, all threads / elapsed time.
    pub client_cpu_ratio: f64,
    /// CPU time of the server's agent or rank, all threads / elapsed time.
    pub server_cpu_ratio: f64,
    /// What the network interfaces carried meanwhile (MPI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<InterfaceBytes>,
}

/// What the client measured of one interval of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverlapMeasured {
    /// [`OverlapPoint::work_count`].
    pub work_count: u64,
    /// [`OverlapPoint::cycle_count`].
    pub cycle_count: u64,
    /// [`OverlapPoint::server_received_count`].
    pub server_received_count: u64,
    /// [`OverlapPoint::client_received_count`].
    pub client_received_count: u64,
    /// [`OverlapPoint::elapsed_ns`].
    pub elapsed_ns: u64,
    /// [`OverlapPoint::work_alone_ns`].
    pub work_alone_ns: u64,
    /// Times to post, work and wait.
    pub phases_ns: Option<[u64; 3]>,
    /// CPU time of the client.
    pub client_cpu_ns: u64,
    /// CPU time of the server.
    pub server_cpu_ns: u64,
    /// [`OverlapPoint::interfaces`].
    pub interfaces: Option<InterfaceBytes>,
}

impl OverlapMeasured {
    /// Computes the point, for messages of so many bytes.
    pub fn point(&self, size_bytes: u64) -> OverlapPoint {
        let elapsed = self.elapsed_ns.max(1) as f64;
        let rate = (self.client_received_count + self.server_received_count) as f64 * 1e9 / elapsed;
        let [post_ns, work_ns, wait_ns] = self.phases_ns.map_or([None; 3], |phases| phases.map(Some));
        OverlapPoint {
            work_count: self.work_count,
            cycle_count: self.cycle_count,
            server_received_count: self.server_received_count,
            client_received_count: self.client_received_count,
            elapsed_ns: self.elapsed_ns,
            work_alone_ns: self.work_alone_ns,
            availability_ratio: self.work_alone_ns as f64 / elapsed,
            bandwidth_bps: rate * size_bytes as f64 * 8.0,
            message_rate_per_second: rate,
            post_ns,
            work_ns,
            wait_ns,
            client_cpu_ratio: self.client_cpu_ns as f64 / elapsed,
            server_cpu_ratio: self.server_cpu_ns as f64 / elapsed,
            interfaces: self.interfaces,
        }
    }
}

impl OverlapPoint {
    /// Mean of a time of all cycles.
    pub fn per_cycle(&self, all_ns: u64) -> f64 {
        all_ns as f64 / self.cycle_count.max(1) as f64
    }
}

/// Effective settings of one side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverlapSideSettings {
    /// `SO_SNDBUF` as the kernel reports it, autotuned at the start (tcp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<u64>,
    /// `SO_RCVBUF`, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
    /// Congestion control (tcp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Maximum segment size, `TCP_MAXSEG` (tcp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u32>,
    /// Maximum length of a ULPDU (iwarp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mulpdu_bytes: Option<u64>,
    /// CRC32C over each FPDU (iwarp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc: Option<bool>,
    /// Core that the program's thread is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
}

/// A finished measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverlapSummary {
    /// Requested configuration.
    pub requested: OverlapConfig,
    /// False when it was stopped early: the points are those until then.
    pub complete: bool,
    /// Effective settings of the client.
    pub client: OverlapSideSettings,
    /// Effective settings of the server.
    pub server: OverlapSideSettings,
    /// The MPI job, when ranks of one exchanged the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiJob>,
    /// One per interval of work, ascending.
    pub points: Vec<OverlapPoint>,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

const BANDWIDTH: MetricKind = MetricKind::higher("bandwidth", Unit::BitsPerSecond);
const AVAILABILITY: MetricKind = MetricKind::higher("availability", Unit::Ratio);
const KEPT_WORK: MetricKind = MetricKind::higher("kept-work", Unit::Count);
const CLIENT_CPU: MetricKind = MetricKind::lower("client-cpu", Unit::Ratio);
const SERVER_CPU: MetricKind = MetricKind::lower("server-cpu", Unit::Ratio);

/// A metric of each point.
struct Column {
    kind: MetricKind,
    value: fn(&OverlapPoint) -> Option<f64>,
}

/// Of the point with the headline availability.
const COLUMNS: &[Column] = &[
    Column { kind: AVAILABILITY, value: |point| Some(point.availability_ratio) },
    Column { kind: CLIENT_CPU, value: |point| Some(point.client_cpu_ratio) },
    Column { kind: SERVER_CPU, value: |point| Some(point.server_cpu_ratio) },
    Column {
        kind: MetricKind::lower("post-time", Unit::Nanoseconds),
        value: |point| Some(point.per_cycle(point.post_ns?)),
    },
    Column {
        kind: MetricKind::lower("work-time", Unit::Nanoseconds),
        value: |point| Some(point.per_cycle(point.work_ns?)),
    },
    Column {
        kind: MetricKind::lower("wait-time", Unit::Nanoseconds),
        value: |point| Some(point.per_cycle(point.wait_ns?)),
    },
];

impl OverlapConfig {
    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        let columns = self.columns().iter().map(|column| column.kind);
        [BANDWIDTH].into_iter().chain(columns).chain([KEPT_WORK]).collect()
    }

    fn columns(&self) -> &'static [Column] {
        match self.method {
            OverlapMethod::Polling => COLUMNS.split_at(3).0,
            OverlapMethod::PostWorkWait => COLUMNS,
        }
    }
}

impl OverlapSummary {
    /// The point with the highest bandwidth.
    pub fn best(&self) -> Option<&OverlapPoint> {
        self.points.iter().max_by(|one, other| one.bandwidth_bps.total_cmp(&other.bandwidth_bps))
    }

    /// The point with most work among those that keep [`KEPT_BANDWIDTH_RATIO`] of the highest bandwidth.
    pub fn kept(&self) -> Option<&OverlapPoint> {
        let enough = self.best()?.bandwidth_bps * KEPT_BANDWIDTH_RATIO;
        self.points.iter().filter(|point| point.bandwidth_bps >= enough).max_by_key(|point| point.work_count)
    }

    /// As the outcome of a trial. Bandwidth is the highest of all intervals of work; all other
    /// metrics are those of the largest interval that keeps [`KEPT_BANDWIDTH_RATIO`] of it. The
    /// series `bandwidth` is over the availability, as COMB draws it, all others over the work.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let outcome = Outcome {
            complete: self.complete,
            series: self.series(),
            settings: self.settings(),
            notices: self.notices.clone(),
            ..Outcome::of(self.metrics())
        };
        outcome.with_detail(OVERLAP_SUMMARY_SCHEMA, 1, self)
    }

    fn metrics(&self) -> Vec<Metric> {
        let Some((best, kept)) = self.best().zip(self.kept()) else { return Vec::new() };
        let columns = self.requested.columns().iter();
        let of_kept = columns.filter_map(|column| Some(column.kind.of((column.value)(kept)?)));
        let work = KEPT_WORK.of(kept.work_count as f64);
        [BANDWIDTH.of(best.bandwidth_bps)].into_iter().chain(of_kept).chain([work]).collect()
    }

    fn series(&self) -> Vec<Series> {
        let over_work = |name: &str, unit, value: &dyn Fn(&OverlapPoint) -> Option<f64>| Series {
            name: name.to_owned(),
            x: Axis::new("work", Unit::Count),
            y: Axis::new(name, unit),
            points: self
                .points
                .iter()
                .filter_map(|point| Some((point.work_count as f64, value(point)?)))
                .collect(),
        };
        let mut by_availability: Vec<(f64, f64)> =
            self.points.iter().map(|point| (point.availability_ratio, point.bandwidth_bps)).collect();
        by_availability.sort_by(|one, other| one.0.total_cmp(&other.0));
        let headline = Series {
            name: BANDWIDTH.name.to_owned(),
            x: Axis::new(AVAILABILITY.name, Unit::Ratio),
            y: Axis::new(BANDWIDTH.name, BANDWIDTH.unit),
            points: by_availability,
        };
        let by_work =
            over_work("bandwidth-by-work", BANDWIDTH.unit, &|point: &OverlapPoint| Some(point.bandwidth_bps));
        let columns = self.requested.columns().iter();
        let others = columns.map(|column| over_work(column.kind.name, column.kind.unit, &column.value));
        [headline, by_work].into_iter().chain(others).collect()
    }

    fn settings(&self) -> Vec<SettingValue> {
        let requested = &self.requested;
        let is_iwarp = requested.transport == OverlapTransport::Iwarp;
        let bytes = |name: &str| SettingValue::of(name).unit(Unit::Bytes);
        let side = |role: &str, core_option: &str, side: &OverlapSideSettings, core: Option<u32>| {
            [
                bytes("send-buffer").effective(side.send_buffer_bytes),
                bytes("receive-buffer").effective(side.receive_buffer_bytes),
                SettingValue::of("congestion-control").effective(side.congestion_control.as_ref()),
                bytes("segment").effective(side.segment_bytes),
                bytes("mulpdu").effective(side.mulpdu_bytes),
                SettingValue::of("crc").effective(side.crc),
                SettingValue::of("progress").requested(is_iwarp.then_some(requested.progress)),
                SettingValue::of(core_option).requested(core).effective(side.core),
            ]
            .map(|setting| setting.at(role))
        };
        let client = side("client", "client-core", &self.client, requested.client_core);
        let server = side("server", "server-core", &self.server, requested.server_core);
        client.into_iter().chain(server).filter(SettingValue::is_known).collect()
    }
}
