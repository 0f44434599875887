//! Results of a measurement of messages.

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MessageConfig, MessageKind, MessageTransport};
use clearstream_schema::{
    ByteCount,
    mpi::{InterfaceBytes, MpiJob},
    notice::Notice,
    outcome::{Axis, Metric, MetricKind, Outcome, Series, SettingValue, Unit},
};

/// Name of the format of [`MessageSummary`].
pub const MESSAGE_SUMMARY_SCHEMA: &str = "clearstream.message-summary";

/// One-way latency: half of a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageLatency {
    /// Shortest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile (nearest rank).
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Results of one message size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessagePoint {
    /// Size of a message.
    pub size_bytes: u64,
    /// The size is a requested one less or plus the perturbation.
    #[serde(default)]
    pub is_perturbed: bool,
    /// Round trips (ping-pong) or windows, warm-up not included.
    pub iteration_count: u64,
    /// Messages that the server's application received, as the server counted them.
    pub server_received_count: u64,
    /// Messages that the client's application received.
    pub client_received_count: u64,
    /// Time of all iterations at the client, until the last acknowledgement.
    pub elapsed_ns: u64,
    /// One-way latency (ping-pong).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<MessageLatency>,
    /// Size / mean one-way latency, as NetPIPE computes the throughput of a block (ping-pong).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
    /// Bits that reached the receiving applications per second of `elapsed_ns`, all directions
    /// (stream, bidirectional).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bps: Option<f64>,
    /// Messages that reached the receiving applications per second, all directions
    /// (stream, bidirectional).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_rate_per_second: Option<f64>,
    /// CPU time of the client's thread (MPI: of all threads of the rank) / elapsed time.
    pub client_cpu_ratio: f64,
    /// CPU time of the server's thread (MPI: of all threads of the rank) / elapsed time.
    pub server_cpu_ratio: f64,
    /// What the network interfaces carried meanwhile (MPI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<InterfaceBytes>,
}

/// Effective settings of one side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageSideSettings {
    /// `SO_SNDBUF` as the kernel reports it: twice the requested size, or autotuned at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<u64>,
    /// `SO_RCVBUF`, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u64>,
    /// `TCP_NODELAY` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_delay: Option<bool>,
    /// Congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Maximum segment size (`TCP_MAXSEG`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u32>,
    /// Core that the thread is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
}

/// A finished measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageSummary {
    /// Requested configuration.
    pub requested: MessageConfig,
    /// False when it was stopped early: the points are those until then.
    pub complete: bool,
    /// Effective settings of the client.
    pub client: MessageSideSettings,
    /// Effective settings of the server.
    pub server: MessageSideSettings,
    /// The MPI job that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiJob>,
    /// One per size, ascending.
    pub points: Vec<MessagePoint>,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A metric of the points.
struct Column {
    kind: MetricKind,
    value: fn(&MessagePoint) -> Option<f64>,
}

const LATENCY: &[Column] = &[
    Column {
        kind: MetricKind::lower("latency", Unit::Nanoseconds),
        value: |point| point.latency.map(|it| it.p50_ns as f64),
    },
    Column {
        kind: MetricKind::lower("latency-p99", Unit::Nanoseconds),
        value: |point| point.latency.map(|it| it.p99_ns as f64),
    },
    Column {
        kind: MetricKind::lower("latency-min", Unit::Nanoseconds),
        value: |point| point.latency.map(|it| it.min_ns as f64),
    },
    Column {
        kind: MetricKind::higher("throughput", Unit::BitsPerSecond),
        value: |point| point.throughput_bps,
    },
];

const BANDWIDTH: &[Column] = &[
    Column { kind: MetricKind::higher("bandwidth", Unit::BitsPerSecond), value: |point| point.bandwidth_bps },
    Column {
        kind: MetricKind::higher("message-rate", Unit::PerSecond),
        value: |point| point.message_rate_per_second,
    },
];

const CLIENT_CPU: MetricKind = MetricKind::lower("client-cpu", Unit::Ratio);
const SERVER_CPU: MetricKind = MetricKind::lower("server-cpu", Unit::Ratio);

impl MessageConfig {
    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        self.columns().iter().map(|column| column.kind).chain([CLIENT_CPU, SERVER_CPU]).collect()
    }

    fn columns(&self) -> &'static [Column] {
        match self.kind {
            MessageKind::PingPong => LATENCY,
            MessageKind::Stream | MessageKind::Bidirectional => BANDWIDTH,
        }
    }
}

impl MessageSummary {
    /// As the outcome of a trial. Latencies and message rate are those of the
    /// smallest requested size, throughput and bandwidth the highest of the
    /// requested sizes; CPU ratios are of the size that the headline is of.
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
        outcome.with_detail(MESSAGE_SUMMARY_SCHEMA, 1, self)
    }

    /// The headline first: latency, or bandwidth.
    pub fn metrics(&self) -> Vec<Metric> {
        // Perturbed sizes are in the series only, so that a size stays comparable.
        let requested = || self.points.iter().filter(|point| !point.is_perturbed);
        let smallest = requested().next();
        let highest =
            |value: fn(&MessagePoint) -> Option<f64>| requested().filter_map(value).max_by(f64::total_cmp);
        let mut metrics = Vec::new();
        for column in self.requested.columns() {
            let value = match column.kind.unit {
                Unit::Nanoseconds | Unit::PerSecond => smallest.and_then(column.value),
                _ => highest(column.value),
            };
            metrics.extend(value.map(|value| column.kind.of(value)));
        }
        let headline = match self.requested.kind {
            MessageKind::PingPong => smallest,
            _ => {
                let bandwidth = |point: &&MessagePoint| point.bandwidth_bps.unwrap_or(0.0);
                requested().max_by(|one, other| bandwidth(one).total_cmp(&bandwidth(other)))
            }
        };
        if let Some(point) = headline {
            metrics.push(CLIENT_CPU.of(point.client_cpu_ratio));
            metrics.push(SERVER_CPU.of(point.server_cpu_ratio));
        }
        metrics
    }

    fn series(&self) -> Vec<Series> {
        let of = |column: &Column| Series {
            name: column.kind.name.to_owned(),
            x: Axis::new("size", Unit::Bytes),
            y: Axis::new(column.kind.name, column.kind.unit),
            points: self
                .points
                .iter()
                .filter_map(|point| Some((point.size_bytes as f64, (column.value)(point)?)))
                .collect(),
        };
        self.requested.columns().iter().map(of).collect()
    }

    fn settings(&self) -> Vec<SettingValue> {
        let requested = &self.requested;
        let is_tcp = requested.transport == MessageTransport::Tcp;
        let bytes = |name: &str, requested: Option<ByteCount>, effective: Option<u64>| {
            let setting = SettingValue::of(name).unit(Unit::Bytes);
            setting.requested(requested.map(|bytes| bytes.0)).effective(effective)
        };
        let buffer = |name: &str, requested, effective| SettingValue {
            doubled: true,
            ..bytes(name, requested, effective)
        };
        let side = |role: &str, core_option: &str, side: &MessageSideSettings, core: Option<u32>| {
            [
                buffer("send-buffer", requested.send_buffer, side.send_buffer_bytes),
                buffer("receive-buffer", requested.receive_buffer, side.receive_buffer_bytes),
                SettingValue::of("nagle")
                    .requested(is_tcp.then_some(requested.nagle))
                    .effective(side.no_delay.map(|no_delay| !no_delay)),
                SettingValue::of("congestion-control").effective(side.congestion_control.as_ref()),
                bytes("segment", None, side.segment_bytes.map(u64::from)),
                SettingValue::of(core_option).requested(core).effective(side.core),
            ]
            .map(|setting| setting.at(role))
        };
        let client = side("client", "client-core", &self.client, requested.client_core);
        let server = side("server", "server-core", &self.server, requested.server_core);
        let library = SettingValue::of("mpi-library").effective(self.mpi.as_ref().map(|job| &job.library));
        client.into_iter().chain(server).chain([library]).filter(SettingValue::is_known).collect()
    }
}
