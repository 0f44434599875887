//! Completion queues that give buffers back.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use crate::{
    rnic::{self, CompletionChannel, Notify, Overrun, Rnic, VerbsError},
    stag::QueuePairId,
    verbs::buffers::{Buffers, Flight, locked, take_back},
    work::{Completed, Completion},
};

/// A completion with the buffers that it gives back.
#[derive(Debug)]
pub struct Finished {
    /// What ended, and how.
    pub completion: Completion,
    /// The request's buffers, after those of earlier requests without a
    /// completion of their own.
    pub buffers: Buffers,
}

/// A completion queue. Clones name the same one.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(super) raw: rnic::CompletionQueue,
    flights: Arc<Mutex<HashMap<QueuePairId, Weak<Flight>>>>,
}

impl CompletionQueue {
    /// A queue for `capacity` completions.
    ///
    /// # Errors
    /// The capacity is out of range.
    pub fn new(rnic: &Rnic, capacity: u32) -> Result<Self, VerbsError> {
        Ok(Self { raw: rnic::CompletionQueue::new(rnic, capacity, 0, None)?, flights: Arc::default() })
    }

    /// A queue whose events come out of `channel` with the number `token`.
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

    /// The oldest completion, if there is one. With inline progress an empty
    /// queue first looks at its sockets.
    ///
    /// # Errors
    /// [`Overrun`], after what had room was taken.
    pub fn poll(&self) -> Result<Option<Finished>, Overrun> {
        while let Some(completion) = self.raw.poll_one()? {
            if let Some(finished) = self.finish(completion) {
                return Ok(Some(finished));
            }
        }
        Ok(None)
    }

    /// Appends up to `most` completions to `into`; how many.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`], when there were none.
    pub fn poll_into(&self, into: &mut Vec<Finished>, most: usize) -> Result<usize, Overrun> {
        let mut count = 0;
        while count < most {
            match self.poll() {
                Ok(Some(finished)) => into.push(finished),
                Err(overrun) if count == 0 => return Err(overrun),
                Ok(None) | Err(_) => break,
            }
            count += 1;
        }
        Ok(count)
    }

    /// Polls for a short while, then sleeps, until there is a completion or
    /// `timeout` is over.
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

    /// Inline: looks at the sockets and moves what can be moved, as an empty
    /// poll does, and takes no completion; whether something moved. For a
    /// program that waits for a peer's Write in its memory.
    pub fn progress(&self) -> bool {
        self.raw.progress()
    }

    /// Asks for one event on the channel. Completions that are in the queue
    /// already raise none: poll again after arming.
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

    /// With the consumer's number and buffers; `None` when the queue pair was
    /// destroyed meanwhile.
    fn finish(&self, mut completion: Completion) -> Option<Finished> {
        let flight = locked(&self.flights).get(&completion.queue_pair)?.upgrade()?;
        let mut buffers = Buffers::new();
        completion.id = match completion.completed {
            Completed::Receive | Completed::ReceiveImmediate => {
                let (id, loans) = locked(&flight.receives).remove(completion.id)?;
                take_back(loans, &mut buffers);
                id
            }
            _ => locked(&flight.sends).finish(completion.id, &mut buffers)?,
        };
        Some(Finished { completion, buffers })
    }
}
