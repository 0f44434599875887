//! Attendance of a completion queue: whether threads of the program poll it.
//!
//! A poll counts itself, by a plain store. A thread that is about to sleep
//! *leaves*: it arms the queue, or waits for a completion. The helper thread
//! ([`helper`](crate::rnic::helper)) reads both, and decides whether the queue
//! is *attended*: then the helper does not watch its sockets.

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// Counters of a queue.
#[derive(Debug)]
pub(super) struct Attendance {
    /// Polls from which on a queue counts as polled.
    threshold: isize,
    polls: AtomicUsize,
    /// Value of `polls` when a thread left.
    left: AtomicUsize,
    /// Value of `polls` at the helper's last tick; only the helper uses it.
    seen: AtomicUsize,
    /// The helper has yielded.
    attended: AtomicBool,
}

impl Attendance {
    pub(super) fn new(threshold: isize) -> Self {
        Self {
            threshold,
            polls: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            seen: AtomicUsize::new(0),
            attended: AtomicBool::new(false),
        }
    }

    /// Counts a poll. Concurrent polls may be counted once: the number is
    /// compared with a threshold only.
    pub(super) fn note_poll(&self) {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// A thread of the program is about to sleep; returns whether the helper
    /// has yielded and must be woken.
    pub(super) fn leave(&self) -> bool {
        self.left.store(self.polls.load(Ordering::Relaxed), Ordering::Release);
        // Either this sees that the helper has yielded, or the helper, whose
        // swap follows, sees `left` (`Attendance::attend`).
        self.attended.swap(false, Ordering::AcqRel)
    }

    /// Whether the queue was polled since the last tick, and no thread left
    /// since.
    pub(super) fn is_polled(&self) -> bool {
        let left = self.left.load(Ordering::Acquire);
        let polls = self.polls.load(Ordering::Relaxed);
        // Signed: a poll that is not visible yet is none.
        let since = |then: usize| polls.wrapping_sub(then).cast_signed();
        since(left).min(since(self.seen.load(Ordering::Relaxed))) >= self.threshold
    }

    /// Helper: yields to the program, unless it does not poll; returns
    /// whether it yielded. `is_moving` is whether a thread moves bytes of
    /// the queue: large messages leave time for few polls. `seen` stays as it
    /// is: the next tick may follow at once, and must not find that there were
    /// no polls.
    pub(super) fn attend(&self, is_moving: impl Fn() -> bool) -> bool {
        let is_used = || self.is_polled() || is_moving();
        if !is_used() {
            return false;
        }
        self.attended.swap(true, Ordering::AcqRel);
        // A thread that left before this has done no more since.
        if !is_used() {
            self.attended.store(false, Ordering::Release);
            return false;
        }
        true
    }

    /// Helper: begins the next interval in which polls are counted; an attended
    /// queue that was not polled in the last one, and whose bytes no thread
    /// moves now, is attended no more.
    pub(super) fn tick(&self, is_moving: impl Fn() -> bool) {
        if !self.is_polled() && !is_moving() {
            self.attended.store(false, Ordering::Release);
        }
        self.seen.store(self.polls.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Helper: takes its decision back.
    pub(super) fn reset(&self) {
        self.attended.store(false, Ordering::Release);
    }

    /// Whether the helper has yielded.
    pub(super) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Acquire)
    }
}
