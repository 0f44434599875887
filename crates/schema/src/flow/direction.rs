//! Results of a flow test by direction: with data in both
//! directions the sums over both say little about either.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Direction;

/// One direction in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionInterval {
    /// `forward` is client to server, `reverse` server to client.
    pub direction: Direction,
    /// Bits per second that reached the receiving application.
    pub goodput_bps: f64,
    /// Segments retransmitted in this interval, all flows (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// Smoothed round-trip time (`tcpi_rtt`) at the end of the interval, the longest of the flows (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Congestion windows at the end of the interval, all flows together (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_window_bytes: Option<u64>,
    /// Datagrams received (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagram_count: Option<u64>,
    /// Datagrams lost (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_count: Option<u64>,
    /// Datagrams that came after a later one (UDP, RFC 4737).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered_count: Option<u64>,
    /// Interarrival jitter at the end of the interval, mean of the flows (UDP, RFC 3550 section 6.4.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
}

/// One direction of a finished test, warm-up excluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionSummary {
    /// `forward` is client to server, `reverse` server to client.
    pub direction: Direction,
    /// Time measured by the receiver.
    pub measured_ns: u64,
    /// Bytes that reached the receiving application in that time.
    pub received_bytes: u64,
    /// Bits per second of that.
    pub goodput_bps: f64,
    /// Goodput of each flow.
    pub flow_goodput_bps: Vec<f64>,
    /// Segments retransmitted, all flows (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// Median smoothed round-trip time of the senders (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Lowest round-trip time of the senders (TCP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// Datagrams received (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagram_count: Option<u64>,
    /// Datagrams lost (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_count: Option<u64>,
    /// Lost / (lost + received) (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// Datagrams that came after a later one (UDP, RFC 4737).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered_count: Option<u64>,
    /// Interarrival jitter (UDP, RFC 3550 section 6.4.1): mean over flows and intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
}

/// CPU time of one side per time measured: 1 is one core busy all the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// The flow threads alone, user and system.
    pub threads_ratio: f64,
    /// All that ran on the host, other programs included; absent where the counters could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ratio: Option<f64>,
    /// Software interrupts of the host, part of `host_ratio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_softirq_ratio: Option<f64>,
}
