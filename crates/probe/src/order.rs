//! Whether the stamp of what was read from a TCP connection is that of its
//! delivery.
//!
//! A read has the stamp of the last segment in it. Behind a segment that was
//! lost, later ones wait for its retransmission, and all of them are read at
//! once: the stamp then lies before the retransmission came, by the whole time
//! that the data was not there to be read.

use std::os::fd::AsFd;

use clearstream_sys::tcp_info;

/// Counts the segments that came out of order on one connection.
#[derive(Debug, Default)]
pub(crate) struct Order {
    out_of_order_count: u32,
}

impl Order {
    /// Nothing came out of order since the last call. Kernels that do not
    /// count it (before 5.4) are believed.
    pub(crate) fn is_kept(&mut self, stream: impl AsFd) -> bool {
        let count = tcp_info::read(stream).ok().and_then(|info| info.receive_out_of_order_count).unwrap_or(0);
        std::mem::replace(&mut self.out_of_order_count, count) == count
    }
}
