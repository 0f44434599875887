//! Event channels: queues with a descriptor that `poll` can wait for.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::rnic::{Rnic, VerbsError};

/// A queue whose descriptor is readable while something is in it.
#[derive(Debug)]
pub(crate) struct Signalled<T> {
    queue: Mutex<VecDeque<T>>,
    descriptor: OwnedFd,
}

impl<T> Signalled<T> {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| VerbsError::System { step: "event descriptor", source: error.into() })?;
        Ok(Self { queue: Mutex::default(), descriptor })
    }

    pub(crate) fn push(&self, item: T) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(item);
        if queue.len() == 1 {
            // The counter is far from its end: it is cleared when the queue
            // is empty.
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn try_next(&self) -> Option<T> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let item = queue.pop_front()?;
        if queue.is_empty() {
            let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
        }
        Some(item)
    }

    pub(crate) fn next(&self, timeout: Option<Duration>) -> Option<T> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(item) = self.try_next() {
                return Some(item);
            }
            if !readable(self.descriptor.as_fd(), end) {
                return self.try_next();
            }
        }
    }
}

impl<T> AsFd for Signalled<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Waits until a descriptor is readable; false when the time was over before.
pub(crate) fn readable(descriptor: BorrowedFd<'_>, end: Option<Instant>) -> bool {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| left.try_into().ok());
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// A completion event channel: tells which armed completion queue got a
/// completion. With inline progress its descriptor is also readable while a
/// socket has something to do, and [`CompletionChannel::next`] does it.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    pub(crate) events: Arc<Signalled<u64>>,
}

impl CompletionChannel {
    /// A channel without queues.
    pub fn new(_rnic: &Rnic) -> Result<Self, VerbsError> {
        Ok(Self { events: Arc::new(Signalled::new()?) })
    }

    /// The number of the next queue that has an event (the queue is disarmed
    /// then); waits up to `timeout` (`None`: for ever).
    pub fn next(&self, timeout: Option<Duration>) -> Option<u64> {
        self.events.next(timeout)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
