//! The thread of the helper.

use std::{
    mem::MaybeUninit,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{Timespec, epoll};

use super::{State, Watch};
use crate::rnic::VerbsError;

/// A helper thread and what it watches.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) watch: Arc<Watch>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, VerbsError> {
        let mut helper = Self::without_thread()?;
        let (watch, stop) = (helper.watch.clone(), helper.stop.clone());
        // Returns when the thread has mapped its memory: libfabric's memory monitor writes over the code of munmap(2),
        // where no thread may be then.
        let begun = Arc::new(Barrier::new(2));
        let body = {
            let begun = begun.clone();
            move || {
                begun.wait();
                run(&watch, &stop);
            }
        };
        let thread = thread::Builder::new().name("rnic-helper".to_owned()).spawn(body);
        helper.thread = Some(thread.map_err(|source| VerbsError::System { step: "helper thread", source })?);
        begun.wait();
        Ok(helper)
    }

    /// A helper whose passes the caller makes.
    pub(super) fn without_thread() -> Result<Self, VerbsError> {
        Ok(Self { watch: Arc::new(Watch::new()?), stop: Arc::default(), thread: None })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.watch.wake();
        let Some(thread) = self.thread.take() else { return };
        // The last object of an RNIC may be dropped by the helper itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

fn run(watch: &Watch, stop: &AtomicBool) {
    let mut state = State::new(Instant::now());
    let mut buffer = [MaybeUninit::uninit(); 64];
    while !stop.load(Ordering::Acquire) {
        let left = state.end().map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec::try_from(left.min(Duration::from_secs(3600))));
        let timeout = timeout.and_then(Result::ok);
        // Fails by signals only.
        let Ok((events, _)) = epoll::wait(&watch.epoll, &mut buffer, timeout.as_ref()) else { continue };
        let ready: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        watch.pass(&mut state, &ready, Instant::now());
    }
}
