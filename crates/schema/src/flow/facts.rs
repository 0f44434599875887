//! Results of a flow test: effective settings, intervals, the summary.

use std::collections::BTreeMap;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CpuUse, DirectionInterval, DirectionSummary, FlowAdaptation, FlowConfig, ReceiveMethod, SendMethod,
};
use crate::{
    counters::{CoreCounters, CpuThrottling, DriverCounters, InterfaceCounters, ProcessLoad},
    notice::Notice,
    tcp_info::TcpInfo,
};

/// Effective settings of one side after the sockets were created, read back
/// from the kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSettings {
    /// One entry per flow.
    pub flows: Vec<SocketSettings>,
    /// Random name of the kernel's run (`/proc/sys/kernel/random/boot_id`):
    /// the same on both sides when both run on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// Effective settings of one data socket and its thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketSettings {
    /// Address and port of this end.
    pub local: String,
    /// Address and port of the peer.
    pub remote: String,
    /// `SO_SNDBUF` as read back (the kernel doubles a request).
    pub send_buffer_bytes: u64,
    /// `SO_RCVBUF` as read back.
    pub receive_buffer_bytes: u64,
    /// `TCP_CONGESTION` as read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// `SO_MAX_PACING_RATE`; absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_rate_bps: Option<u64>,
    /// `SO_RCVLOWAT`.
    pub receive_low_water_bytes: u64,
    /// Core the thread is pinned to; absent when the scheduler chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_core: Option<u32>,
    /// Core of the thread that receives, where another one sends: `pinned_core` is then that of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_receiver_core: Option<u32>,
    /// NUMA node that the buffer is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_node: Option<u32>,
    /// Transfer size in effect.
    pub transfer_bytes: u64,
    /// TCP maximum segment size, or UDP datagram size.
    pub segment_bytes: u64,
    /// Further socket options, as read back, by the names of the options that request them: `dscp`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Value>,
    /// `SO_BINDTODEVICE`; absent when bound to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Send method in effect on this side, when it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<SendMethod>,
    /// Receive method in effect on this side, when it receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<ReceiveMethod>,
}

/// One side's facts of one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideInterval {
    /// Number of the interval since the start, warm-up included.
    pub index: u32,
    /// Start, since the start of the test on this host's clock.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// One entry per flow.
    pub flows: Vec<FlowInterval>,
    /// Per-core deltas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CoreCounters>,
    /// Per-interface deltas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceCounters>,
    /// Driver counters of drops, errors and pause frames that rose since they were last read, about once a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub driver_counters: Vec<DriverCounters>,
    /// CPU time of the flow threads, user and system.
    pub thread_cpu_ns: u64,
    /// TCP counters of the whole host or namespace (`TcpExt` of
    /// `/proc/net/netstat`, by its names); what did not change is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp_counters: BTreeMap<String, u64>,
    /// CPU cycles of the flow threads, where the counter exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle_count: Option<u64>,
    /// CPU time of the host's processes; in about one interval a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_load: Option<ProcessLoad>,
    /// CPU quota of the agent's control group; absent without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_throttling: Option<CpuThrottling>,
}

/// One flow, one interval, one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowInterval {
    /// Flow number.
    pub flow: u32,
    /// Bytes handed to the kernel by this side.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Bytes that reached this side's application.
    #[serde(default)]
    pub received_bytes: u64,
    /// Core the sending thread was last seen on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_core: Option<u32>,
    /// Core the receiving thread was last seen on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_core: Option<u32>,
    /// Time of the sending thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_time: Option<ThreadTime>,
    /// Time of the receiving thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver_time: Option<ThreadTime>,
    /// `SO_INCOMING_CPU`: the core that processed the socket's last packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incoming_core: Option<u32>,
    /// `SO_INCOMING_NAPI_ID` when not zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incoming_napi_id: Option<u32>,
    /// State of the socket at the end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpInfo>,
    /// `SO_MEMINFO` at the end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<SocketMemory>,
    /// `MSG_ZEROCOPY` completions, and how many of them were copied after all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zerocopy: Option<ZerocopyCount>,
    /// UDP datagrams received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagram_count: Option<u64>,
    /// UDP datagrams lost (gaps in sequence).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_count: Option<u64>,
    /// UDP datagrams that came after a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reordered_count: Option<u64>,
    /// Interarrival jitter of UDP at the end of the interval (RFC 3550 section
    /// 6.4.1), by the clock of the receiving program. The datagrams of one send
    /// call carry one time: only the first of them counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
}

/// Use of a thread's time in an interval; it slept for the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTime {
    /// It ran (`schedstat`, field 1).
    pub run_ns: u64,
    /// It could have run but had no core (`schedstat`, field 2).
    pub wait_ns: u64,
    /// Of the time that it ran, outside of the kernel (`stat`, field 14; in
    /// steps of 10 ms).
    pub user_ns: u64,
}

impl ThreadTime {
    /// Difference since `earlier`, never negative.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
        }
    }
}

/// Memory of a socket (`SO_MEMINFO`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketMemory {
    /// Receive memory used.
    pub receive_used_bytes: u32,
    /// Receive limit.
    pub receive_limit_bytes: u32,
    /// Send memory in flight to the device.
    pub send_used_bytes: u32,
    /// Send limit.
    pub send_limit_bytes: u32,
    /// Write queue.
    pub send_queued_bytes: u32,
    /// Backlog.
    pub backlog_bytes: u32,
    /// Drops.
    pub drop_count: u32,
}

/// Completions of zero-copy sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZerocopyCount {
    /// Sends completed.
    pub completed_count: u64,
    /// Of these, copied by the kernel (`SO_EE_CODE_ZEROCOPY_COPIED`).
    pub copied_count: u64,
}

/// One interval of both sides, as it is stored and streamed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Number since the start.
    pub index: u32,
    /// True during the warm-up: not part of the totals.
    pub warm_up: bool,
    /// Bits per second that reached the receiving applications, both directions together.
    pub goodput_bps: f64,
    /// Each direction that carries data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directions: Vec<DirectionInterval>,
    /// The client's facts.
    pub client: SideInterval,
    /// The server's facts.
    pub server: SideInterval,
}

/// Core that processes the receiver's packets, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptCore {
    /// The core.
    pub core: u32,
    /// Its fraction of the receiver's NET_RX softirqs while the flow ran, 0 to 100.
    pub softirq_share_percent: u32,
    /// The softirq counters and `SO_INCOMING_CPU` agree (absent when the sockets do not report it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
}

/// A finished flow test, without its intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSummary {
    /// Requested configuration.
    pub requested: FlowConfig,
    /// In effect at the client.
    pub client_settings: FlowSettings,
    /// In effect at the server.
    pub server_settings: FlowSettings,
    /// Time measured, warm-up excluded.
    pub measured_ns: u64,
    /// Bytes that reached the receiving applications in that time.
    pub received_bytes: u64,
    /// Bits per second of that.
    pub goodput_bps: f64,
    /// Goodput of each flow, both directions together.
    pub flow_goodput_bps: Vec<f64>,
    /// Each direction that carried data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directions: Vec<DirectionSummary>,
    /// Segments retransmitted, all flows (TCP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// Lost datagrams / (lost + received) (UDP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// Median smoothed round-trip time of the senders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Lowest round-trip time of the senders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// CPU seconds of the client's flow threads per 10^9 bytes.
    pub client_cpu_seconds_per_gb: f64,
    /// CPU seconds of the server's flow threads per 10^9 bytes.
    pub server_cpu_seconds_per_gb: f64,
    /// CPU of the client, while it measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpu: Option<CpuUse>,
    /// CPU of the server, while it measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<CpuUse>,
    /// Cycles per byte, both sides, where counters exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_byte_ratio: Option<f64>,
    /// Zero-copy completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zerocopy: Option<ZerocopyCount>,
    /// What the warm-up tried and chose of the settings that nobody named; absent where nothing was left open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptation: Option<FlowAdaptation>,
    /// The core that took the receiver's packets, where one stands out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt_core: Option<InterruptCore>,
    /// Cores that threads without a pin were seen on: (flow, sender, receiver).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_cores: Vec<(u32, Option<u32>, Option<u32>)>,
    /// Capabilities lost, settings not in effect, caveats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// False when the test ended early, or samples are missing in between; those that are there count.
    pub complete: bool,
}

/// Name of the format that [`FlowSummary`] has as a trial's detail.
pub const FLOW_SUMMARY_SCHEMA: &str = "clearstream.flow-summary";
