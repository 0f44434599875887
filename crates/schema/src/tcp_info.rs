//! `struct tcp_info` (include/uapi/linux/tcp.h) with units in the names.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of one TCP socket as reported by the kernel. Kernels return different
/// lengths; what lies beyond the returned length is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpInfo {
    /// Bytes of the structure that the kernel returned.
    pub returned_bytes: u32,
    /// `tcpi_state`: 1 is established.
    pub state: u8,
    /// `tcpi_ca_state`: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub congestion_state: u8,
    /// `tcpi_options`: bit 0 timestamps, 1 SACK, 2 window scaling, 3 ECN.
    pub options: u8,
    /// Window scale that we advertise to shift the peer's window by.
    pub send_window_scale: u8,
    /// Window scale of our receive window.
    pub receive_window_scale: u8,
    /// The last delivery rate sample was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// Sending maximum segment size.
    pub send_mss_bytes: u32,
    /// Receiving maximum segment size (estimate).
    pub receive_mss_bytes: u32,
    /// Segments in flight.
    pub unacked_count: u32,
    /// Segments thought lost.
    pub lost_count: u32,
    /// Segments being retransmitted.
    pub retransmit_count: u32,
    /// Path MTU.
    pub path_mtu_bytes: u32,
    /// Receiver's current window target.
    pub receive_ssthresh_bytes: u32,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// Its variation.
    pub rtt_variation_ns: u64,
    /// Slow start threshold, segments.
    pub send_ssthresh_count: u32,
    /// Congestion window, segments.
    pub congestion_window_count: u32,
    /// Round-trip time as the receiver sees it.
    pub receive_rtt_ns: u64,
    /// Receiver's autotuning space.
    pub receive_space_bytes: u32,
    /// Retransmitted segments since the start.
    pub total_retransmit_count: u32,
    /// Pacing rate; absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_rate_bps: Option<u64>,
    /// Highest pacing rate allowed; absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pacing_rate_bps: Option<u64>,
    /// Bytes acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_bytes: Option<u64>,
    /// Bytes received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Bytes in the socket not yet sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_sent_bytes: Option<u32>,
    /// Minimum round-trip time over `tcp_min_rtt_wlen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// Delivery rate of the last sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_rate_bps: Option<u64>,
    /// Time with data outstanding or queued (includes the two below).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<u64>,
    /// Time limited by the receiver's window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_window_limited_ns: Option<u64>,
    /// Time limited by the send buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer_limited_ns: Option<u64>,
    /// Bytes sent, retransmissions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Bytes retransmitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// Reordering events seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder_seen_count: Option<u32>,
    /// Packets received out of order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_out_of_order_count: Option<u32>,
    /// Peer's advertised window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_window_bytes: Option<u32>,
    /// Our advertised window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_window_bytes: Option<u32>,
    /// Retransmission timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_count: Option<u16>,
}
