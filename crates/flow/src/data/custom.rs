//! A data thread whose loop belongs to another protocol's crate. It is started,
//! pinned, counted and ended as the threads of our own protocol are.

use std::{
    io,
    sync::{Arc, mpsc::Sender},
    thread,
    time::Instant,
};

use clearstream_sys::affinity;

use super::{
    gate::{Gate, Outcome},
    slot::Slot,
    worker::{Way, Worker, WorkerReady},
};

/// What a loop reports while it runs, and where it sees that it has to end.
#[derive(Debug)]
pub struct Progress<'a> {
    slot: &'a Slot,
    gate: &'a Gate,
}

impl Progress<'_> {
    /// The first data moves: the clock of this end starts, once for all threads.
    pub fn begin(&self) {
        self.gate.begin();
    }

    /// After each transfer: all bytes so far.
    #[inline]
    pub fn moved(&self, total_bytes: u64) {
        self.slot.moved(total_bytes);
    }

    /// The time is over: a sender ends now, a receiver when nothing is queued.
    #[inline]
    pub fn is_silent(&self) -> bool {
        self.gate.is_silent()
    }

    /// The test was stopped: every loop ends now.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.gate.is_stopped()
    }

    /// Waits until a moment; returns early when the time is over.
    pub fn rest(&self, until: Instant) {
        self.gate.rest(until);
    }
}

impl Worker {
    /// Starts a thread that runs `body` after the start. `way` is what it does,
    /// for the settings that are reported.
    pub(crate) fn custom(
        (flow, way): (u32, Way),
        core: Option<u32>,
        gate: Arc<Gate>,
        ready: Sender<WorkerReady>,
        body: impl FnOnce(&Progress<'_>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let slot = Arc::new(Slot::default());
        let sends = matches!(way, Way::Send(_) | Way::SendDatagrams(_));
        let name = format!("flow-{flow}-{}", if sends { "send" } else { "receive" });
        let own = Arc::clone(&slot);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let pinned =
                core.map(|core| affinity::pin_to(core).map(|()| core).map_err(|error| (core, error)));
            own.introduce();
            // The other side of the channel may have given up on another thread.
            drop(ready.send(WorkerReady { flow, way, pinned, buffer: Ok(None) }));
            let mut outcome = Outcome::Stopped;
            if gate.wait_start() {
                let progress = Progress { slot: &own, gate: &gate };
                outcome = match body(&progress) {
                    Ok(()) if gate.is_silent() => Outcome::Stopped,
                    Ok(()) if sends => Outcome::Sent,
                    Ok(()) => Outcome::EndOfStream,
                    Err(_) if gate.is_stopped() => Outcome::Stopped,
                    Err(error) => Outcome::Failed(error),
                };
            }
            own.leave();
            gate.thread_ended(flow, outcome);
        })?;
        Ok(Self { slot, sends, thread: Some(thread) })
    }
}
