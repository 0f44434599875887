//! One data thread from its start to its end.

use std::{
    hint::black_box,
    io,
    os::fd::OwnedFd,
    sync::{Arc, mpsc::Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_schema::flow::{ReceiveMethod, SendMethod};
use clearstream_sys::{affinity, memory::Buffer};
use socket2::Socket;

use super::{
    datagram,
    gate::{Gate, Outcome},
    receive, send,
    slot::Slot,
};

/// What a thread does with its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Stream to the socket.
    Send(SendMethod),
    /// Stream from the socket.
    Receive(ReceiveMethod),
    /// Numbered datagrams to the socket.
    SendDatagrams(Datagrams),
    /// Numbered datagrams from the socket.
    ReceiveDatagrams(Datagrams),
}

/// How datagrams look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagrams {
    /// Bytes of each.
    pub(crate) size: usize,
    /// Bytes of one send: several datagrams with segmentation offload.
    pub(crate) batch: usize,
    /// What each starts with.
    pub(crate) tag: [u8; 8],
    /// Bits per second at most.
    pub(crate) rate_bps: Option<u64>,
    /// A receiver that hears nothing for so long gives up.
    pub(crate) patience: Duration,
}

/// A flow that sends and rests in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    /// Sends for so long.
    pub(crate) on: Duration,
    /// Rests for so long.
    pub(crate) off: Duration,
}

/// Everything that a data thread is told.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Flow number.
    pub(crate) flow: u32,
    /// What to do.
    pub(crate) way: Way,
    /// Bytes of one transfer.
    pub(crate) transfer: usize,
    /// Bytes to send in all; without end when absent.
    pub(crate) limit: Option<u64>,
    /// Core to pin to.
    pub(crate) core: Option<u32>,
    /// NUMA node of the buffer.
    pub(crate) node: Option<u32>,
    /// Send in bursts.
    pub(crate) burst: Option<Burst>,
    /// What a receiver does after each read.
    pub(crate) after_read: AfterRead,
}

/// What a program does with its time between two reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AfterRead {
    /// Computes for so long.
    pub(crate) work: Option<Duration>,
    /// Then sleeps for so long.
    pub(crate) pause: Option<Duration>,
}

impl AfterRead {
    /// Takes the time. Without either it never looks at the clock.
    #[inline]
    pub(super) fn pass(self, gate: &Gate) {
        if let Some(work) = self.work {
            let until = Instant::now() + work;
            while Instant::now() < until && !gate.is_silent() {
                // Stays in user mode, as a program that works on its data does.
                black_box((0..1000u64).fold(0, |sum, step| black_box(sum + step)));
            }
        }
        if let Some(pause) = self.pause {
            gate.rest(Instant::now() + pause);
        }
    }
}

/// What a thread found out before data flows.
#[derive(Debug)]
pub(crate) struct WorkerReady {
    /// Flow number.
    pub(crate) flow: u32,
    /// What it will do.
    pub(crate) way: Way,
    /// Core that it is pinned to, if it was asked to and may.
    pub(crate) pinned: Option<Result<u32, (u32, io::Error)>>,
    /// Node that its buffer is on, if one was asked for, or why there is none.
    pub(crate) buffer: io::Result<Option<u32>>,
}

/// A data thread and what it tells.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Its counts.
    pub(crate) slot: Arc<Slot>,
    /// True when it sends.
    pub(crate) sends: bool,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// What every loop of transfers uses.
pub(super) struct Loop<'a> {
    pub(super) task: &'a Task,
    pub(super) socket: &'a Socket,
    pub(super) slot: &'a Slot,
    pub(super) gate: &'a Gate,
}

impl Worker {
    /// Starts the thread; it says on `ready` what it got and then waits at the
    /// gate.
    pub(crate) fn start(
        task: Task,
        socket: Arc<Socket>,
        gate: Arc<Gate>,
        ready: Sender<WorkerReady>,
    ) -> io::Result<Self> {
        let slot = Arc::new(Slot::default());
        let sends = matches!(task.way, Way::Send(_) | Way::SendDatagrams(_));
        let name = format!("flow-{}-{}", task.flow, if sends { "send" } else { "receive" });
        let own = Arc::clone(&slot);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let outcome = work(&task, &socket, &own, &gate, &ready);
            own.leave();
            gate.thread_ended(task.flow, outcome);
        })?;
        Ok(Self { slot, sends, thread: Some(thread) })
    }

    /// Waits for the thread, which must have been told to end.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic in it was already shown by the panic hook.
            drop(thread.join());
        }
    }
}

fn work(task: &Task, socket: &Socket, slot: &Slot, gate: &Gate, ready: &Sender<WorkerReady>) -> Outcome {
    // First the core, then the memory, which comes from the core's node.
    let pinned = task.core.map(|core| affinity::pin_to(core).map(|()| core).map_err(|error| (core, error)));
    slot.introduce();
    let length = match task.way {
        Way::SendDatagrams(datagrams) => datagrams.batch,
        Way::ReceiveDatagrams(_) => datagram::RECEIVE_BYTES,
        Way::Send(_) | Way::Receive(_) => task.transfer,
    };
    let (buffer, told) = match Buffer::new(length, task.node) {
        Ok(buffer) => {
            let node = task.node.and_then(|_| buffer.node().ok());
            (Ok(buffer), Ok(node))
        }
        Err(error) => (Err(()), Err(error)),
    };
    // The other side of the channel may have given up on another thread.
    drop(ready.send(WorkerReady { flow: task.flow, way: task.way, pinned, buffer: told }));
    let Ok(buffer) = buffer else { return Outcome::Stopped };
    if !gate.wait_start() {
        return Outcome::Stopped;
    }
    let context = Loop { task, socket, slot, gate };
    match task.way {
        Way::Send(method) => send::stream(&context, method, buffer),
        Way::Receive(method) => receive::stream(&context, method, buffer),
        Way::SendDatagrams(datagrams) => datagram::send(&context, datagrams, buffer),
        Way::ReceiveDatagrams(datagrams) => datagram::receive(&context, datagrams, buffer),
    }
}

impl Loop<'_> {
    /// An own descriptor of the socket.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone().map(OwnedFd::from)
    }

    /// What an error of the socket means: nothing when it was closed under us
    /// because the test is over.
    pub(super) fn failed(&self, error: io::Error) -> Outcome {
        if self.gate.is_stopped() { Outcome::Stopped } else { Outcome::Failed(error) }
    }
}

/// When a bursty flow rests. Without a burst it never looks at the clock.
pub(super) struct Rhythm<'a> {
    gate: &'a Gate,
    burst: Option<Burst>,
    rests_at: Instant,
}

impl<'a> Rhythm<'a> {
    pub(super) fn start(gate: &'a Gate, burst: Option<Burst>) -> Self {
        let on = burst.map_or(Duration::ZERO, |burst| burst.on);
        Self { gate, burst, rests_at: Instant::now() + on }
    }

    /// Called after each transfer.
    #[inline]
    pub(super) fn beat(&mut self) {
        if let Some(burst) = self.burst
            && Instant::now() >= self.rests_at
        {
            let wakes_at = self.rests_at + burst.off;
            self.gate.rest(wakes_at);
            self.rests_at = wakes_at.max(Instant::now()) + burst.on;
        }
    }
}
