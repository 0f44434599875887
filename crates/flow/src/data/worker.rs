//! One data thread, from start to end.

use std::{
    hint::black_box,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_schema::flow::{ReceiveMethod, SendMethod};
use clearstream_sys::{affinity, memory::Buffer, priority};
use socket2::Socket;

use super::{
    datagram,
    gate::{Gate, Outcome},
    receive, send,
    thread_counters::ThreadCounters,
};

/// Operation of a thread on its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Sends a stream.
    Send(SendMethod),
    /// Receives a stream.
    Receive(ReceiveMethod),
    /// Sends numbered datagrams.
    SendDatagrams(Datagrams),
    /// Receives numbered datagrams.
    ReceiveDatagrams(Datagrams),
}

/// Datagram parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagrams {
    /// Bytes of each datagram.
    pub(crate) size: usize,
    /// Bytes of one send: several datagrams with segmentation offload.
    pub(crate) batch: usize,
    /// Tag at the start of each datagram.
    pub(crate) tag: [u8; 8],
    /// Maximum rate in bits per second.
    pub(crate) rate_bps: Option<u64>,
    /// Idle time after which a receiver fails.
    pub(crate) timeout: Duration,
}

/// Bytes of one transfer of all threads of a test: the warm-up may change it while data flows.
#[derive(Debug, Clone, Default)]
pub(crate) struct TransferSize(Arc<AtomicUsize>);

impl TransferSize {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Cheap enough for every transfer.
    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(crate) fn set(&self, bytes: usize) {
        self.0.store(bytes, Relaxed);
    }
}

/// Alternation of sending and pausing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    /// Time of a burst.
    pub(crate) on: Duration,
    /// Time of a pause.
    pub(crate) off: Duration,
}

/// Parameters of a data thread.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Flow number.
    pub(crate) flow: u32,
    /// Operation to perform.
    pub(crate) operation: Operation,
    /// Bytes of one transfer.
    pub(crate) transfer: TransferSize,
    /// The most that it becomes.
    pub(crate) transfer_max: usize,
    /// Total bytes to send; unlimited when absent.
    pub(crate) limit: Option<u64>,
    /// Core to pin to.
    pub(crate) core: Option<u32>,
    /// NUMA node of the buffer.
    pub(crate) node: Option<u32>,
    /// Many threads beside it: the sampler and the control connection run first, or a test of a thousand flows does not end.
    pub(crate) is_crowded: bool,
    /// Send in bursts.
    pub(crate) burst: Option<Burst>,
    /// Processing after each read.
    pub(crate) after_read: AfterRead,
}

/// Simulated processing of a program between two reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AfterRead {
    /// CPU time of the computation.
    pub(crate) work: Option<Duration>,
    /// Sleep after it.
    pub(crate) pause: Option<Duration>,
}

impl AfterRead {
    /// Computes and sleeps. Without either it reads no clock.
    #[inline]
    pub(super) fn pass(self, gate: &Gate) {
        if let Some(work) = self.work {
            let until = Instant::now() + work;
            while Instant::now() < until && !gate.is_expired() {
                // Stays in user mode, as a program processing its data does.
                black_box((0..1000u64).fold(0, |sum, step| black_box(sum + step)));
            }
        }
        if let Some(pause) = self.pause {
            gate.pause(Instant::now() + pause);
        }
    }
}

/// Report of a thread before data flows.
#[derive(Debug)]
pub(crate) struct WorkerReady {
    /// Flow number.
    pub(crate) flow: u32,
    /// Its operation.
    pub(crate) operation: Operation,
    /// Core that it is pinned to, or the error of pinning; `None` if not requested.
    pub(crate) pinned: Option<Result<u32, (u32, io::Error)>>,
    /// NUMA node of its buffer, if one was requested, or the allocation error.
    pub(crate) buffer: io::Result<Option<u32>>,
}

/// A data thread and its counters.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Its counters.
    pub(crate) counters: Arc<ThreadCounters>,
    /// True when it sends.
    pub(crate) sends: bool,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// Context of a transfer loop.
pub(super) struct Loop<'a> {
    pub(super) task: &'a Task,
    pub(super) socket: &'a Socket,
    pub(super) counters: &'a ThreadCounters,
    pub(super) gate: &'a Gate,
}

impl Worker {
    /// Starts the thread; it reports on `ready` and then waits at the start barrier.
    pub(crate) fn start(
        task: Task,
        socket: Arc<Socket>,
        gate: Arc<Gate>,
        ready: Sender<WorkerReady>,
    ) -> io::Result<Self> {
        let counters = Arc::new(ThreadCounters::default());
        let sends = matches!(task.operation, Operation::Send(_) | Operation::SendDatagrams(_));
        let name = format!("flow-{}-{}", task.flow, if sends { "send" } else { "receive" });
        let own = Arc::clone(&counters);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let outcome = work(&task, &socket, &own, &gate, &ready);
            own.leave();
            gate.thread_ended(task.flow, outcome);
        })?;
        Ok(Self { counters, sends, thread: Some(thread) })
    }

    /// Joins the thread, which must have been stopped before.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic in it was already reported by the panic hook.
            drop(thread.join());
        }
    }
}

fn work(
    task: &Task,
    socket: &Socket,
    counters: &ThreadCounters,
    gate: &Gate,
    ready: &Sender<WorkerReady>,
) -> Outcome {
    // Pin first: the memory is then allocated on the core's node.
    let pinned = task.core.map(|core| affinity::pin_to(core).map(|()| core).map_err(|error| (core, error)));
    counters.register();
    if task.is_crowded {
        // Only fairness is lost without it.
        drop(priority::make_nice());
    }
    let length = match task.operation {
        Operation::SendDatagrams(datagrams) => datagrams.batch,
        Operation::ReceiveDatagrams(_) => datagram::RECEIVE_BYTES,
        Operation::Send(_) | Operation::Receive(_) => task.transfer_max,
    };
    let (buffer, buffer_node) = match Buffer::new(length, task.node) {
        Ok(buffer) => {
            let node = task.node.and_then(|_| buffer.node().ok());
            (Ok(buffer), Ok(node))
        }
        Err(error) => (Err(()), Err(error)),
    };
    // The receiver may have been dropped after a failure of another thread.
    drop(ready.send(WorkerReady { flow: task.flow, operation: task.operation, pinned, buffer: buffer_node }));
    let Ok(buffer) = buffer else { return Outcome::Stopped };
    if !gate.wait_start() {
        return Outcome::Stopped;
    }
    let context = Loop { task, socket, counters, gate };
    match task.operation {
        Operation::Send(method) => send::stream(&context, method, buffer),
        Operation::Receive(method) => receive::stream(&context, method, buffer),
        Operation::SendDatagrams(datagrams) => datagram::send(&context, datagrams, buffer),
        Operation::ReceiveDatagrams(datagrams) => datagram::receive(&context, datagrams, buffer),
    }
}

impl Loop<'_> {
    /// A duplicate descriptor of the socket.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone().map(OwnedFd::from)
    }

    /// Maps a socket error to an outcome: stopped when the socket was closed because the test is over.
    pub(super) fn failed(&self, error: io::Error) -> Outcome {
        if self.gate.is_stopped() { Outcome::Stopped } else { Outcome::Failed(error) }
    }
}

/// Burst timing of a flow. Without a burst it reads no clock.
pub(super) struct BurstPacer<'a> {
    gate: &'a Gate,
    burst: Option<Burst>,
    pauses_at: Instant,
}

impl<'a> BurstPacer<'a> {
    pub(super) fn start(gate: &'a Gate, burst: Option<Burst>) -> Self {
        let on = burst.map_or(Duration::ZERO, |burst| burst.on);
        Self { gate, burst, pauses_at: Instant::now() + on }
    }

    /// Called after each transfer.
    #[inline]
    pub(super) fn after_transfer(&mut self) {
        if let Some(burst) = self.burst
            && Instant::now() >= self.pauses_at
        {
            let wakes_at = self.pauses_at + burst.off;
            self.gate.pause(wakes_at);
            self.pauses_at = wakes_at.max(Instant::now()) + burst.on;
        }
    }
}
