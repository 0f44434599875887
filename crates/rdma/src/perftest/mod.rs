//! The protocol of perftest's programs over rdma_cm (`ib_send_bw -R` and the
//! others), both roles, so that they can be the peer of a measurement.
//!
//! It has no specification; this implementation follows the programs and
//! captured connections. A control connection (`control`, `format`) exchanges
//! messages until both sides have each other's memory; the load generator
//! (`generator`) then uses the data queue pairs, and a last message on the
//! control connection ends the test. Sizes and counts are not transmitted: both
//! sides must be started with the same.

mod client;
mod control;
pub mod format;
mod server;

pub use client::{measure, settle};
pub use format::Report;
pub use server::{Served, Server, ServerEvent, ServerOptions};

use clearstream_schema::rdma::RdmaOperation;

use crate::negotiation::Layout;

/// Default port of perftest.
pub const PORT: u16 = 18_515;
/// Default number of receives of its servers.
pub const DEFAULT_RECEIVES: u32 = 512;
/// Minimum slot size: clients cycle through a buffer of this size.
const MIN_SLOT_BYTES: u64 = 4096;

/// A program of perftest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Measured operation.
    pub operation: RdmaOperation,
    /// Whether it measures latency, one message at a time.
    pub latency: bool,
}

impl Program {
    /// Returns the name of the program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.operation, self.latency) {
            (RdmaOperation::Send, false) => "ib_send_bw",
            (RdmaOperation::Send, true) => "ib_send_lat",
            (RdmaOperation::Write, false) => "ib_write_bw",
            (RdmaOperation::Write, true) => "ib_write_lat",
            (RdmaOperation::Read, false) => "ib_read_bw",
            (RdmaOperation::Read, true) => "ib_read_lat",
        }
    }

    /// Returns the queue pair index of each destination exchange after the
    /// connections: one after the other, and some repeated that only
    /// synchronize.
    fn destination_order(self, queue_pairs: usize) -> Vec<usize> {
        let (before, between): (usize, usize) = match (self.operation, self.latency) {
            (RdmaOperation::Send, _) => (0, 1),
            (_, false) => (0, 0),
            (_, true) => (1, 0),
        };
        let first = |count: usize| std::iter::repeat_n(0, count);
        let order = first(before).chain(0..queue_pairs).chain(first(between));
        order.chain(0..queue_pairs).chain(first(1)).collect()
    }

    /// Whether the client reports its results at its end.
    fn reports(self) -> bool {
        !self.latency && self.operation != RdmaOperation::Send
    }

    /// Whether the client ends with a message, and not only by closing the
    /// connections.
    fn synchronizes_at_end(self) -> bool {
        !self.is_write_latency()
    }

    /// Whether both sides must know the size: one of them polls the last byte,
    /// or posts receives of that size.
    fn has_one_size(self) -> bool {
        self.operation == RdmaOperation::Send || self.is_write_latency()
    }

    /// Whether it is `ib_write_lat`, whose server writes first.
    fn is_write_latency(self) -> bool {
        self.latency && self.operation == RdmaOperation::Write
    }
}

/// Returns memory and queue sizes for messages up to this size.
fn layout(largest_bytes: u64, depth: u32, queue_pairs: u16) -> Layout {
    Layout {
        slot_bytes: largest_bytes.max(MIN_SLOT_BYTES).next_multiple_of(64),
        slots: 1,
        depth,
        signal_interval: (depth / 4).max(1),
        queue_pairs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of destinations that each program exchanges between the
    /// connection of one queue pair and the first message, counted in captures
    /// of two Linux peers (fixtures/iwarp/perftest-*.pcap).
    #[test]
    fn programs_exchange_destinations_as_often_as_captured() {
        use RdmaOperation::{Read, Send, Write};
        for (operation, latency, count) in [
            (Send, false, 4),
            (Send, true, 4),
            (Write, false, 3),
            (Write, true, 4),
            (Read, false, 3),
            (Read, true, 4),
        ] {
            let program = Program { operation, latency };
            assert_eq!(program.destination_order(1).len(), count, "{}", program.name());
        }
        let two = Program { operation: Send, latency: false }.destination_order(2);
        assert_eq!(two, [0, 1, 0, 0, 1, 0]);
    }
}
