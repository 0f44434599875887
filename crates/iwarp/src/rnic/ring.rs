//! The completions of a queue, and how somebody who waits learns of them: a
//! poll looks at a number, a sleeper is woken, an armed channel is told.

use std::{collections::VecDeque, time::Instant};

use crate::{
    sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, PoisonError},
    work::{Completion, Status},
};

/// Which completion raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next one.
    Next,
    /// The next that the peer solicited, or that is in error.
    Solicited,
}

impl Notify {
    fn wants(self, completion: &Completion) -> bool {
        self == Self::Next || completion.solicited || completion.status != Status::Success
    }
}

/// Completions, oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    entries: Mutex<Entries>,
    /// How many there are, for a look without the mutex.
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

/// There was no room for a completion.
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

    /// Whether there are completions, at a glance: one that somebody adds now
    /// is found at the next one.
    pub(super) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire) > 0
    }

    /// Whether there are none, for a sleeper: whoever adds one afterwards finds
    /// that it sleeps.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().completions.is_empty()
    }

    /// Takes the oldest completions; how many it were.
    pub(super) fn take(&self, into: &mut [Completion]) -> usize {
        let mut entries = self.entries();
        let count = into.len().min(entries.completions.len());
        for (place, completion) in into.iter_mut().zip(entries.completions.drain(..count)) {
            *place = completion;
        }
        self.filled.store(entries.completions.len(), Ordering::Release);
        count
    }

    /// Takes the oldest one.
    pub(super) fn pop(&self) -> Option<Completion> {
        let mut entries = self.entries();
        let completion = entries.completions.pop_front();
        self.filled.store(entries.completions.len(), Ordering::Release);
        completion
    }

    /// The next completion that is wanted raises an event, once.
    pub(super) fn arm(&self, notify: Notify) {
        let mut entries = self.entries();
        // The wider one stays.
        if entries.armed != Some(Notify::Next) {
            entries.armed = Some(notify);
        }
    }

    /// Adds a completion; whether it raises an event.
    pub(super) fn push(&self, completion: Completion, capacity: usize) -> Result<bool, Full> {
        let raised = {
            let mut entries = self.entries();
            if entries.completions.len() >= capacity {
                return Err(Full);
            }
            entries.completions.push_back(completion);
            self.filled.store(entries.completions.len(), Ordering::Release);
            entries.armed.take_if(|armed| armed.wants(&completion)).is_some()
        };
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // It counted itself and looked at the ring under the ring's mutex,
            // and lets go of that only by sleeping.
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
