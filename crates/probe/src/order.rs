//! Detects when the timestamp of data read from a TCP connection is not that of its delivery.
//!
//! A read returns the timestamp of the last segment in it. After a lost segment, later ones wait for its
//! retransmission, and all of them are read at once: the timestamp then precedes the retransmission by the
//! time that the data was not readable.

use std::os::fd::AsFd;

use clearstream_sys::tcp_info;

/// Counts the out-of-order segments of one connection.
#[derive(Debug, Default)]
pub(crate) struct Order {
    out_of_order_count: u32,
}

impl Order {
    /// True when no segment arrived out of order since the last call. Kernels without this counter (before
    /// 5.4) are assumed in order.
    pub(crate) fn is_in_order(&mut self, stream: impl AsFd) -> bool {
        let count = tcp_info::read(stream).ok().and_then(|info| info.receive_out_of_order_count).unwrap_or(0);
        std::mem::replace(&mut self.out_of_order_count, count) == count
    }
}
