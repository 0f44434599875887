//! What a host does at the moment: one sample per interval, the line of `clearstream live --json-stream`, the
//! event of its page and of its record.

use std::net::SocketAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{counters::HostCounters, notice::Notice, watch::PathStatus};

/// Name of the format of [`LiveSample`].
pub const LIVE_SAMPLE_SCHEMA: &str = "clearstream.live-sample";
/// Name of the format of [`LiveSummary`].
pub const LIVE_SUMMARY_SCHEMA: &str = "clearstream.live";

/// Differences of a host's counters over one interval, and the state at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveSample {
    /// [`LIVE_SAMPLE_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// The host.
    pub host: String,
    /// End of the interval, RFC 3339 in UTC, by the clock of the host.
    pub time: String,
    /// Duration of the interval, by its monotonic clock.
    pub interval_ns: u64,
    /// Differences over the interval: cores, interfaces, `TcpExt`.
    pub counters: HostCounters,
    /// Place of each core, ascending.
    pub places: Vec<CorePlace>,
    /// Queues of NICs whose driver counts per queue; empty for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueCounters>,
    /// TCP of the network namespace.
    pub tcp: TcpState,
    /// The busiest connections, the busiest first, over the time of [`LiveSample::connections_ns`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<LiveConnection>,
    /// Time that the connections were observed.
    pub connections_ns: u64,
    /// Open connections of all programs.
    pub connection_count: u64,
    /// Paths of a watch that runs on the host; empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathStatus>,
    /// Facts that could not be gathered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// NUMA node and package of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CorePlace {
    /// Core number.
    pub core: u32,
    /// Node; 0 on a machine without NUMA.
    pub node: u32,
    /// Package (socket).
    pub package: u32,
}

/// Counters of one queue of a NIC, differences over the interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueCounters {
    /// Interface.
    pub interface: String,
    /// Number of the queue.
    pub queue: u32,
    /// True for a send queue.
    pub sends: bool,
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packet_count: u64,
}

/// `/proc/net/snmp` and `/proc/net/sockstat` of a network namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpState {
    /// Segments sent in the interval (`OutSegs`, without retransmissions; RFC 4022).
    pub sent_segment_count: u64,
    /// Segments received (`InSegs`).
    pub received_segment_count: u64,
    /// Segments retransmitted (`RetransSegs`).
    pub retransmit_count: u64,
    /// Connections reset (`EstabResets`) and resets sent (`OutRsts`).
    pub reset_count: u64,
    /// Segments received with an error (`InErrs`).
    pub receive_error_count: u64,
    /// Connections opened from here and from elsewhere (`ActiveOpens`, `PassiveOpens`).
    pub open_count: u64,
    /// Established connections now (`CurrEstab`).
    pub established_count: u64,
    /// Memory of all TCP sockets of the machine now.
    pub memory_bytes: u64,
    /// From here on the kernel is under memory pressure (`net.ipv4.tcp_mem`, second value); only the first network
    /// namespace shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure_bytes: Option<u64>,
}

/// A connection over the last observation, in the direction in which it carries most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveConnection {
    /// This end: the sender's, where that is on this host.
    #[schemars(with = "String")]
    pub local: SocketAddr,
    /// The other end.
    #[schemars(with = "String")]
    pub remote: SocketAddr,
    /// Program and process, `iperf3 (1234)`; empty where unknown.
    pub program: String,
    /// Bytes acknowledged by the peer, as a rate.
    pub out_bps: f64,
    /// Bytes received, as a rate.
    pub in_bps: f64,
    /// Smoothed round-trip time, median.
    pub rtt_ns: u64,
    /// Segments retransmitted.
    pub retransmit_count: u64,
    /// Cause that limits it, by the names of `clearstream diagnose`: `receiver-window`; `unknown`, `idle`.
    pub limit: String,
    /// The limit and its numbers in one sentence.
    pub sentence: String,
}

/// End of `clearstream live`: totals of each host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveSummary {
    /// [`LIVE_SUMMARY_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// One per host, in the order of the command line.
    pub hosts: Vec<LiveTotals>,
    /// Folder of the record, with `--record`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

/// Totals of a host over all intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveTotals {
    /// The host.
    pub host: String,
    /// Samples.
    pub sample_count: u64,
    /// Intervals that are missing, as while the agent was away.
    pub gap_count: u64,
    /// Sum of the intervals.
    pub duration_ns: u64,
    /// Sums of the differences.
    pub counters: HostCounters,
}
