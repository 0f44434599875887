//! Inbox of a connection: requests posted for its engine.
//!
//! The only state that posters and the engine have in common: what an engine
//! writes while it polls is on other cache lines, and it takes all requests at
//! once, so that no poster waits while they are processed.

use std::collections::VecDeque;

use crate::{
    queue_pair::PostError,
    rnic::{CachePadded, ListError, doorbell::Doorbell, shared_receive_queue::post_each},
    sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError},
    work::SendRequest,
};

/// Posted requests for an engine.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    posted: CachePadded<Posted>,
    /// Sends in the state machine at its last visit; written under the mutex of
    /// the requests when they are moved.
    outstanding: CachePadded<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Posted {
    queue: Mutex<Queue>,
    /// Number of queued requests, readable without the mutex.
    waiting: AtomicUsize,
    /// Rung when the connection has new requests.
    doorbell: Doorbell,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<SendRequest>,
    /// Number of requests that can be posted before `outstanding` is read
    /// again: it can only have decreased meanwhile.
    room: usize,
}

impl Posted {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// Appends requests; at most `depth` may be queued here and in the state
    /// machine.
    pub(super) fn post(
        &self,
        requests: impl IntoIterator<Item = SendRequest>,
        depth: usize,
        check: impl Fn(&SendRequest) -> Result<(), PostError>,
    ) -> Result<(), ListError> {
        let posted = &self.posted.0;
        let mut queue = posted.queue();
        let outcome = post_each(requests, |request| {
            if queue.room == 0 {
                let used = queue.requests.len() + self.outstanding.0.load(Ordering::Acquire);
                queue.room = depth.saturating_sub(used);
            }
            if queue.room == 0 {
                return Err(PostError::Full);
            }
            check(&request)?;
            queue.room -= 1;
            queue.requests.push_back(request);
            Ok(())
        });
        posted.waiting.store(queue.requests.len(), Ordering::Release);
        outcome
    }

    /// Moves all requests into `into`, which is empty; returns whether there
    /// were any. From here on they count as outstanding, in addition to the
    /// `outstanding` ones of the state machine.
    pub(super) fn take(&self, into: &mut VecDeque<SendRequest>, outstanding: usize) -> bool {
        let posted = &self.posted.0;
        if posted.waiting.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut queue = posted.queue();
        posted.waiting.store(0, Ordering::Release);
        self.outstanding.0.store(outstanding + queue.requests.len(), Ordering::Release);
        // The buffers are swapped, so that their capacity is reused.
        std::mem::swap(&mut queue.requests, into);
        true
    }

    /// Drains requests that no state machine will process, in order, also with
    /// concurrent callers.
    pub(super) fn empty(&self, mut each: impl FnMut(SendRequest)) {
        let mut queue = self.posted.0.queue();
        self.posted.0.waiting.store(0, Ordering::Release);
        while let Some(request) = queue.requests.pop_front() {
            each(request);
        }
    }

    /// Sets the number of sends in the state machine.
    pub(super) fn settle(&self, outstanding: usize) {
        if self.outstanding.0.load(Ordering::Relaxed) != outstanding {
            self.outstanding.0.store(outstanding, Ordering::Release);
        }
    }

    /// Returns the doorbell to ring after posting.
    pub(super) fn doorbell(&self) -> &Doorbell {
        &self.posted.0.doorbell
    }
}
