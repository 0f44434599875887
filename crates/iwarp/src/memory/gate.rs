//! The gate of memory that belongs to somebody else: counts who is inside, so
//! that its owner can have it back.

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// One that is inside may enter again as long as the gate is open: that never
/// waits. Only closing does.
pub(super) struct Gate {
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    inside: usize,
    closed: bool,
}

impl Gate {
    /// Open, with nobody inside.
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { inside: 0, closed: false }), left: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inside until the guard is gone; `None` when the gate is closed.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(Inside(self))
    }

    /// Closes it for good, and waits until everybody has left.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        while state.inside > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Somebody is inside.
pub(super) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.inside -= 1;
        if state.closed && state.inside == 0 {
            self.0.left.notify_all();
        }
    }
}
