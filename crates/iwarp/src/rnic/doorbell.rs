//! How whoever drives connections learns of work that others leave for it,
//! awake or asleep. Awake it looks at a flag; only when it sleeps does the one
//! who leaves something ring a descriptor, which is a system call.

use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};

/// What others leave for a driver.
#[derive(Debug)]
pub(super) struct Left<T> {
    entries: Mutex<Vec<T>>,
    /// There are entries, for a look without the mutex.
    any: AtomicBool,
}

impl<T> Left<T> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::new(Vec::new()), any: AtomicBool::new(false) }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an entry. A driver that sleeps is to be woken then
    /// ([`Sleepers::are_there`]).
    pub(super) fn leave(&self, entry: T) {
        let mut entries = self.entries();
        entries.push(entry);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there are entries, at a glance: one that is left now is found at
    /// the next one.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether there are none, for a sleeper: whoever leaves one afterwards
    /// finds that it sleeps.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Takes all of them into `into`, which is empty.
    pub(super) fn take(&self, into: &mut Vec<T>) {
        let mut entries = self.entries();
        self.any.store(false, Ordering::Release);
        // The room that the emptied list has goes round.
        std::mem::swap(&mut *entries, into);
    }
}

/// A connection's bell: it is left for its driver once, however often it rings.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: AtomicBool,
}

impl Bell {
    /// Whether this is the first ring since the bell was answered: then it is to
    /// be left for the driver.
    pub(super) fn ring(&self) -> bool {
        !self.rung.swap(true, Ordering::AcqRel)
    }

    /// From here on another ring is the first. What those that rang before left
    /// is found by who answers, hence a swap and no store.
    pub(super) fn answer(&self) {
        self.rung.swap(false, Ordering::AcqRel);
    }
}

/// Threads that sleep at a descriptor which others ring.
#[derive(Debug)]
pub(super) struct Sleepers {
    count: Mutex<usize>,
    /// The same, as seen without the mutex.
    asleep: AtomicUsize,
}

impl Sleepers {
    pub(super) fn new() -> Self {
        Self { count: Mutex::new(0), asleep: AtomicUsize::new(0) }
    }

    /// Whether somebody sleeps or is about to: then the descriptor is to be rung
    /// by who has just left something.
    pub(super) fn are_there(&self) -> bool {
        self.asleep.load(Ordering::SeqCst) > 0
    }

    /// Sleeps by `wait`, at the descriptor; not at all if `busy`, which looks
    /// under a mutex at what others change under it before they ask whether
    /// somebody sleeps: either it finds what they changed, or they find that it
    /// sleeps. The last one that wakes has the descriptor be quiet again.
    pub(super) fn sleep(&self, busy: impl FnOnce() -> bool, wait: impl FnOnce(), quiet: impl FnOnce()) {
        self.change(|count| *count += 1);
        if !busy() {
            wait();
        }
        self.change(|count| {
            *count -= 1;
            // The others are to hear it too. Who comes later counts itself first.
            if *count == 0 {
                quiet();
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut usize)) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut count);
        self.asleep.store(*count, Ordering::SeqCst);
    }
}
