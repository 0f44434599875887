//! What a connection moved, and which kind of thread moved it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of a thread that moves bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mover {
    /// A thread of the program, in a call.
    #[default]
    Program,
    /// The helper of adaptive progress.
    Helper,
    /// An engine.
    Engine,
}

/// Statistics of a queue pair's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairStatistics {
    /// Requests that were accepted by the send queue.
    pub sends: u64,
    /// Receives that completed with a message.
    pub receives: u64,
    /// By calls of the program.
    pub by_program: Moved,
    /// By the helper thread of adaptive progress.
    pub by_helper: Moved,
    /// By an engine thread.
    pub by_engine: Moved,
}

/// What one kind of thread moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Visits of the socket that moved bytes or completed requests.
    pub visits: u64,
    /// Bytes of the TCP stream that were sent.
    pub sent_bytes: u64,
    /// Bytes of the TCP stream that were received.
    pub received_bytes: u64,
}

impl QueuePairStatistics {
    /// Bytes of the TCP stream that were sent.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.by_program.sent_bytes + self.by_helper.sent_bytes + self.by_engine.sent_bytes
    }

    /// Bytes of the TCP stream that were received.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.by_program.received_bytes + self.by_helper.received_bytes + self.by_engine.received_bytes
    }
}

/// Counters, written under the lock of the transport only.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sends: Counter,
    pub(super) receives: Counter,
    moved: [[Counter; 3]; 3],
}

/// A counter with one writer at a time.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Adds a visit with progress.
    pub(super) fn add_visit(&self, by: Mover, sent: usize, received: usize) {
        let [visits, sent_bytes, received_bytes] = &self.moved[by as usize];
        visits.add(1);
        sent_bytes.add(sent as u64);
        received_bytes.add(received as u64);
    }

    pub(super) fn read(&self) -> QueuePairStatistics {
        let moved = |by: Mover| {
            let [visits, sent_bytes, received_bytes] = &self.moved[by as usize];
            Moved { visits: visits.get(), sent_bytes: sent_bytes.get(), received_bytes: received_bytes.get() }
        };
        QueuePairStatistics {
            sends: self.sends.get(),
            receives: self.receives.get(),
            by_program: moved(Mover::Program),
            by_helper: moved(Mover::Helper),
            by_engine: moved(Mover::Engine),
        }
    }
}
