//! Asynchronous events: what happens to an object and completes no request.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use crate::{
    queue_pair::Failure,
    rdmap::Terminate,
    rnic::{VerbsError, channel::Signalled},
    stag::QueuePairId,
};

/// Events that wait for a program that does not look.
const MOST_EVENTS: usize = 1024;

/// What happened. Queues are named by the number that their creator chose.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A responder's peer sent its first FPDU: this side may send from now on
    /// (RFC 5044, section 7.1.2). Requests posted earlier have waited.
    Established {
        /// Whose connection.
        queue_pair: QueuePairId,
    },
    /// The peer closed the connection, or it is lost.
    Disconnected {
        /// Whose connection.
        queue_pair: QueuePairId,
        /// Why; `None` when the peer closed between two messages.
        failure: Option<Failure>,
    },
    /// The peer sent a Terminate: it found an error in what we sent.
    TerminateReceived {
        /// Whose connection.
        queue_pair: QueuePairId,
        /// Layer, type and code, and what it was about.
        terminate: Terminate,
    },
    /// We sent a Terminate: the peer broke a rule, or reached for memory that
    /// it may not have.
    TerminateSent {
        /// Whose connection.
        queue_pair: QueuePairId,
        /// Layer, type and code, and what it was about.
        terminate: Terminate,
    },
    /// More completions than a queue holds. It is lost, and so are the queue
    /// pairs that complete there.
    CompletionQueueOverrun {
        /// The number it was created with.
        token: u64,
    },
    /// A shared receive queue fell below its limit, which is now off.
    SharedReceiveQueueLimit {
        /// The number it was created with.
        token: u64,
    },
}

/// The queue of asynchronous events of an RNIC. Its descriptor is readable
/// while an event waits. It holds the latest 1024.
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    queue: Arc<Signalled<AsyncEvent>>,
}

impl AsyncEvents {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        Ok(Self { queue: Arc::new(Signalled::new()?) })
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        self.queue.push(event, MOST_EVENTS);
    }

    /// The oldest event; waits for one up to `timeout` (`None`: for ever).
    /// With inline progress nothing happens while a program only waits here.
    pub fn next(&self, timeout: Option<Duration>) -> Option<AsyncEvent> {
        self.queue.next(timeout)
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
