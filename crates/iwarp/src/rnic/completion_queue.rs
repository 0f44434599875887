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
        AsyncEvent, CachePadded, CompletionChannel, Notify, Rnic, VerbsError, after,
        attendance::Attendance,
        device::{Attributes, Device, Progress},
        driver::Driver,
        helper::ATTENDED_POLLS,
        link::Link,
        ring::Ring,
        statistics::Mover,
    },
    work::Completion,
};

/// Time that [`CompletionQueue::wait`] polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// The queue overran its capacity and is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("completion queue overran: create it with room for all requests outstanding")]
pub struct Overrun;

/// A completion queue (CQ). Clones refer to the same queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    shared: Arc<Shared>,
}

/// Of this many polls of a non-empty ring one polls the sockets too.
const POLLS_PER_SOCKET_POLL: usize = 8;

#[derive(Debug)]
pub(super) struct Shared {
    device: Arc<Device>,
    token: u64,
    capacity: usize,
    ring: Ring,
    overrun: AtomicBool,
    channel: Option<CompletionChannel>,
    /// Inline and adaptive progress: driver that a poll runs.
    driver: Option<Driver>,
    /// Adaptive progress: whether threads poll.
    attendance: Option<CachePadded<Attendance>>,
    /// Number of polls of a non-empty ring.
    filled_polls: AtomicUsize,
}

impl CompletionQueue {
    /// Creates a queue for `capacity` completions. `token` identifies it in
    /// events of the channel and in asynchronous events.
    ///
    /// # Errors
    /// The capacity is out of range, or no descriptor is left.
    pub fn new(
        rnic: &Rnic,
        capacity: u32,
        token: u64,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, VerbsError> {
        Attributes::check("capacity of a completion queue", capacity, rnic.attributes().max_completions)?;
        let inline = rnic.device.options.progress == Progress::Inline;
        let helper = rnic.device.watch();
        let shared = Arc::new(Shared {
            device: rnic.device.clone(),
            token,
            capacity: capacity as usize,
            ring: Ring::new(),
            overrun: AtomicBool::new(false),
            channel: channel.cloned(),
            driver: (inline || helper.is_some()).then(|| Driver::inline(helper.cloned())),
            attendance: helper.map(|_| CachePadded(Attendance::new(ATTENDED_POLLS))),
            filled_polls: AtomicUsize::new(0),
        });
        match (helper, channel, &shared.driver) {
            (Some(helper), _, Some(driver)) => {
                driver.epoll()?;
                helper.add(&shared);
            }
            (None, Some(channel), Some(driver)) => channel.add(driver.epoll()?, Arc::downgrade(&shared))?,
            _ => {}
        }
        Ok(Self { shared })
    }

    /// Polls completions into `into`, oldest first, and returns their number.
    /// With inline progress an empty queue first polls its sockets.
    ///
    /// # Errors
    /// [`Overrun`], after the completions that fit were returned.
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize, Overrun> {
        let shared = &*self.shared;
        if !shared.has_completions() {
            return shared.check_overrun().map(|()| 0);
        }
        Ok(shared.ring.take(into))
    }

    /// Inline progress: polls the sockets and makes progress, as an empty poll
    /// does, without taking a completion; returns whether there was progress.
    /// For a program that waits for a peer's Write in its memory.
    pub fn progress(&self) -> bool {
        self.shared.note_poll();
        self.shared.turn()
    }

    /// Polls the oldest completion.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    pub fn poll_one(&self) -> Result<Option<Completion>, Overrun> {
        let shared = &*self.shared;
        if !shared.has_completions() {
            return shared.check_overrun().map(|()| None);
        }
        Ok(shared.ring.pop())
    }

    /// Polls for a short while, then sleeps, until there is a completion or
    /// `timeout` expires.
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

    /// Requests one event on the channel. Completions already in the queue
    /// generate none: poll again after arming.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`].
    pub fn arm(&self, notify: Notify) -> Result<(), Overrun> {
        self.shared.check_overrun()?;
        self.shared.ring.arm(notify);
        // The program is about to sleep.
        self.shared.send_held();
        self.shared.leave();
        Ok(())
    }

    /// Whether it holds a completion for which `select` is true.
    pub fn holds(&self, select: impl FnMut(&Completion) -> bool) -> bool {
        self.shared.ring.holds(select)
    }

    /// Returns the capacity.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.shared.capacity).unwrap_or(u32::MAX)
    }

    /// Adds a completion; true on overrun.
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
    /// Whether the ring has completions, after polling the sockets if it is
    /// empty, and periodically otherwise: a program whose own requests keep the
    /// ring filled would never receive.
    fn has_completions(&self) -> bool {
        let Some(driver) = &self.driver else { return self.ring.is_filled() };
        self.note_poll();
        if self.ring.is_filled()
            && !driver.is_behind()
            && self.filled_polls.fetch_add(1, Ordering::Relaxed) % POLLS_PER_SOCKET_POLL
                < POLLS_PER_SOCKET_POLL - 1
        {
            return true;
        }
        driver.turn(Mover::Program);
        self.ring.is_filled()
    }

    /// Sends a Write that is held for the post that follows, by a turn: also
    /// after the post, until a turn has removed the connection's entry.
    fn send_held(&self) {
        if let Some(driver) = self.driver.as_ref().filter(|driver| driver.has_rung()) {
            driver.turn(Mover::Program);
        }
    }

    /// Runs the driver once; returns whether there was progress.
    pub(super) fn turn(&self) -> bool {
        self.turn_by(Mover::Program)
    }

    pub(super) fn turn_by(&self, by: Mover) -> bool {
        self.driver.as_ref().is_some_and(|driver| {
            let turned = driver.turn(by);
            turned.progress || turned.more
        })
    }

    /// Inline progress: earliest deadline of the connections.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.driver.as_ref()?.deadline()
    }

    /// Counts a poll, for the helper.
    fn note_poll(&self) {
        if let Some(attendance) = &self.attendance {
            attendance.0.note_poll();
        }
    }

    /// A thread of the program is about to sleep: the helper takes over.
    fn leave(&self) {
        if let (Some(attendance), Some(helper)) = (&self.attendance, self.device.watch())
            && attendance.0.leave()
        {
            helper.wake();
        }
    }

    pub(super) fn attendance(&self) -> Option<&Attendance> {
        self.attendance.as_ref().map(|padded| &padded.0)
    }

    /// Whether another thread moves bytes of its connections.
    pub(super) fn is_moving(&self) -> bool {
        self.driver.as_ref().is_some_and(Driver::is_moving)
    }

    pub(super) fn driver(&self) -> Option<&Driver> {
        self.driver.as_ref()
    }

    /// Returns the other completion queues of all its connections, if each
    /// connection has one that fulfils the condition; `None` otherwise, without
    /// connections, and while another thread drives them.
    pub(super) fn partners(&self, fulfils: impl Fn(Option<&Attendance>) -> bool) -> Option<Vec<Arc<Self>>> {
        let partner = |link: &Arc<Link>| {
            let queues = [&link.sends.shared, &link.receives.shared];
            let other = queues.into_iter().find(|queue| !std::ptr::eq(Arc::as_ptr(queue), self))?;
            fulfils(other.attendance()).then(|| other.clone())
        };
        let all = |links: &[Arc<Link>]| links.iter().map(partner).collect::<Option<Vec<_>>>();
        self.driver.as_ref()?.with_links(all).flatten().filter(|partners| !partners.is_empty())
    }

    fn check_overrun(&self) -> Result<(), Overrun> {
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
        // With a helper, threads sleep until there is a completion.
        self.leave();
        if let (Some(driver), None) = (&self.driver, &self.attendance) {
            let end = driver.deadline().map_or(end, |due| due.min(end));
            // Without a doorbell descriptor it cannot sleep.
            let _ = driver.sleep(Some(end), || !self.ring.is_empty());
            return;
        }
        self.ring.sleep(end);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let (Some(helper), Some(driver)) = (self.device.watch(), &self.driver) {
            helper.remove(self, driver);
        }
    }
}
