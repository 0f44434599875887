//! Access gate of foreign memory: counts accesses in progress, so that closing
//! it can wait until the owner may free the memory.

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Access counter. While the gate is open, `enter` never blocks, also when
/// nested; only `close` waits.
pub(super) struct Gate {
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    inside: usize,
    closed: bool,
}

impl Gate {
    /// Creates an open gate without users.
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { inside: 0, closed: false }), left: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters until the guard is dropped; `None` when the gate is closed.
    pub(super) fn enter(&self) -> Option<GateGuard<'_>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(GateGuard(self))
    }

    /// Closes the gate permanently and waits for all accesses in progress.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        while state.inside > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Guard of an access in progress.
pub(super) struct GateGuard<'a>(&'a Gate);

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.inside -= 1;
        if state.closed && state.inside == 0 {
            self.0.left.notify_all();
        }
    }
}
