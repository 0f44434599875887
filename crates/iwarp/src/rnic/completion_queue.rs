//! Completion queues.

use std::sync::Arc;

use crate::{
    rnic::{CompletionChannel, Rnic, VerbsError},
    work::Completion,
};

/// Which completion raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next one.
    Next,
    /// The next that the peer solicited, or that is in error.
    Solicited,
}

/// The queue got more completions than it holds and is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("completion queue overran: create it with room for all requests outstanding")]
pub struct Overrun;

/// A completion queue. Clones name the same one.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {}

impl CompletionQueue {
    /// A queue for `capacity` completions. With a channel, its events carry
    /// `token`; asynchronous events carry it too.
    pub fn new(
        rnic: &Rnic,
        capacity: u32,
        token: u64,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, VerbsError> {
        let _ = (rnic, capacity, token, channel);
        Ok(Self { shared: Arc::new(Shared {}) })
    }

    /// Takes completions into `into`, oldest first; how many there were. With
    /// inline progress an empty queue first looks at its sockets.
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize, Overrun> {
        let _ = (into, &self.shared);
        Ok(0)
    }

    /// Takes the oldest completion.
    pub fn poll_one(&self) -> Result<Option<Completion>, Overrun> {
        Ok(None)
    }

    /// Asks for one event on the channel. Completions that are in the queue
    /// already raise none: poll again after arming.
    pub fn arm(&self, notify: Notify) -> Result<(), Overrun> {
        let _ = notify;
        Ok(())
    }
}
