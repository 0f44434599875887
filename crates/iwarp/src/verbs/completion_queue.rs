//! Completion queues that return buffers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use crate::{
    rnic::{self, CompletionChannel, Notify, Overrun, Rnic, VerbsError},
    stag::QueuePairId,
    verbs::buffers::{Buffers, Flight, locked, reclaim},
    work::{Completed, Completion},
};

/// A completion with the buffers of its requests.
#[derive(Debug)]
pub struct Finished {
    /// The completion.
    pub completion: Completion,
    /// The request's buffers, after those of earlier unsignaled requests.
    pub buffers: Buffers,
}

/// A completion queue. Clones refer to the same queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(super) raw: rnic::CompletionQueue,
    flights: Arc<Mutex<HashMap<QueuePairId, Weak<Flight>>>>,
}

impl CompletionQueue {
    /// Creates a queue for `capacity` completions.
    ///
    /// # Errors
    /// The capacity is out of range.
    pub fn new(rnic: &Rnic, capacity: u32) -> Result<Self, VerbsError> {
        Ok(Self { raw: rnic::CompletionQueue::new(rnic, capacity, 0, None)?, flights: Arc::default() })
    }

    /// Creates a queue whose events are reported by `channel` with the number
    /// `token`.
    ///
    /// # Errors
    /// The capacity is out of range, or there is no descriptor left.
    pub fn with_channel(
        rnic: &Rnic,
        capacity: u32,
        channel: &CompletionChannel,
        token: u64,
    ) -> Result<Self, VerbsError> {
        let raw = rnic::CompletionQueue::new(rnic, capacity, token, Some(channel))?;
        Ok(Self { raw, flights: Arc::default() })
    }

    /// Polls the oldest completion. With inline progress an empty queue first
    /// polls its sockets.
    ///
    /// # Errors
    /// [`Overrun`], after the completions that fit were returned.
    pub fn poll(&self) -> Result<Option<Finished>, Overrun> {
        while let Some(completion) = self.raw.poll_one()? {
            if let Some(finished) = self.finish(completion) {
                return Ok(Some(finished));
            }
        }
        Ok(None)
    }

    /// Polls for a short while, then sleeps, until there is a completion or
    /// `timeout` expires.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<Finished>, Overrun> {
        while let Some(completion) = self.raw.wait(timeout)? {
            if let Some(finished) = self.finish(completion) {
                return Ok(Some(finished));
            }
        }
        Ok(None)
    }

    /// Inline progress: polls the sockets and makes progress, as an empty poll
    /// does, without taking a completion; returns whether there was progress.
    /// For a program that waits for a peer's Write in its memory.
    pub fn progress(&self) -> bool {
        self.raw.progress()
    }

    /// Requests one event on the channel. Completions already in the queue
    /// generate none: poll again after arming.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    pub fn arm(&self, notify: Notify) -> Result<(), Overrun> {
        self.raw.arm(notify)
    }

    pub(super) fn add(&self, id: QueuePairId, flight: &Arc<Flight>) {
        locked(&self.flights).insert(id, Arc::downgrade(flight));
    }

    pub(super) fn remove(&self, id: QueuePairId) {
        locked(&self.flights).remove(&id);
    }

    /// Adds the consumer's identifier and buffers; `None` when the queue pair
    /// was destroyed meanwhile.
    fn finish(&self, mut completion: Completion) -> Option<Finished> {
        let flight = locked(&self.flights).get(&completion.queue_pair)?.upgrade()?;
        let mut buffers = Buffers::new();
        completion.id = match completion.completed {
            Completed::Receive | Completed::ReceiveImmediate | Completed::ReceiveWritten => {
                let (id, loans) = locked(&flight.receives).remove(completion.id)?;
                reclaim(loans, &mut buffers);
                id
            }
            _ => locked(&flight.sends).finish(completion.id, &mut buffers)?,
        };
        Some(Finished { completion, buffers })
    }
}
