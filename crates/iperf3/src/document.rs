//! A flow test whose other end is an iperf3 program: what this end measured,
//! and what that end reported. It reports bytes, time, retransmits, datagrams
//! and the CPU of its process, once, at the end; nothing else of it is known.

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use clearstream_schema::flow::{Direction, FlowConfig, FlowSettings, Protocol, SideInterval};
use clearstream_schema::notice::Notice;

/// End of the test that this host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Iperf3Role {
    /// It connected: `clearstream flow --compat iperf3`.
    Client,
    /// It listened: `clearstream serve --compat iperf3`.
    Server,
}

/// One interval as this end saw it. The peer reports no intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Interval {
    /// Number since the start.
    pub index: u32,
    /// True during the warm-up (omit): not part of the totals.
    pub warm_up: bool,
    /// Bits per second handed to the kernel here; absent when this end only receives.
    /// The amount received by the peer is known at the end only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bps: Option<f64>,
    /// Bits per second that reached the application here; absent when this end only sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bps: Option<f64>,
    /// Segments retransmitted by this end in this interval (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// Datagrams received here in this interval (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Iperf3Datagrams>,
    /// This end's facts. Flows are in the order of their connections: with both
    /// directions first those that the client sends on.
    pub local: SideInterval,
}

/// Datagrams as their receiver counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Datagrams {
    /// That were to come: the difference of the highest numbers seen.
    pub expected_count: u64,
    /// Numbers that were skipped and did not come later.
    pub lost_count: u64,
    /// Lost / expected, 0 to 1; absent when none were expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// That came after a later one; a peer does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered_count: Option<u64>,
    /// Interarrival jitter at the end (RFC 3550, section 6.4.1), the mean of all streams.
    pub jitter_ns: u64,
}

/// One stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Stream {
    /// Number that iperf3 gives it: 1, 3, 4, ...
    pub id: u32,
    /// Bytes that the sender handed to the kernel, reported by the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes that reached the receiver's application, reported by the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Bits per second of these, over the receiver's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    /// Segments retransmitted, reported by the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
}

/// Side that measured the received bytes and the time of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Iperf3Source {
    /// This end, which received.
    ThisEnd,
    /// The peer, which received and reported it.
    Peer,
}

/// One direction of the test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Direction {
    /// Bits per second that reached the receiving applications; absent when the
    /// receiver did not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    /// Side that measured it.
    pub goodput_source: Iperf3Source,
    /// Bytes that reached the receiving applications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// The receiver's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_ns: Option<u64>,
    /// Bytes that the senders handed to the kernel. At the end some of them are
    /// still in transit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// The sender's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ns: Option<u64>,
    /// Segments retransmitted, reported by the sender (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// Median smoothed round-trip time, where this end sends (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Lowest round-trip time, where this end sends (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// Receiver's counters (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Iperf3Datagrams>,
    /// Each stream.
    pub streams: Vec<Iperf3Stream>,
}

/// The peer's report about itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Peer {
    /// Address and port of its control connection.
    pub address: String,
    /// Version that a client names itself with; servers do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// CPU time of its process / time of the test; 1 is one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ratio: Option<f64>,
    /// Congestion control that its sockets use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

/// A test with an iperf3 peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Summary {
    /// End of the test that this host is.
    pub role: Iperf3Role,
    /// The peer.
    pub peer: Iperf3Peer,
    /// Transport protocol of the streams.
    pub protocol: Protocol,
    /// Seen from the client.
    pub direction: Direction,
    /// Streams of each direction.
    pub streams: u32,
    /// Requested configuration, where this host is the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<FlowConfig>,
    /// In effect at this end, in the order of the connections.
    pub settings: FlowSettings,
    /// Time measured at this end, warm-up excluded.
    pub measured_ns: u64,
    /// CPU time of this end's data threads in that time.
    pub cpu_ns: u64,
    /// From client to server; absent when nothing went there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Iperf3Direction>,
    /// From server to client; absent when nothing went there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Iperf3Direction>,
    /// Facts that an iperf3 peer cannot report.
    pub not_measured: Vec<String>,
    /// Capabilities lost, settings not in effect, caveats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// False when the test ended early, or the peer did not report its results.
    pub complete: bool,
}

/// Facts that no iperf3 peer reports of itself: [`Iperf3Summary::not_measured`].
pub const NOT_MEASURED: [&str; 7] = [
    "peer-intervals",
    "peer-cores",
    "peer-interrupts",
    "peer-tcp-info",
    "peer-socket-buffers",
    "peer-thread-cpu",
    "peer-host-counters",
];
