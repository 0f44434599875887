//! Posted receives: a queue of one queue pair, or one that several share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::PostError;
use crate::work::ReceiveRequest;

/// Receives in the order in which messages take them.
#[derive(Debug)]
pub struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    capacity: usize,
    segments: usize,
    limit: Option<usize>,
}

/// Where a queue pair takes its receives from.
#[derive(Debug)]
pub enum Receives {
    /// A queue of its own. Its consumer posts to it without waiting for the
    /// machine, which may be busy with its socket.
    Own(Arc<Mutex<ReceiveQueue>>),
    /// A queue that other queue pairs use too.
    Shared(Arc<Mutex<ReceiveQueue>>),
}

impl ReceiveQueue {
    /// A queue for so many requests of so many segments each.
    #[must_use]
    pub fn new(capacity: usize, segments: usize) -> Self {
        Self { requests: VecDeque::new(), capacity, segments, limit: None }
    }

    /// Adds a receive at the end.
    ///
    /// # Errors
    /// The queue is full, or the request has too many segments.
    pub fn post(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        if self.requests.len() >= self.capacity {
            return Err(PostError::Full);
        }
        if request.segments.len() > self.segments {
            return Err(PostError::Segments);
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Asks for one event as soon as fewer than `limit` requests are left.
    pub fn arm(&mut self, limit: usize) {
        self.limit = Some(limit);
    }

    /// How many receives are posted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// No receive is posted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The oldest receive; the flag says that the limit was just passed.
    pub fn take(&mut self) -> (Option<ReceiveRequest>, bool) {
        let request = self.requests.pop_front();
        let low = self.limit.is_some_and(|limit| self.requests.len() < limit);
        if low {
            self.limit = None;
        }
        (request, low)
    }
}

impl Receives {
    /// The oldest receive; the flag says that a limit was just passed.
    pub(super) fn take(&mut self) -> (Option<ReceiveRequest>, bool) {
        match self {
            Self::Own(queue) | Self::Shared(queue) => locked(queue).take(),
        }
    }

    /// Adds a receive to a queue of the queue pair's own.
    pub(super) fn post(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        match self {
            Self::Own(queue) => locked(queue).post(request),
            Self::Shared(_) => Err(PostError::SharedReceives),
        }
    }

    /// What comes back when the queue pair ends: nothing of a shared queue.
    pub(super) fn flushed(&mut self) -> Option<ReceiveRequest> {
        match self {
            Self::Own(queue) => locked(queue).take().0,
            Self::Shared(_) => None,
        }
    }
}

fn locked(queue: &Mutex<ReceiveQueue>) -> MutexGuard<'_, ReceiveQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
