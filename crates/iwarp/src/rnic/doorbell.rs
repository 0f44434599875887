//! Notification of connection drivers, running or asleep. A running driver
//! polls a flag; only when it sleeps is its descriptor written, which is a
//! system call.

use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};

/// Queue of work items for a driver.
#[derive(Debug)]
pub(super) struct WorkQueue<T> {
    entries: Mutex<Vec<T>>,
    /// Whether there are entries, readable without the mutex.
    any: AtomicBool,
}

impl<T> WorkQueue<T> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::new(Vec::new()), any: AtomicBool::new(false) }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry. A sleeping driver must be woken afterwards
    /// ([`Sleepers::any`]).
    pub(super) fn push(&self, entry: T) {
        let mut entries = self.entries();
        entries.push(entry);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there are entries, by a relaxed check: an entry pushed
    /// concurrently is seen by the next call.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether there are none, before going to sleep: the thread that pushes one
    /// afterwards sees the sleeper.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Moves all entries into `into`, which is empty.
    pub(super) fn take(&self, into: &mut Vec<T>) {
        let mut entries = self.entries();
        self.any.store(false, Ordering::Release);
        // The buffers are swapped, so that their capacity is reused.
        std::mem::swap(&mut *entries, into);
    }
}

/// Doorbell of a connection: the connection is queued for its driver once,
/// however often it is rung.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    rung: AtomicBool,
}

impl Doorbell {
    /// Rings; returns whether it was not rung before: then the connection must
    /// be queued for the driver.
    pub(super) fn ring(&self) -> bool {
        !self.rung.swap(true, Ordering::AcqRel)
    }

    /// Clears the doorbell; the next ring queues the connection again. A swap
    /// and not a store: the caller must see the requests of all earlier rings.
    pub(super) fn clear(&self) {
        self.rung.swap(false, Ordering::AcqRel);
    }
}

/// Threads that sleep on a descriptor.
#[derive(Debug)]
pub(super) struct Sleepers {
    count: Mutex<usize>,
    /// Number of sleepers, readable without the mutex.
    asleep: AtomicUsize,
}

impl Sleepers {
    pub(super) fn new() -> Self {
        Self { count: Mutex::new(0), asleep: AtomicUsize::new(0) }
    }

    /// Whether a thread sleeps or is about to: then a thread that has just
    /// queued work must write the descriptor.
    pub(super) fn any(&self) -> bool {
        self.asleep.load(Ordering::SeqCst) > 0
    }

    /// Sleeps by `wait`, on the descriptor, unless `busy`. `busy` checks, under
    /// a mutex, state that others change under the same mutex before they check
    /// for sleepers: either it sees their change, or they see the sleeper. The
    /// last thread to wake resets the descriptor by `reset`.
    pub(super) fn sleep(&self, busy: impl FnOnce() -> bool, wait: impl FnOnce(), reset: impl FnOnce()) {
        self.change(|count| *count += 1);
        if !busy() {
            wait();
        }
        self.change(|count| {
            *count -= 1;
            // The descriptor stays readable until all have woken. Later
            // sleepers count themselves first.
            if *count == 0 {
                reset();
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut usize)) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut count);
        self.asleep.store(*count, Ordering::SeqCst);
    }
}
