//! Open TCP connections of a host and what limits each: the document of `clearstream diagnose --socket`.
//!
//! Names of causes are those of a [`Diagnosis`](crate::diagnosis::Diagnosis), with the facts that the ends
//! on this host show.

use std::net::SocketAddr;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{diagnosis::EvidenceItem, flow::SocketMemory, notice::Notice, tcp_info::TcpInfo};

/// Name of the format.
pub const CONNECTIONS_SCHEMA: &str = "clearstream.connections";

/// A TCP socket as the kernel reports it to any program (sock_diag(7)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpSocket {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// 1 is established (include/net/tcp_states.h).
    pub state: u8,
    /// `idiag_timer`: 0 none, 1 retransmission, 2 keepalive, 4 zero-window probe.
    pub timer: u8,
    /// Retransmissions or probes without a reply so far, by `timer`.
    pub timer_count: u8,
    /// Unique among the sockets of a boot.
    pub cookie: u64,
    /// Interface that the socket is bound to; 0 for none.
    pub interface_index: u32,
    /// Bytes received and not read yet (Recv-Q of ss(8)).
    pub receive_queue_bytes: u32,
    /// Bytes written and not acknowledged yet (Send-Q).
    pub send_queue_bytes: u32,
    /// User that opened it.
    pub uid: u32,
    /// Inode, as in `/proc/PID/fd`.
    pub inode: u32,
    /// Buffers.
    pub memory: SocketMemory,
    /// Name of the congestion control.
    pub congestion_control: Option<String>,
    /// State of BBR, where that is in effect.
    pub bbr: Option<BbrState>,
    /// Traffic class (net_cls).
    pub class_id: Option<u32>,
    /// Control group (version 2).
    pub cgroup_id: Option<u64>,
    /// `TCP_INFO`.
    pub tcp: TcpInfo,
}

/// `struct tcp_bbr_info` (linux/inet_diag.h).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BbrState {
    /// Estimated bottleneck bandwidth.
    pub bandwidth_bps: u64,
    /// Estimated lowest round-trip time.
    pub min_rtt_ns: u64,
    /// Pacing gain.
    pub pacing_gain_ratio: f64,
    /// Gain of the congestion window.
    pub window_gain_ratio: f64,
}

/// Open connections that match a filter, and what limits each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// [`CONNECTIONS_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// As requested.
    pub filter: String,
    /// Duration of the observation.
    pub duration_ns: u64,
    /// Samples of all sockets in that time.
    pub sample_count: u32,
    /// Median time between two samples.
    pub interval_ns: u64,
    /// Longest time that one sample took.
    pub longest_sample_ns: u64,
    /// Sockets that were open at any time, of all programs.
    pub socket_count: u64,
    /// Connections that match the filter; with both ends observed one.
    pub matched_count: u64,
    /// The busiest of these, the busiest first.
    pub connections: Vec<Connection>,
    /// Facts that could not be gathered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A connection in the direction in which it carries most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// The end described: the sender's, where that is on this host.
    pub end: ConnectionEnd,
    /// The other end, where it was observed too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<ConnectionEnd>,
    /// The limit.
    pub verdict: ConnectionVerdict,
}

/// One end of a connection: medians and sums over the observation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionEnd {
    /// This end.
    #[schemars(with = "String")]
    pub local: SocketAddr,
    /// The other end.
    #[schemars(with = "String")]
    pub remote: SocketAddr,
    /// Host that has this end, where two hosts were observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Process id in whose network namespace it is, where that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u32>,
    /// State at the end, `established`.
    pub state: String,
    /// Programs that hold the socket; empty where that cannot be read.
    pub owners: Vec<SocketOwner>,
    /// User that opened it.
    pub uid: u32,
    /// Inode.
    pub inode: u32,
    /// Time between the first and the last sample of it.
    pub observed_ns: u64,
    /// Bytes acknowledged by the peer, as a rate.
    pub out_bps: f64,
    /// Bytes received, as a rate.
    pub in_bps: f64,
    /// Smoothed round-trip time, median.
    pub rtt_ns: u64,
    /// Lowest round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// Congestion window in segments, median.
    pub congestion_window_count: u32,
    /// Segment size for sending.
    pub send_mss_bytes: u32,
    /// Segments retransmitted in the time observed.
    pub retransmit_count: u64,
    /// Window offered by the peer, median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_window_bytes: Option<u64>,
    /// Window offered to the peer, median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_window_bytes: Option<u64>,
    /// Bytes received and not read, median.
    pub receive_queue_bytes: u64,
    /// Bytes written and not acknowledged, median.
    pub send_queue_bytes: u64,
    /// Buffers at the last sample.
    pub memory: SocketMemory,
    /// Fraction of the time with data outstanding (`tcpi_busy_time`), 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ratio: Option<f64>,
    /// Fraction of the busy time limited by the receiver's window (`tcpi_rwnd_limited`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_window_limited_ratio: Option<f64>,
    /// Fraction of the busy time limited by the send buffer (`tcpi_sndbuf_limited`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_limited_ratio: Option<f64>,
    /// Last delivery rate sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_rate_bps: Option<u64>,
    /// Pacing rate at the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_rate_bps: Option<u64>,
    /// Name of the congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// State of BBR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bbr: Option<BbrState>,
    /// Traffic class (net_cls).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_id: Option<u32>,
    /// Control group (version 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
}

/// A process that holds a socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketOwner {
    /// Process id.
    pub pid: u32,
    /// Name (`comm`).
    pub program: String,
    /// It is stopped (SIGSTOP, a debugger) at the end of the observation.
    #[serde(default)]
    pub stopped: bool,
    /// Fraction of the time that its busiest thread ran or waited for a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread_ratio: Option<f64>,
}

/// Conclusion about a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionVerdict {
    /// This.
    Found(ConnectionFinding),
    /// The samples of the ends on this host are inconclusive.
    Unknown {
        /// Reason, with the numbers.
        because: String,
        /// What would decide.
        next: String,
    },
    /// No data in either direction, and none queued.
    Idle,
}

/// A cause with the samples that it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionFinding {
    /// The cause and its facts.
    pub cause: ConnectionCause,
    /// It and its numbers in one sentence.
    pub sentence: String,
    /// True when something can be set right.
    pub fault: bool,
    /// Evidence.
    pub evidence: Vec<EvidenceItem>,
    /// Changes that would remove it, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<ConnectionRemedy>,
}

/// Cause that limits a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ConnectionCause {
    /// The program that writes is slow.
    SenderApplication {
        /// Fraction of the time with data outstanding.
        busy_ratio: f64,
    },
    /// The program that reads is slow.
    ReceiverApplication {
        /// It is stopped.
        stopped: bool,
        /// Bytes that wait for it.
        unread_bytes: u64,
    },
    /// The receiver does not offer more window.
    ReceiverWindow {
        /// Window offered.
        window_bytes: u64,
        /// Rate that it allows: window * 8 / round-trip time.
        bound_bps: f64,
        /// Receive buffer, where that end is on this host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        buffer_bytes: Option<u64>,
    },
    /// The sender's socket does not take more data.
    SendBuffer {
        /// Send buffer in effect.
        buffer_bytes: u64,
        /// Data that it holds.
        queued_bytes: u64,
        /// Rate that this allows: data * 8 / round-trip time.
        bound_bps: f64,
    },
    /// Packets are held back to a rate by `SO_MAX_PACING_RATE`.
    Pacing {
        /// The rate.
        rate_bps: f64,
    },
    /// Lost packets keep the congestion window small.
    Loss {
        /// Bytes retransmitted / bytes sent.
        loss_ratio: f64,
        /// Rate that the congestion window allows: window * 8 / round-trip time.
        bound_bps: f64,
    },
    /// The path carries no more: its bottleneck's queue is full.
    PathCapacity {
        /// Its capacity, as the rate of acknowledged data.
        rate_bps: f64,
        /// Round-trip time less the lowest: time in the queue.
        queue_ns: u64,
    },
    /// A thread of a program at one end is busy all of the time.
    Cpu {
        /// Its process.
        pid: u32,
        /// Fraction of the time that it ran or waited for a core.
        runnable_ratio: f64,
    },
    /// The peer takes no data: its window is closed, and probes do not open it.
    ZeroWindow {
        /// Probes sent without an opened window.
        probe_count: u32,
    },
    /// The peer acknowledges nothing: the path or the host is gone.
    NoAcknowledgement {
        /// Retransmissions without a reply.
        retransmit_count: u32,
        /// Data not acknowledged.
        unacknowledged_bytes: u64,
    },
}

/// A change that would remove a cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ConnectionRemedy {
    /// Raise the last value of a sysctl on one host; connections opened later use it.
    RaiseSysctl {
        /// The sender's or the receiver's host.
        on: crate::diagnosis::Role,
        /// Dotted name.
        name: String,
        /// Place in the value, from 0.
        field: u32,
        /// At least this, in bytes.
        at_least: u64,
    },
    /// Change the program of one end.
    ChangeProgram {
        /// The sender's or the receiver's.
        on: crate::diagnosis::Role,
        /// The change, one sentence.
        what: String,
    },
    /// A step that no program can take here.
    Physical {
        /// The step, one sentence.
        what: String,
    },
}
