//! The exchange of perftest's programs over rdma_cm (`ib_send_bw -R` and its
//! kin), both roles, so that they can be the other end of a measurement.
//!
//! It has no document; the facts are those of the programs and of captured
//! conversations. A connection of its own carries the talk ([`control`],
//! [`words`]): the client says something, the server answers in kind, until
//! both know each other's memory. Then requests flow over the queue pairs
//! ([`traffic`], [`latency`]), and a last word on the first connection ends
//! the test. Sizes and counts are never told: people give both ends the same.

pub mod bandwidth;
pub mod client;
pub mod control;
pub mod format;
pub mod intake;
pub mod latency;
pub mod server;

use clearstream_schema::rdma::RdmaOperation;

use crate::negotiation::Shape;

/// Port of perftest.
pub const PORT: u16 = 18_515;
/// Receives that its servers post when they are not told otherwise.
pub const RECEIVES: u32 = 512;
/// Least bytes of a place for messages: its clients walk through so many.
const LEAST_PLACE_BYTES: u64 = 4096;

/// One of perftest's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// What it does.
    pub operation: RdmaOperation,
    /// One message at a time.
    pub latency: bool,
}

impl Program {
    /// Its name.
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

    /// Whose place each of the first words is about, once the queue pairs are
    /// connected: that of one queue pair after the other, and some more that
    /// only keep step.
    #[must_use]
    pub fn introductions(self, lanes: usize) -> Vec<usize> {
        let (before, between): (usize, usize) = match (self.operation, self.latency) {
            (RdmaOperation::Send, _) => (0, 1),
            (_, false) => (0, 0),
            (_, true) => (1, 0),
        };
        let step = |count: usize| std::iter::repeat_n(0, count);
        step(before).chain(0..lanes).chain(step(between)).chain(0..lanes).chain(step(1)).collect()
    }

    /// The client tells its figures before its last word.
    #[must_use]
    pub fn reports(self) -> bool {
        !self.latency && self.operation != RdmaOperation::Send
    }

    /// The client ends the talk with a word, and not only the connections.
    #[must_use]
    pub fn takes_leave(self) -> bool {
        !(self.latency && self.operation == RdmaOperation::Write)
    }

    /// Both ends must know the size: one of them looks at the last byte, or
    /// has a receive of it.
    #[must_use]
    pub fn one_size(self) -> bool {
        self.operation == RdmaOperation::Send || self.latency && self.operation == RdmaOperation::Write
    }
}

/// Memory and queues for messages up to this size.
fn shape(largest: u64, depth: u32, lanes: u16) -> Shape {
    Shape {
        slot_bytes: largest.max(LEAST_PLACE_BYTES).next_multiple_of(64),
        slots: 1,
        depth,
        signal_every: (depth / 4).max(1),
        lanes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each program's client tells its place between the connection
    /// of one queue pair and the first message, counted in conversations of
    /// two Linux peers (fixtures/iwarp/perftest-*.pcap).
    #[test]
    fn programs_introduce_themselves_as_often_as_captured() {
        use RdmaOperation::{Read, Send, Write};
        for (operation, latency, words) in [
            (Send, false, 4),
            (Send, true, 4),
            (Write, false, 3),
            (Write, true, 4),
            (Read, false, 3),
            (Read, true, 4),
        ] {
            let program = Program { operation, latency };
            assert_eq!(program.introductions(1).len(), words, "{}", program.name());
        }
        let two = Program { operation: Send, latency: false }.introductions(2);
        assert_eq!(two, [0, 1, 0, 0, 1, 0]);
    }
}
