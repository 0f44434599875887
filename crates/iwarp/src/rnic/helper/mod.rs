//! Adaptive progress: the helper thread.
//!
//! Rule: whoever polls a completion queue moves its bytes; the helper moves
//! those of queues that no thread polls.
//!
//! - The helper *watches* the sockets of a queue, and sleeps until one is
//!   ready. Then it drives the queue once, unless the queue was polled often
//!   since the last tick.
//! - In that case it yields: the queue is *attended* ([`Attendance`]), its
//!   sockets are not watched, and arriving bytes do not wake the helper. Those
//!   of few connections leave the driver's epoll, so that the kernel does not
//!   notify it of each packet. A queue whose connections all complete in an
//!   attended queue too is *covered*, and not watched either: its sockets are
//!   the same.
//! - While it has yielded, the helper wakes once per [`TICK`] to count polls;
//!   while small Writes are held ([`Ticks`]), to send those that no post follows.
//!   A queue that was not polled in an interval is watched again: a program
//!   that computes waits a tick or two once, then the helper works at once.
//! - Large messages leave time for few polls: a queue whose bytes a thread moves
//!   at the time of an event or a tick counts as polled. The helper could not
//!   drive it, and its socket would wake the helper for nothing.
//! - A thread of the program that is about to sleep (it arms the queue, or
//!   waits for a completion) leaves the queue, which wakes a helper that has
//!   yielded. Sleeping threads wait for completions, not for sockets.
//!
//! The helper never spins: each of its turns follows an event of a socket, a
//! tick or a deadline. So a polling thread and the helper do not compete for a
//! core, and with nothing polled and nothing to move no thread runs.
//!
//! [`Attendance`]: crate::rnic::attendance::Attendance

#[cfg(test)]
mod tests;
mod thread;

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::rnic::{
    VerbsError, completion_queue::Shared, driver::Driver, locked, statistics::Mover, ticks::Ticks,
};

pub(super) use thread::Helper;

/// Interval in which polls are counted while the helper has yielded, and which
/// a Write is held for at least.
const TICK: Duration = Duration::from_millis(1);
/// Polls per tick from which on a queue counts as polled.
pub(super) const ATTENDED_POLLS: isize = 16;
/// Epoll identifier of the doorbell; queues have their address.
const DOORBELL: u64 = 0;

/// Queues that a helper watches.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: OwnedFd,
    doorbell: OwnedFd,
    queues: Mutex<HashMap<u64, Entry>>,
    /// Number of requests for the helper's work: it works while there are any.
    requests: AtomicUsize,
    /// Ticks while Writes are held, also while it does not work.
    pub(super) ticks: Ticks,
}

#[derive(Debug)]
struct Entry {
    queue: Weak<Shared>,
    is_watched: bool,
}

/// What the thread remembers between two passes.
#[derive(Debug)]
struct State {
    /// The helper has yielded for a queue: it counts polls at ticks.
    yielded: bool,
    /// Writes may be held: it sends late ones at ticks.
    holds: bool,
    last_tick: Instant,
    /// Earliest deadline of a connection.
    deadline: Option<Instant>,
}

impl State {
    fn new(now: Instant) -> Self {
        Self { yielded: false, holds: false, last_tick: now, deadline: None }
    }

    fn is_ticking(&self) -> bool {
        self.yielded || self.holds
    }

    /// Time at which the helper must wake, if no event wakes it.
    fn end(&self) -> Option<Instant> {
        self.is_ticking().then(|| self.last_tick + TICK).into_iter().chain(self.deadline).min()
    }
}

fn key(queue: &Shared) -> u64 {
    std::ptr::from_ref(queue).addr() as u64
}

impl Watch {
    pub(super) fn new() -> Result<Self, VerbsError> {
        let failed = |error: rustix::io::Errno| VerbsError::System { step: "helper", source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(&epoll, &doorbell, epoll::EventData::new_u64(DOORBELL), epoll::EventFlags::IN)
            .map_err(failed)?;
        Ok(Self {
            epoll,
            doorbell,
            queues: Mutex::default(),
            requests: AtomicUsize::new(1),
            ticks: Ticks::new(),
        })
    }

    /// Wakes the helper.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Adds a queue. Its driver has an epoll: creating it later would wait for
    /// the driver's turn under the lock of the queues.
    pub(super) fn add(&self, queue: &Arc<Shared>) {
        let entry = Entry { queue: Arc::downgrade(queue), is_watched: false };
        locked(&self.queues).insert(key(queue), entry);
        self.wake();
    }

    /// Removes a queue that is destroyed.
    pub(super) fn remove(&self, queue: &Shared, driver: &Driver) {
        let entry = locked(&self.queues).remove(&key(queue));
        if entry.is_some_and(|entry| entry.is_watched)
            && let Ok(sockets) = driver.epoll()
        {
            // Closing it is not enough in a program that has forked.
            let _ = epoll::delete(&self.epoll, sockets);
        }
    }

    /// Adds a request for the helper's work.
    pub(super) fn request(&self) {
        if self.requests.fetch_add(1, Ordering::AcqRel) == 0 {
            self.wake();
        }
    }

    /// Removes a request; the helper stops to work when none is left.
    pub(super) fn release(&self) {
        self.requests.fetch_sub(1, Ordering::AcqRel);
    }

    fn is_active(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 0
    }

    /// Returns the queues that exist. They must be dropped without the lock:
    /// the last reference removes the queue.
    fn queues(&self) -> Vec<Arc<Shared>> {
        locked(&self.queues).values().filter_map(|entry| entry.queue.upgrade()).collect()
    }

    /// Processes what woke the helper: ready descriptors, or the time.
    fn pass(&self, state: &mut State, ready: &[u64], now: Instant) {
        let rung = ready.contains(&DOORBELL);
        if rung {
            let _ = rustix::io::read(&self.doorbell, &mut [0u8; 8]);
        }
        for token in ready.iter().filter(|token| **token != DOORBELL) {
            state.yielded |= self.serve(*token);
        }
        let tick = state.is_ticking() && now.saturating_duration_since(state.last_tick) >= TICK;
        let starts = rung && !state.is_ticking() && self.ticks.are_running();
        if tick || starts {
            state.last_tick = now;
        }
        if tick {
            state.holds = self.ticks.tick(|| self.send_late());
        } else if rung {
            state.holds = self.ticks.are_running();
        }
        // Polls are counted only while it has yielded: ticks of held Writes
        // neither begin an interval nor end watching.
        let counts = tick && state.yielded;
        if counts || rung {
            state.yielded = self.check(counts);
        }
        let due = state.deadline.is_some_and(|deadline| deadline <= now);
        if rung || due {
            state.deadline = self.drive_due(due);
        }
    }

    /// Sends Writes that were held at the tick before; returns whether none is
    /// left.
    fn send_late(&self) -> bool {
        let mut none_left = true;
        for queue in self.queues() {
            none_left &= queue.driver().is_none_or(Driver::send_late);
        }
        none_left
    }

    /// A socket of a queue is ready: drives it, or yields to the threads
    /// that poll; returns whether it yielded.
    fn serve(&self, token: u64) -> bool {
        let Some(queue) = locked(&self.queues).get(&token).and_then(|entry| entry.queue.upgrade()) else {
            return false;
        };
        if !self.is_active() {
            self.set_watched(&queue, false);
            return false;
        }
        if self.yield_to_polls(&queue) {
            return true;
        }
        let polled = queue.partners(|partner| partner.is_some_and(|partner| partner.is_polled()));
        if polled.is_some_and(|partners| partners.iter().all(|partner| self.yield_to_polls(partner))) {
            self.set_watched(&queue, false);
            return true;
        }
        queue.turn_by(Mover::Helper);
        false
    }

    fn yield_to_polls(&self, queue: &Arc<Shared>) -> bool {
        let attended = queue.attendance().is_some_and(|attendance| attendance.attend(|| queue.is_moving()));
        if attended {
            self.set_watched(queue, false);
        }
        attended
    }

    /// Updates which queues are watched; returns whether the helper has
    /// yielded for some.
    fn check(&self, tick: bool) -> bool {
        let active = self.is_active();
        let queues = self.queues();
        for queue in &queues {
            let Some(attendance) = queue.attendance() else { continue };
            if !active {
                attendance.reset();
            } else if tick {
                attendance.tick(|| queue.is_moving());
            }
        }
        let mut yielded = false;
        for queue in &queues {
            // Whose bytes a thread moves now, its partners are not known: the
            // next tick decides.
            let covered = || {
                let attended = queue.partners(|partner| partner.is_some_and(|partner| partner.is_attended()));
                attended.is_some() || queue.is_moving()
            };
            let attended = queue.attendance().is_some_and(|attendance| attendance.is_attended()) || covered();
            let watched = self.set_watched(queue, active && !attended);
            yielded |= active && !watched;
        }
        yielded
    }

    /// Watches a queue's sockets, or not; returns whether they are watched.
    fn set_watched(&self, queue: &Arc<Shared>, watch: bool) -> bool {
        let known = locked(&self.queues).get(&key(queue)).map(|entry| entry.is_watched);
        let (Some(is_watched), Some(driver)) = (known, queue.driver()) else { return false };
        if is_watched == watch {
            return watch;
        }
        // Without the lock of the queues: it waits for threads that move bytes.
        if !driver.set_watched(watch) && watch {
            return false;
        }
        let Ok(sockets) = driver.epoll() else { return is_watched };
        let mut queues = locked(&self.queues);
        let Some(entry) = queues.get_mut(&key(queue)) else { return false };
        let changed = if watch {
            let data = epoll::EventData::new_u64(key(queue));
            epoll::add(&self.epoll, sockets, data, epoll::EventFlags::IN)
        } else {
            epoll::delete(&self.epoll, sockets)
        };
        if changed.is_ok() {
            entry.is_watched = watch;
        }
        entry.is_watched
    }

    /// Adds new connections to their epolls, and drives the queues if a
    /// connection's deadline has passed; returns the earliest deadline.
    fn drive_due(&self, due: bool) -> Option<Instant> {
        if !self.is_active() {
            return None;
        }
        let queues = self.queues();
        if due {
            queues.iter().for_each(|queue| _ = queue.turn_by(Mover::Helper));
        }
        queues.iter().filter_map(|queue| queue.deadline()).min()
    }
}
