//! Asynchronous events: changes of an object that complete no request.

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

/// Maximum number of queued events.
const EVENTS_MAX: usize = 1024;

/// Asynchronous event. Queues are identified by the token of their creation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A responder received the initiator's first FPDU: it may send from now on
    /// (RFC 5044, section 7.1.2). Requests posted earlier have waited.
    Established {
        /// Queue pair of the connection.
        queue_pair: QueuePairId,
    },
    /// The peer closed the connection, or it was lost.
    Disconnected {
        /// Queue pair of the connection.
        queue_pair: QueuePairId,
        /// Reason; `None` when the peer closed between two messages.
        failure: Option<Failure>,
    },
    /// The peer sent a Terminate: it detected an error of this side.
    TerminateReceived {
        /// Queue pair of the connection.
        queue_pair: QueuePairId,
        /// Error and quoted headers.
        terminate: Terminate,
    },
    /// This side sent a Terminate: the peer violated the protocol, or accessed
    /// memory without permission.
    TerminateSent {
        /// Queue pair of the connection.
        queue_pair: QueuePairId,
        /// Error and quoted headers.
        terminate: Terminate,
    },
    /// A completion queue overran. It is unusable, and its queue pairs have
    /// failed.
    CompletionQueueOverrun {
        /// Token of the queue.
        token: u64,
    },
    /// A shared receive queue fell below its limit, which is now disarmed.
    SharedReceiveQueueLimit {
        /// Token of the queue.
        token: u64,
    },
}

/// The queue of asynchronous events of an RNIC. Its descriptor is readable
/// while it is not empty. It holds the latest 1024 events.
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    queue: Arc<Signalled<AsyncEvent>>,
}

impl AsyncEvents {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        Ok(Self { queue: Arc::new(Signalled::new()?) })
    }

    pub(crate) fn push(&self, event: AsyncEvent) {
        self.queue.push(event, EVENTS_MAX);
    }

    /// Returns the oldest event; waits up to `timeout` (`None`: without limit).
    /// With inline progress a program that only waits here makes no progress.
    pub fn next(&self, timeout: Option<Duration>) -> Option<AsyncEvent> {
        self.queue.next(timeout)
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
