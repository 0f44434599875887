//! Completion queues.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    rnic::{
        AsyncEvent, CompletionChannel, Notify, Rnic, VerbsError, after,
        device::{Attributes, Device, Progress},
        driver::Driver,
        ring::Ring,
    },
    work::Completion,
};

/// How long [`CompletionQueue::wait`] polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// The queue got more completions than it holds and is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("completion queue overran: create it with room for all requests outstanding")]
pub struct Overrun;

/// A completion queue. Clones name the same one.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    shared: Arc<Shared>,
}

/// Of so many polls that find the ring filled one looks at the sockets too.
const FILLED_LOOKS: usize = 8;

#[derive(Debug)]
pub(super) struct Shared {
    device: Arc<Device>,
    token: u64,
    capacity: usize,
    ring: Ring,
    overrun: AtomicBool,
    channel: Option<CompletionChannel>,
    /// Inline: what polling turns.
    driver: Option<Driver>,
    /// Polls that found the ring filled.
    filled_looks: AtomicUsize,
}

impl CompletionQueue {
    /// A queue for `capacity` completions. `token` names it in the events of
    /// the channel and in asynchronous events.
    ///
    /// # Errors
    /// The capacity is out of range, or there is no descriptor left.
    pub fn new(
        rnic: &Rnic,
        capacity: u32,
        token: u64,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, VerbsError> {
        Attributes::check("capacity of a completion queue", capacity, rnic.attributes().max_completions)?;
        let inline = rnic.device.options.progress == Progress::Inline;
        let shared = Arc::new(Shared {
            device: rnic.device.clone(),
            token,
            capacity: capacity as usize,
            ring: Ring::new(),
            overrun: AtomicBool::new(false),
            channel: channel.cloned(),
            driver: inline.then(Driver::inline),
            filled_looks: AtomicUsize::new(0),
        });
        if let (Some(channel), Some(driver)) = (channel, &shared.driver) {
            channel.add(driver.epoll()?, Arc::downgrade(&shared))?;
        }
        Ok(Self { shared })
    }

    /// Takes completions into `into`, oldest first; how many there were. With
    /// inline progress an empty queue first looks at its sockets.
    ///
    /// # Errors
    /// [`Overrun`], after what had room was taken.
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize, Overrun> {
        let shared = &*self.shared;
        if !shared.look() {
            return shared.sound().map(|()| 0);
        }
        Ok(shared.ring.take(into))
    }

    /// Inline: looks at the sockets and moves what can be moved, as an empty
    /// poll does, and takes no completion; whether something moved. For a
    /// program that waits for a peer's Write in its memory.
    pub fn progress(&self) -> bool {
        self.shared.turn()
    }

    /// Takes the oldest completion.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    pub fn poll_one(&self) -> Result<Option<Completion>, Overrun> {
        let shared = &*self.shared;
        if !shared.look() {
            return shared.sound().map(|()| None);
        }
        Ok(shared.ring.pop())
    }

    /// Polls for a short while, then sleeps, until there is a completion or
    /// `timeout` is over.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<Completion>, Overrun> {
        let begin = Instant::now();
        loop {
            if let Some(completion) = self.poll_one()? {
                return Ok(Some(completion));
            }
            let waited = begin.elapsed();
            if waited >= timeout {
                return Ok(None);
            }
            if waited >= SPIN {
                self.shared.sleep(after(timeout - waited));
            }
        }
    }

    /// Asks for one event on the channel. Completions that are in the queue
    /// already raise none: poll again after arming.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    pub fn arm(&self, notify: Notify) -> Result<(), Overrun> {
        self.shared.sound()?;
        self.shared.ring.arm(notify);
        Ok(())
    }

    /// How many completions it holds at most.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.shared.capacity).unwrap_or(u32::MAX)
    }

    /// Adds a completion; true when there was no room for it.
    pub(super) fn push(&self, completion: Completion) -> bool {
        self.shared.push(completion)
    }

    pub(super) fn driver(&self) -> Option<&Driver> {
        self.shared.driver.as_ref()
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.shared.device
    }
}

impl Shared {
    /// Whether something is in the ring, after a look at the sockets if not, and
    /// now and then all the same: a program whose own requests keep the ring
    /// filled would never read what its peer sends.
    fn look(&self) -> bool {
        let Some(driver) = &self.driver else { return self.ring.is_filled() };
        if self.ring.is_filled()
            && !driver.is_behind()
            && self.filled_looks.fetch_add(1, Ordering::Relaxed) % FILLED_LOOKS < FILLED_LOOKS - 1
        {
            return true;
        }
        driver.turn();
        self.ring.is_filled()
    }

    /// Looks at the sockets; whether something moved.
    pub(super) fn turn(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| {
            let turned = driver.turn();
            turned.progress || turned.more
        })
    }

    /// Inline: when a connection is to be looked at at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.driver.as_ref()?.deadline()
    }

    fn sound(&self) -> Result<(), Overrun> {
        if self.overrun.load(Ordering::Acquire) { Err(Overrun) } else { Ok(()) }
    }

    fn push(&self, completion: Completion) -> bool {
        let Ok(raised) = self.ring.push(completion, self.capacity) else {
            if !self.overrun.swap(true, Ordering::AcqRel) {
                self.device.events.push(AsyncEvent::CompletionQueueOverrun { token: self.token });
            }
            return true;
        };
        if raised && let Some(channel) = &self.channel {
            channel.raise(self.token);
        }
        if let Some(driver) = &self.driver {
            driver.wake();
        }
        false
    }

    fn sleep(&self, end: Instant) {
        if let Some(driver) = &self.driver {
            let end = driver.deadline().map_or(end, |due| due.min(end));
            // Without a descriptor for it there is no sleep.
            let _ = driver.sleep(Some(end), || !self.ring.is_empty());
            return;
        }
        self.ring.sleep(end);
    }
}
