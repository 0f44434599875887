//! Lifecycle of a queue pair, and the completion of requests that it does not
//! process.

use crate::{
    stag::QueuePairId,
    work::{Completed, Completion, Status},
};

/// Lifecycle of a queue pair, as posters see it without locking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Never connected.
    New,
    /// Connection setup in progress.
    Connecting,
    /// Connected: has a state machine.
    Connected,
    /// Closed.
    Closed,
}

/// Completion of a request that was not processed.
pub(super) fn flushed(queue_pair: QueuePairId, id: u64, completed: Completed) -> Completion {
    Completion {
        id,
        queue_pair,
        completed,
        status: Status::Flushed,
        bytes: 0,
        immediate: None,
        invalidated: None,
        solicited: false,
    }
}
