//! Where the threads of a test meet: start, end of the time, stop, and how
//! each thread ended.

use std::{
    io,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use clearstream_schema::control::Failure;

/// How a data thread ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was told to.
    Stopped,
    /// All that was asked for is sent.
    Sent,
    /// The other end has sent all.
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

/// Shared by the threads of one test on one side.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// Senders end at the next transfer.
    silence: AtomicBool,
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

    /// Waits until `done` gives something or the time is over.
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

    /// All data threads are there and wait.
    pub(crate) fn set_ready(&self, threads: usize) {
        self.change(|state| {
            state.ready = true;
            state.threads = threads;
        });
    }

    /// Waits until data can flow. The failure when the test is over already;
    /// `None` when it took too long.
    pub(crate) fn wait_ready(&self, until: Instant) -> Option<Result<(), Option<Failure>>> {
        self.wait(Some(until), |state| match &state.over {
            Some(failure) => Some(Err(failure.clone())),
            None => state.ready.then_some(Ok(())),
        })
    }

    /// Lets data flow.
    pub(crate) fn start(&self) {
        self.change(|state| state.started = true);
    }

    /// A thread waits for the start; false when the test was stopped before.
    pub(crate) fn wait_start(&self) -> bool {
        let started = self.wait(None, |state| match (state.stopped, state.started) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        });
        started.unwrap_or(false)
    }

    /// The first data moves: the clock of this side starts, once.
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

    /// Waits for [`Gate::begin`]; `None` when it will not come, or not in time.
    pub(crate) fn wait_begun(&self, until: Instant) -> Option<Instant> {
        let begun = self.wait(Some(until), |state| match self.begun.get() {
            Some(begun) => Some(Some(*begun)),
            None => state.is_over().then_some(None),
        });
        begun.flatten()
    }

    /// Waits for a moment; true when the test is over before it: stopped, a
    /// thread failed, or all have ended.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        self.wait(Some(until), |state| state.is_over().then_some(())).is_some()
    }

    /// Senders have sent for long enough.
    pub(crate) fn silence(&self) {
        self.silence.store(true, Relaxed);
        self.change(|_| {});
    }

    /// Whether a sender should end: cheap, for every transfer.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.silence.load(Relaxed)
    }

    /// A bursty sender or a slow reader rests; returns early when the time is over.
    pub(crate) fn rest(&self, until: Instant) {
        self.wait(Some(until), |_| self.is_silent().then_some(()));
    }

    /// Ends the test before its time.
    pub(crate) fn stop(&self) {
        self.silence.store(true, Relaxed);
        self.halted.store(true, Relaxed);
        self.change(|state| state.stopped = true);
    }

    /// Whether [`Gate::stop`] was called: cheap, for every transfer.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.halted.load(Relaxed)
    }

    /// A data thread has ended.
    pub(crate) fn thread_ended(&self, flow: u32, outcome: Outcome) {
        self.change(|state| state.ended.push((flow, outcome)));
    }

    /// Waits until every data thread has ended; false when the time is over.
    pub(crate) fn wait_ended(&self, until: Instant) -> bool {
        self.wait(Some(until), |state| (state.ended.len() >= state.threads).then_some(())).is_some()
    }

    /// True when every data thread has ended.
    pub(crate) fn all_ended(&self) -> bool {
        let state = self.lock();
        state.ended.len() >= state.threads
    }

    /// How the threads that have ended so far did so.
    pub(crate) fn outcomes<T>(&self, read: impl FnOnce(&[(u32, Outcome)]) -> T) -> T {
        read(&self.lock().ended)
    }

    /// As [`Gate::outcomes`], and forgets them.
    pub(crate) fn take_outcomes(&self) -> Vec<(u32, Outcome)> {
        std::mem::take(&mut self.lock().ended)
    }

    /// The test's own thread is about to end.
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
