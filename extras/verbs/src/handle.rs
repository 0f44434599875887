//! Pointers to objects that programs hold.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::report::notice;

/// Time after which the destruction of an object says that it waits for a program to acknowledge its events.
const QUIET: Duration = Duration::from_secs(3);

/// Waits while `is_followed`: for ever, as the calls of the real libraries do, for what a program's thread may still
/// follow. One line says so after a while.
pub fn await_acknowledged<'a, T>(
    state: MutexGuard<'a, T>,
    acknowledged: &Condvar,
    call: &str,
    mut is_followed: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let waited = acknowledged.wait_timeout_while(state, QUIET, &mut is_followed);
    let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    if timeout.timed_out() {
        notice(&format!("{call} waits for events that the program has not acknowledged"));
    }
    acknowledged.wait_while(state, is_followed).unwrap_or_else(PoisonError::into_inner)
}

/// Pointer to an object of a program, from its creation to its destruction.
#[derive(Debug)]
pub struct Handle<T>(pub *mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

// SAFETY: a pointer alone does nothing; each use states why the object exists.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// Number of objects that refer to one: EBUSY while there are any.
#[derive(Debug, Default)]
pub struct Users(AtomicUsize);

impl Users {
    /// Counts an object.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// An object is destroyed.
    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// Events about an object that programs have and did not acknowledge: its destruction waits for them.
#[derive(Default)]
pub struct Pending {
    count: Mutex<usize>,
    acknowledged: Condvar,
}

impl Pending {
    /// Counts an event that is delivered. The caller holds the lock under which no event of a destroyed object is found.
    pub fn deliver(&self) {
        *locked(&self.count) += 1;
    }

    /// The program has acknowledged events.
    pub fn acknowledge(&self, events: usize) {
        let mut count = locked(&self.count);
        *count = count.saturating_sub(events);
        self.acknowledged.notify_all();
    }

    /// Waits in a call until all are acknowledged.
    pub fn wait(&self, call: &str) {
        drop(await_acknowledged(locked(&self.count), &self.acknowledged, call, |count| *count > 0));
    }
}

static OBJECTS: AtomicUsize = AtomicUsize::new(0);

/// Number of objects that programs have.
pub fn objects() -> usize {
    OBJECTS.load(Ordering::Acquire)
}

/// Allocates an object for the program, until [`take`].
pub fn allocate<T>(value: T) -> *mut T {
    OBJECTS.fetch_add(1, Ordering::AcqRel);
    keep(value)
}

/// Allocates an object of the process, which is never freed.
pub fn keep<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes an object back from the program.
///
/// # Safety
/// It is of [`allocate`], and not used after this.
pub unsafe fn take<T>(object: *mut T) -> Box<T> {
    OBJECTS.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: as required of the caller.
    unsafe { Box::from_raw(object) }
}

/// Locks a mutex and ignores poisoning: a panic ends the process.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
