//! Engines: threads that drive connections while the program computes.

use std::{
    hint,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_sys::affinity;

use crate::rnic::{VerbsError, driver::Driver, statistics::Mover};

/// Empty turns between two clock reads.
const TURNS_PER_CLOCK: u32 = 64;
/// Empty turns before the thread yields: the thread that this engine waits for
/// may be on the same core.
const TURNS_PER_YIELD: u32 = 8;

/// A thread and its driver.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) driver: Arc<Driver>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts an engine, pinned to `core` if given.
    pub(super) fn start(core: Option<u32>, spin: Duration) -> Result<Self, VerbsError> {
        let driver = Arc::new(Driver::of_engine()?);
        let stop = Arc::new(AtomicBool::new(false));
        let (pinned, outcome) = mpsc::channel();
        let body = {
            let (driver, stop) = (driver.clone(), stop.clone());
            move || {
                let result = core.map_or(Ok(()), affinity::pin_to);
                let failed = result.is_err();
                // The receiver waits for the result.
                let _ = pinned.send(result);
                if !failed {
                    run(&driver, &stop, spin);
                }
            }
        };
        let thread = thread::Builder::new()
            .name("rnic-engine".to_owned())
            .spawn(body)
            .map_err(|source| VerbsError::System { step: "engine thread", source })?;
        match (outcome.recv(), core) {
            (Ok(Err(source)), Some(core)) => Err(VerbsError::Core { core, source }),
            _ => Ok(Self { driver, stop, thread: Some(thread) }),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.driver.interrupt();
        let Some(thread) = self.thread.take() else { return };
        // The last object of an RNIC may be dropped by the engine thread
        // itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// Runs the driver until stopped: spins while there is work and for a while
/// after, then sleeps.
fn run(driver: &Driver, stop: &AtomicBool, spin: Duration) {
    let mut empty = 0u32;
    let mut idle_since = None;
    while !stop.load(Ordering::Acquire) {
        let turned = driver.turn(Mover::Engine);
        if turned.progress || turned.more {
            (empty, idle_since) = (0, None);
            continue;
        }
        empty += 1;
        if empty.is_multiple_of(TURNS_PER_YIELD) {
            thread::yield_now()
        } else {
            hint::spin_loop()
        }
        if !empty.is_multiple_of(TURNS_PER_CLOCK) && !spin.is_zero() {
            continue;
        }
        let now = Instant::now();
        if now.duration_since(*idle_since.get_or_insert(now)) < spin {
            continue;
        }
        if driver.sleep(turned.deadline, || false).is_err() {
            // The epoll cannot be missing: it was created at the start.
            thread::sleep(spin);
        }
        (empty, idle_since) = (0, None);
    }
}
