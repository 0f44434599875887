//! Requests on their way from their posters to the engine of a connection.
//!
//! A poster and an engine meet here and nowhere else: what an engine writes
//! while it looks for work is on other cache lines, and it takes all requests
//! at once, so that nobody waits while they go to the machine.

use std::collections::VecDeque;

use crate::{
    queue_pair::PostError,
    rnic::{Apart, ListError, doorbell::Bell, shared_receive_queue::post_each},
    sync::{AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError},
    work::SendRequest,
};

/// What posters leave for an engine.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    posted: Apart<Posted>,
    /// Sends with the machine, as of its last visit; written under the mutex
    /// of the requests when they move over.
    outstanding: Apart<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Posted {
    queue: Mutex<Queue>,
    /// How many are in the queue, for a look without its mutex.
    waiting: AtomicUsize,
    /// Left for the engine with the connection.
    bell: Bell,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<SendRequest>,
    /// So many can be posted before what is outstanding is looked at again:
    /// meanwhile that can only have become less.
    room: usize,
}

impl Posted {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    /// Adds requests at the end; at most `depth` may be here and with the
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
                let taken = queue.requests.len() + self.outstanding.0.load(Ordering::Acquire);
                queue.room = depth.saturating_sub(taken);
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

    /// Takes all requests into `into`, which is empty; whether there were any.
    /// From here on they count as outstanding, with the `outstanding` ones that
    /// the machine has.
    pub(super) fn take(&self, into: &mut VecDeque<SendRequest>, outstanding: usize) -> bool {
        let posted = &self.posted.0;
        if posted.waiting.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut queue = posted.queue();
        posted.waiting.store(0, Ordering::Release);
        self.outstanding.0.store(outstanding + queue.requests.len(), Ordering::Release);
        // The room that the emptied one has goes round.
        std::mem::swap(&mut queue.requests, into);
        true
    }

    /// Takes requests that no machine will have, in their order, whoever else
    /// does so too.
    pub(super) fn empty(&self, mut each: impl FnMut(SendRequest)) {
        let mut queue = self.posted.0.queue();
        self.posted.0.waiting.store(0, Ordering::Release);
        while let Some(request) = queue.requests.pop_front() {
            each(request);
        }
    }

    /// How many sends the machine has now.
    pub(super) fn settle(&self, outstanding: usize) {
        if self.outstanding.0.load(Ordering::Relaxed) != outstanding {
            self.outstanding.0.store(outstanding, Ordering::Release);
        }
    }

    /// For who has posted.
    pub(super) fn bell(&self) -> &Bell {
        &self.posted.0.bell
    }
}
