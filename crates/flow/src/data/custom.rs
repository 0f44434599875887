//! Data threads with a transfer loop from another protocol's crate. They are started, pinned, counted and
//! ended like those of this crate's protocol.

use std::{
    io,
    sync::{Arc, mpsc::Sender},
    thread,
    time::Instant,
};

use clearstream_sys::affinity;

use super::{
    gate::{Gate, Outcome},
    thread_counters::ThreadCounters,
    worker::{Operation, Worker, WorkerReady},
};

/// Interface of a loop to its test: progress reports and end conditions.
#[derive(Debug)]
pub struct Progress<'a> {
    counters: &'a ThreadCounters,
    gate: &'a Gate,
}

impl Progress<'_> {
    /// Reports the first data: the clock of this end starts, once for all threads.
    pub fn begin(&self) {
        self.gate.begin();
    }

    /// Reports the total bytes after each transfer.
    #[inline]
    pub fn moved(&self, total_bytes: u64) {
        self.counters.moved(total_bytes);
    }

    /// Whether the test time is over: a sender ends now, a receiver when nothing is queued.
    #[inline]
    pub fn is_expired(&self) -> bool {
        self.gate.is_expired()
    }

    /// Whether the test was stopped: every loop ends now.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.gate.is_stopped()
    }

    /// Waits until an instant; returns early when the test time is over.
    pub fn pause(&self, until: Instant) {
        self.gate.pause(until);
    }
}

impl Worker {
    /// Starts a thread that runs `body` after the start. `operation` is reported with the settings.
    pub(crate) fn custom(
        (flow, operation): (u32, Operation),
        core: Option<u32>,
        gate: Arc<Gate>,
        ready: Sender<WorkerReady>,
        body: impl FnOnce(&Progress<'_>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let counters = Arc::new(ThreadCounters::default());
        let sends = matches!(operation, Operation::Send(_) | Operation::SendDatagrams(_));
        let name = format!("flow-{flow}-{}", if sends { "send" } else { "receive" });
        let own = Arc::clone(&counters);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let pinned =
                core.map(|core| affinity::pin_to(core).map(|()| core).map_err(|error| (core, error)));
            own.register();
            // The receiver may have been dropped after a failure of another thread.
            drop(ready.send(WorkerReady { flow, operation, pinned, buffer: Ok(None) }));
            let mut outcome = Outcome::Stopped;
            if gate.wait_start() {
                let progress = Progress { counters: &own, gate: &gate };
                outcome = match body(&progress) {
                    Ok(()) if gate.is_expired() => Outcome::Stopped,
                    Ok(()) if sends => Outcome::Sent,
                    Ok(()) => Outcome::EndOfStream,
                    Err(_) if gate.is_stopped() => Outcome::Stopped,
                    Err(error) => Outcome::Failed(error),
                };
            }
            own.leave();
            gate.thread_ended(flow, outcome);
        })?;
        Ok(Self { counters, sends, thread: Some(thread) })
    }
}
