//! Receive queues: of one queue pair, or shared.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::PostError;
use crate::work::ReceiveRequest;

/// Posted receives in the order in which messages consume them.
#[derive(Debug)]
pub struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    capacity: usize,
    segments: usize,
    limit: Option<usize>,
    /// A message found it empty.
    missed: bool,
}

/// Receive queue of a queue pair.
#[derive(Debug)]
pub enum Receives {
    /// Its own queue. The consumer posts without waiting for the state machine,
    /// which may be in a socket call.
    Own(Arc<Mutex<ReceiveQueue>>),
    /// Shared receive queue.
    Shared(Arc<Mutex<ReceiveQueue>>),
}

impl ReceiveQueue {
    /// Creates a queue for `capacity` requests of at most `segments` segments
    /// each.
    #[must_use]
    pub fn new(capacity: usize, segments: usize) -> Self {
        Self { requests: VecDeque::new(), capacity, segments, limit: None, missed: false }
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

    /// Requests one event as soon as fewer than `limit` requests are left.
    pub fn arm(&mut self, limit: usize) {
        self.limit = Some(limit);
    }

    /// Whether a message has found it empty since the last call.
    pub fn take_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }

    /// Returns the number of posted receives.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Removes the oldest receive; the flag reports that the limit was just
    /// crossed.
    pub fn take(&mut self) -> (Option<ReceiveRequest>, bool) {
        let request = self.requests.pop_front();
        self.missed |= request.is_none();
        let low = self.limit.is_some_and(|limit| self.requests.len() < limit);
        if low {
            self.limit = None;
        }
        (request, low)
    }
}

impl Receives {
    /// Removes the oldest receive; the flag reports that a limit was just
    /// crossed.
    pub(super) fn take(&mut self) -> (Option<ReceiveRequest>, bool) {
        match self {
            Self::Own(queue) | Self::Shared(queue) => locked(queue).take(),
        }
    }

    /// Posts to the queue pair's own queue.
    pub(super) fn post(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        match self {
            Self::Own(queue) => locked(queue).post(request),
            Self::Shared(_) => Err(PostError::SharedReceives),
        }
    }

    /// Removes a receive to be flushed at the end of the queue pair; none of a
    /// shared queue.
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
