//! Bulk goodput: what can be asked for, and what one test returns.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    BitRate, ByteCount, CoreList, TimeSpan,
    counters::{CoreCounters, InterfaceCounters},
    tcp_info::TcpInfo,
};

/// Transport protocol of the flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP with segmentation and receive offload, loss counted.
    Udp,
    /// Multipath TCP (`IPPROTO_MPTCP`).
    Mptcp,
}

/// Which way data goes, seen from the side that was named first (the client).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Client to server.
    #[default]
    Forward,
    /// Server to client.
    Reverse,
    /// Both at once, each flow both ways.
    Both,
}

/// How bytes are handed to the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum SendMethod {
    /// `write`.
    #[default]
    Copy,
    /// `send` with `MSG_ZEROCOPY`; the fraction that was copied is reported.
    Zerocopy,
    /// `sendfile` from a memory file.
    Sendfile,
    /// `vmsplice` and `splice` through a pipe.
    Splice,
    /// `io_uring` with several sends in flight.
    IoUring,
}

/// How bytes are taken from the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveMethod {
    /// `read` into memory.
    #[default]
    Copy,
    /// Dropped in the kernel (`MSG_TRUNC`): not goodput in the full sense,
    /// and called `discard` in every table.
    Discard,
    /// `splice` through a pipe to nowhere.
    Splice,
    /// `io_uring` receives.
    IoUring,
}

/// A flow test as asked for. Keys, options and their defaults are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowConfig {
    /// Transport protocol
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().protocol))]
    pub protocol: Protocol,
    /// Which way data goes: forward is from here to there
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().direction))]
    pub direction: Direction,
    /// Number of flows, each with a thread of its own at both ends
    #[cfg_attr(feature = "cli", arg(long, short = 'P', value_name = "COUNT", default_value_t = FlowConfig::default().flows))]
    pub flows: u32,
    /// How long to measure, after the warm-up
    #[cfg_attr(feature = "cli", arg(long, short = 't', value_name = "TIME", default_value_t = FlowConfig::default().duration))]
    pub duration: TimeSpan,
    /// Send this much per flow instead of measuring for a time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'n', value_name = "BYTES"))]
    pub bytes: Option<ByteCount>,
    /// Leading part that does not count in the totals
    #[cfg_attr(feature = "cli", arg(long, short = 'O', value_name = "TIME", default_value_t = FlowConfig::default().warm_up))]
    pub warm_up: TimeSpan,
    /// Time between samples
    #[cfg_attr(feature = "cli", arg(long, short = 'i', value_name = "TIME", default_value_t = FlowConfig::default().interval))]
    pub interval: TimeSpan,
    /// Bytes of one write or read (its optimum moves with the last-level cache)
    #[cfg_attr(feature = "cli", arg(long, short = 'l', value_name = "BYTES", default_value_t = FlowConfig::default().transfer))]
    pub transfer: ByteCount,
    /// How bytes are handed to the kernel
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().method))]
    pub method: SendMethod,
    /// How bytes are taken from the kernel
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = FlowConfig::default().receive))]
    pub receive: ReceiveMethod,
    /// TCP window: socket buffer of both ends (`SO_SNDBUF`, `SO_RCVBUF`) and the most that is advertised (`TCP_WINDOW_CLAMP`); autotuned when absent
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'w', value_name = "BYTES"))]
    pub window: Option<ByteCount>,
    /// Send buffer alone; wins over --window
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub send_buffer: Option<ByteCount>,
    /// Receive buffer alone; wins over --window
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub receive_buffer: Option<ByteCount>,
    /// Set the socket buffers even above net.core.rmem_max and wmem_max (needs CAP_NET_ADMIN)
    #[cfg_attr(feature = "cli", arg(long))]
    pub force_buffers: bool,
    /// Receive low-water mark: wake the reader only for this much
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub receive_low_water: Option<ByteCount>,
    /// Congestion control of the sending sockets; the host's default when absent
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'C', value_name = "NAME"))]
    pub congestion_control: Option<String>,
    /// Kernel pacing per flow (`SO_MAX_PACING_RATE`)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE"))]
    pub pacing: Option<BitRate>,
    /// Differentiated services code point, 0 to 63
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DSCP"))]
    pub dscp: Option<u8>,
    /// Cores of the sending threads; flow i takes the i-th, round again
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LIST"))]
    pub sender_cores: Option<CoreList>,
    /// Cores of the receiving threads; flow i takes the i-th, round again
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LIST"))]
    pub receiver_cores: Option<CoreList>,
    /// NUMA node that buffers are taken from; the thread's own when absent
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NODE"))]
    pub memory_node: Option<u32>,
    /// Source port of flow 0 at the client; flow i takes the i-th after it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PORT"))]
    pub source_port: Option<u16>,
    /// Port of the server's data socket; chosen by the kernel when absent
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PORT"))]
    pub destination_port: Option<u16>,
    /// Address the client's data sockets bind to
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "ADDRESS"))]
    pub bind_address: Option<IpAddr>,
    /// Interface the client's data sockets bind to
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub bind_interface: Option<String>,
    /// UDP payload of one datagram on the wire; from the path MTU when absent
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES"))]
    pub datagram: Option<ByteCount>,
    /// How many of the flows (the last ones) send in bursts, as message-passing programs do
    #[cfg_attr(feature = "cli", arg(long, value_name = "COUNT", default_value_t = FlowConfig::default().burst_flows))]
    pub burst_flows: u32,
    /// A bursty flow sends for this long
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", default_value_t = FlowConfig::default().burst_on))]
    pub burst_on: TimeSpan,
    /// and is then silent for this long
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", default_value_t = FlowConfig::default().burst_off))]
    pub burst_off: TimeSpan,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            direction: Direction::Forward,
            flows: 1,
            duration: TimeSpan::from_seconds(10),
            bytes: None,
            warm_up: TimeSpan::from_seconds(1),
            interval: TimeSpan::from_seconds(1),
            transfer: ByteCount(512 << 10),
            method: SendMethod::Copy,
            receive: ReceiveMethod::Copy,
            window: None,
            send_buffer: None,
            receive_buffer: None,
            force_buffers: false,
            receive_low_water: None,
            congestion_control: None,
            pacing: None,
            dscp: None,
            sender_cores: None,
            receiver_cores: None,
            memory_node: None,
            source_port: None,
            destination_port: None,
            bind_address: None,
            bind_interface: None,
            datagram: None,
            burst_flows: 0,
            burst_on: TimeSpan::from_millis(300),
            burst_off: TimeSpan::from_millis(700),
        }
    }
}

/// A key or value that a flow test does not have.
#[derive(Debug, thiserror::Error)]
#[error("flow option \"{key}\": {source}")]
pub struct FlowOptionError {
    /// The key as written.
    pub key: String,
    /// What is wrong with it.
    #[source]
    pub source: serde_json::Error,
}

impl FlowConfig {
    /// The same test with one key set, as a factor of a study does.
    pub fn with(&self, key: &str, value: serde_json::Value) -> Result<Self, FlowOptionError> {
        let fail = |source| FlowOptionError { key: key.to_owned(), source };
        let mut document = serde_json::to_value(self).map_err(fail)?;
        document[key] = value;
        serde_json::from_value(document).map_err(fail)
    }
}

/// What is in force on one side after the sockets were made: never what was
/// asked for, always what the kernel says.
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
    /// Address and port of the other end.
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
    /// NUMA node that the buffer is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_node: Option<u32>,
    /// Transfer size in force.
    pub transfer_bytes: u64,
    /// TCP maximum segment size, or UDP datagram size.
    pub segment_bytes: u64,
    /// Send method in force on this side, when it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<SendMethod>,
    /// Receive method in force on this side, when it receives.
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
    /// CPU time of the flow threads, user and system.
    pub thread_cpu_ns: u64,
    /// CPU cycles of the flow threads, where the counter exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycle_count: Option<u64>,
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
    /// Bits per second that reached the receiving applications.
    pub goodput_bps: f64,
    /// The client's facts.
    pub client: SideInterval,
    /// The server's facts.
    pub server: SideInterval,
}

/// Something the reader must know before believing a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notice {
    /// Stable kebab-case name, such as `zerocopy-copied` or `window-capped`.
    pub id: String,
    /// What was seen and what to do, one line.
    pub message: String,
}

/// What processes the receiver's packets, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptCore {
    /// The core.
    pub core: u32,
    /// Its share of the receiver's NET_RX softirqs while the flow ran, 0 to 100.
    pub softirq_share_percent: u32,
    /// The softirq counters and `SO_INCOMING_CPU` agree (absent when the sockets did not tell).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
}

/// A finished flow test, without its intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSummary {
    /// What was asked for.
    pub requested: FlowConfig,
    /// In force at the client.
    pub client_settings: FlowSettings,
    /// In force at the server.
    pub server_settings: FlowSettings,
    /// Time measured, warm-up excluded.
    pub measured_ns: u64,
    /// Bytes that reached the receiving applications in that time.
    pub received_bytes: u64,
    /// Bits per second of that.
    pub goodput_bps: f64,
    /// Goodput of each flow.
    pub flow_goodput_bps: Vec<f64>,
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
    /// Cycles per byte, both sides, where counters exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_byte_ratio: Option<f64>,
    /// Zero-copy completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zerocopy: Option<ZerocopyCount>,
    /// The core that took the receiver's packets, where one stands out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt_core: Option<InterruptCore>,
    /// Cores that threads without a pin were seen on: (flow, sender, receiver).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_cores: Vec<(u32, Option<u32>, Option<u32>)>,
    /// Capabilities lost, settings not in force, things to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// False when the test ended early; the samples up to then count.
    pub complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_is_set_and_a_wrong_one_is_refused() {
        let base = FlowConfig::default();
        let changed = base.with("window", "64MiB".into()).expect("a key of the type");
        assert_eq!(changed.window, Some(ByteCount(64 << 20)));
        assert_eq!(
            base.with("sender-cores", 3.into()).expect("a bare number").sender_cores,
            Some(CoreList(vec![3]))
        );
        let error = base.with("windw", "1M".into()).expect_err("no such key");
        assert!(
            error.to_string().contains("windw") && error.source.to_string().contains("window"),
            "{error}"
        );
        assert!(base.with("window", "big".into()).is_err());
    }

    #[test]
    fn defaults_survive_the_document() {
        let text = serde_json::to_string(&FlowConfig::default()).expect("writes");
        assert_eq!(serde_json::from_str::<FlowConfig>(&text).expect("reads"), FlowConfig::default());
        assert_eq!(serde_json::from_str::<FlowConfig>("{}").expect("reads"), FlowConfig::default());
    }
}
