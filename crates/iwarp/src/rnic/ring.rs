//! Completion ring and its notifications: polling reads a counter, sleeping
//! threads are woken, an armed channel gets an event.

use std::{collections::VecDeque, time::Instant};

use crate::{
    sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, PoisonError},
    work::{Completion, Status},
};

/// Which completion generates an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next one.
    Next,
    /// The next one that is solicited or in error.
    Solicited,
}

impl Notify {
    fn matches(self, completion: &Completion) -> bool {
        self == Self::Next || completion.solicited || completion.status != Status::Success
    }
}

/// Ring of completions, oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    entries: Mutex<Entries>,
    /// Number of completions, readable without the mutex.
    filled: AtomicUsize,
    /// Threads asleep in [`Ring::sleep`].
    sleepers: AtomicUsize,
    arrival: Condvar,
}

#[derive(Debug)]
struct Entries {
    completions: VecDeque<Completion>,
    armed: Option<Notify>,
}

/// The ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Ring {
    pub(super) fn new() -> Self {
        let entries = Entries { completions: VecDeque::new(), armed: None };
        Self {
            entries: Mutex::new(entries),
            filled: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            arrival: Condvar::new(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are completions, by a relaxed check: one pushed
    /// concurrently is seen by the next call.
    pub(super) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire) > 0
    }

    /// Whether it is empty, before going to sleep: a thread that pushes
    /// afterwards sees the sleeper.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().completions.is_empty()
    }

    /// Whether an entry is one for which `select` is true.
    #[allow(dead_code, reason = "the model of the ring does not call it")]
    pub(super) fn holds(&self, select: impl FnMut(&Completion) -> bool) -> bool {
        self.is_filled() && self.entries().completions.iter().any(select)
    }

    /// Takes the oldest completions; returns their number.
    pub(super) fn take(&self, into: &mut [Completion]) -> usize {
        let mut entries = self.entries();
        let count = into.len().min(entries.completions.len());
        for (place, completion) in into.iter_mut().zip(entries.completions.drain(..count)) {
            *place = completion;
        }
        self.filled.store(entries.completions.len(), Ordering::Release);
        count
    }

    /// Takes the oldest completion.
    pub(super) fn pop(&self) -> Option<Completion> {
        let mut entries = self.entries();
        let completion = entries.completions.pop_front();
        self.filled.store(entries.completions.len(), Ordering::Release);
        completion
    }

    /// Arms the ring: the next matching completion generates an event, once.
    pub(super) fn arm(&self, notify: Notify) {
        let mut entries = self.entries();
        // The less restrictive mode is kept.
        if entries.armed != Some(Notify::Next) {
            entries.armed = Some(notify);
        }
    }

    /// Adds a completion; returns whether it generates an event.
    pub(super) fn push(&self, completion: Completion, capacity: usize) -> Result<bool, Full> {
        let raised = {
            let mut entries = self.entries();
            if entries.completions.len() >= capacity {
                return Err(Full);
            }
            entries.completions.push_back(completion);
            self.filled.store(entries.completions.len(), Ordering::Release);
            entries.armed.take_if(|armed| armed.matches(&completion)).is_some()
        };
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // The sleeper counted itself and checked the ring under the ring's
            // mutex, which it releases only by sleeping.
            self.arrival.notify_all();
        }
        Ok(raised)
    }

    /// Sleeps until there is a completion, or until `end`.
    pub(super) fn sleep(&self, end: Instant) {
        let entries = self.entries();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if entries.completions.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            let _ = self.arrival.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
