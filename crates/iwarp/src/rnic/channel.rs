//! Event channels: queues with a pollable file descriptor.

use std::{
    collections::VecDeque,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll},
    io::Errno,
};
use smallvec::SmallVec;

use crate::rnic::{VerbsError, after, completion_queue::Shared, locked};

/// Maximum number of events per epoll_wait.
const EVENTS: usize = 64;

/// A queue whose descriptor counts its items, as a semaphore (eventfd(2)):
/// readable while it is not empty.
#[derive(Debug)]
pub(crate) struct Signalled<T> {
    queue: Mutex<VecDeque<T>>,
    descriptor: OwnedFd,
}

impl<T> Signalled<T> {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)
            .map_err(|error| VerbsError::System { step: "event descriptor", source: error.into() })?;
        Ok(Self { queue: Mutex::default(), descriptor })
    }

    /// Appends an item; beyond `most` items the oldest is dropped.
    pub(crate) fn push(&self, item: T, most: usize) {
        let mut queue = locked(&self.queue);
        let is_counted = queue.len() >= most && queue.pop_front().is_some();
        queue.push_back(item);
        if !is_counted {
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn try_next(&self) -> Option<T> {
        let mut queue = locked(&self.queue);
        let item = queue.pop_front()?;
        let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
        Some(item)
    }

    /// Takes the item that the caller counted by a read of the descriptor.
    fn counted(&self) -> Option<T> {
        locked(&self.queue).pop_front()
    }

    pub(crate) fn next(&self, timeout: Option<Duration>) -> Option<T> {
        let end = timeout.map(after);
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

/// Waits until a descriptor is readable; false on timeout.
pub(crate) fn readable(descriptor: BorrowedFd<'_>, end: Option<Instant>) -> bool {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| left.try_into().ok());
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Returns the identifiers of the ready descriptors of an epoll.
pub(super) fn ready(epoll: BorrowedFd<'_>, into: &mut Vec<u64>) -> io::Result<()> {
    let mut events = [MaybeUninit::uninit(); EVENTS];
    match epoll::wait(epoll, &mut events, Some(&Timespec::default())) {
        Ok((events, _)) => into.extend(events.iter().map(|event| event.data.u64())),
        // Interrupted: the caller polls again.
        Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A completion event channel: reports which armed completion queue got a
/// completion. With inline progress its descriptor is also readable while a
/// socket of its queues is ready, and [`CompletionChannel::next`] processes it.
/// Clones refer to the same channel.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    inside: Arc<Inside>,
}

#[derive(Debug)]
struct Inside {
    events: Signalled<u64>,
    /// Watches the event queue and the sockets of all queues with inline
    /// progress.
    epoll: OwnedFd,
    queues: Mutex<Vec<Weak<Shared>>>,
}

impl CompletionChannel {
    /// Creates a channel; completion queues are attached when they are created.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> Result<Self, VerbsError> {
        let events = Signalled::new()?;
        let failed = |error: Errno| VerbsError::System { step: "completion channel", source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &events, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(failed)?;
        Ok(Self { inside: Arc::new(Inside { events, epoll, queues: Mutex::default() }) })
    }

    /// Returns the token of the next queue with an event and disarms that
    /// queue; waits up to `timeout` (`None`: without limit).
    #[must_use]
    pub fn next(&self, timeout: Option<Duration>) -> Option<u64> {
        let inside = &*self.inside;
        let end = timeout.map(after);
        loop {
            if let Some(token) = inside.events.try_next() {
                return Some(token);
            }
            let queues: SmallVec<[_; 8]> = locked(&inside.queues).iter().filter_map(Weak::upgrade).collect();
            let moved = queues.iter().fold(false, |moved, queue| moved | queue.turn());
            if end.is_some_and(|end| Instant::now() >= end) {
                return inside.events.try_next();
            }
            if !moved {
                let due = queues.iter().filter_map(|queue| queue.deadline());
                readable(inside.epoll.as_fd(), end.into_iter().chain(due).min());
            }
        }
    }

    /// Returns a descriptor that counts the queued events, and no sockets, for
    /// programs in which another thread makes progress: eight bytes read from
    /// it entitle to one event ([`CompletionChannel::counted`]). The program
    /// may change whether the read blocks.
    #[must_use]
    pub fn events(&self) -> BorrowedFd<'_> {
        self.inside.events.as_fd()
    }

    /// Returns the event that a read of [`CompletionChannel::events`] counted.
    #[must_use]
    pub fn counted(&self) -> Option<u64> {
        self.inside.events.counted()
    }

    pub(super) fn add(&self, driver: BorrowedFd<'_>, queue: Weak<Shared>) -> Result<(), VerbsError> {
        epoll::add(&self.inside.epoll, driver, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
            .map_err(|error| VerbsError::System { step: "completion channel", source: error.into() })?;
        let mut queues = locked(&self.inside.queues);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(queue);
        Ok(())
    }

    pub(super) fn raise(&self, token: u64) {
        // Bounded: one per queue and arming.
        self.inside.events.push(token, usize::MAX);
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inside.epoll.as_fd()
    }
}
