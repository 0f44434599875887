//! Ticks of the helper while Writes are held ([`hold`](crate::rnic::hold)).

use crate::sync::{AtomicUsize, Ordering};

/// Whether the helper ticks for Writes that are held. An idle helper does not tick:
/// the first thread that would hold a Write wakes it.
#[derive(Debug)]
pub(super) struct Ticks {
    state: AtomicUsize,
}

/// The helper does not tick for Writes.
const STOPPED: usize = 0;
/// It ticks, or is being woken.
const RUNNING: usize = 1;
/// It ticks, and a Write was held since the last tick, or is held still.
const HELD: usize = 2;

impl Ticks {
    pub(super) fn new() -> Self {
        Self { state: AtomicUsize::new(STOPPED) }
    }

    /// Whether Writes may be held now, to be confirmed by [`Ticks::hold`].
    pub(super) fn are_running(&self) -> bool {
        self.state.load(Ordering::Acquire) != STOPPED
    }

    /// Requests ticks; returns whether the helper must be woken.
    pub(super) fn start(&self) -> bool {
        self.change(STOPPED, RUNNING)
    }

    /// A Write was held, and is queued for its driver; returns whether the
    /// helper will send it. If not, its ticks have just ended.
    pub(super) fn hold(&self) -> bool {
        // Written also if it was so before: the helper must see what this
        // thread has queued.
        let held = |state| (state != STOPPED).then_some(HELD);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, held).is_ok()
    }

    /// Helper, at a tick: sends what is held by `send`, which returns whether
    /// nothing is left; returns whether there must be another tick.
    pub(super) fn tick(&self, send: impl FnOnce() -> bool) -> bool {
        if self.change(HELD, RUNNING) {
            if !send() {
                self.hold();
            }
            return true;
        }
        // Unless one is held at this moment.
        !self.change(RUNNING, STOPPED) && self.are_running()
    }

    fn change(&self, from: usize, to: usize) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
