//! Synchronises a test's threads: start barrier, end of the test time, stop flag, and the outcome of each
//! thread.

use std::{
    io,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use clearstream_schema::control::Failure;

/// Outcome of a data thread.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Stopped on request.
    Stopped,
    /// All requested data is sent.
    Sent,
    /// The peer has sent everything.
    EndOfStream,
    /// The socket failed.
    Failed(io::Error),
}

#[derive(Debug, Default)]
struct State {
    ready: bool,
    started: bool,
    stopped: bool,
    over: Option<Option<Failure>>,
    threads: usize,
    ended: Vec<(u32, Outcome)>,
}

/// Synchronisation of the threads of one test on one side.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// The test time is over: senders end at the next transfer.
    expired: AtomicBool,
    /// Receivers of datagrams, which have no end of stream, end now.
    halted: AtomicBool,
    begun: OnceLock<Instant>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves plain flags, which are valid in any state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `done` returns something or `until` has passed.
    fn wait<T>(&self, until: Option<Instant>, mut done: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(value) = done(&mut state) {
                return Some(value);
            }
            state = match until {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// All data threads are waiting at the start barrier.
    pub(crate) fn set_ready(&self, threads: usize) {
        self.change(|state| {
            state.ready = true;
            state.threads = threads;
        });
    }

    /// Waits until all threads are ready. `Some(Err)` when the test is over already; `None` on timeout.
    pub(crate) fn wait_ready(&self, until: Instant) -> Option<Result<(), Option<Failure>>> {
        self.wait(Some(until), |state| match &state.over {
            Some(failure) => Some(Err(failure.clone())),
            None => state.ready.then_some(Ok(())),
        })
    }

    /// Releases the start barrier.
    pub(crate) fn start(&self) {
        self.change(|state| state.started = true);
    }

    /// Waits at the start barrier; false when the test was stopped before.
    pub(crate) fn wait_start(&self) -> bool {
        let started = self.wait(None, |state| match (state.stopped, state.started) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        });
        started.unwrap_or(false)
    }

    /// Records the first data: the clock of this side starts, once.
    pub(crate) fn begin(&self) {
        let mut first = false;
        self.begun.get_or_init(|| {
            first = true;
            Instant::now()
        });
        if first {
            self.change(|_| {});
        }
    }

    /// Waits for [`Gate::begin`]; `None` when the test ended before it, or on timeout.
    pub(crate) fn wait_begun(&self, until: Instant) -> Option<Instant> {
        let begun = self.wait(Some(until), |state| match self.begun.get() {
            Some(begun) => Some(Some(*begun)),
            None => state.is_over().then_some(None),
        });
        begun.flatten()
    }

    /// Waits until an instant; true when the test is over before it: stopped, a thread failed, or all have
    /// ended.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        self.wait(Some(until), |state| state.is_over().then_some(())).is_some()
    }

    /// Marks the test time as over.
    pub(crate) fn expire(&self) {
        self.expired.store(true, Relaxed);
        self.change(|_| {});
    }

    /// Whether a sender should end: cheap enough for every transfer.
    #[inline]
    pub(crate) fn is_expired(&self) -> bool {
        self.expired.load(Relaxed)
    }

    /// Pauses a bursty sender or a slow reader; returns early when the test time is over.
    pub(crate) fn pause(&self, until: Instant) {
        self.wait(Some(until), |_| self.is_expired().then_some(()));
    }

    /// Stops the test early.
    pub(crate) fn stop(&self) {
        self.expired.store(true, Relaxed);
        self.halted.store(true, Relaxed);
        self.change(|state| state.stopped = true);
    }

    /// Whether [`Gate::stop`] was called: cheap enough for every transfer.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.halted.load(Relaxed)
    }

    /// Records the outcome of a data thread.
    pub(crate) fn thread_ended(&self, flow: u32, outcome: Outcome) {
        self.change(|state| state.ended.push((flow, outcome)));
    }

    /// Waits until every data thread has ended; false on timeout.
    pub(crate) fn wait_ended(&self, until: Instant) -> bool {
        self.wait(Some(until), |state| (state.ended.len() >= state.threads).then_some(())).is_some()
    }

    /// The outcomes of the threads that have ended so far.
    pub(crate) fn outcomes<T>(&self, read: impl FnOnce(&[(u32, Outcome)]) -> T) -> T {
        read(&self.lock().ended)
    }

    /// As [`Gate::outcomes`], and clears them.
    pub(crate) fn take_outcomes(&self) -> Vec<(u32, Outcome)> {
        std::mem::take(&mut self.lock().ended)
    }

    /// Records that the test's own thread is about to end.
    pub(crate) fn set_over(&self, failure: Option<Failure>) {
        self.change(|state| {
            state.stopped = true;
            state.over = Some(failure);
        });
    }

    /// Whether [`Gate::set_over`] was called.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over.is_some()
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.stopped
            || (self.ready && self.ended.len() >= self.threads)
            || self.ended.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
    }
}
