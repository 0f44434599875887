//! Load generator of both sides of a measurement: posts work requests, polls
//! completions, counts and times.
//!
//! - [`bandwidth`] keeps the send queue of every queue pair filled, in one or
//!   both directions; [`credits`] is its flow control of Sends, and [`received`]
//!   counts incoming messages.
//! - [`immediate`] is the immediate data of messages, and its comparison.
//! - [`latency`] has one message in flight at a time.
//! - [`Conventions`] are the differences of the control protocols on the data
//!   path ([`crate::client`] and [`crate::perftest`]).

mod bandwidth;
mod credits;
mod immediate;
mod latency;
mod received;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::work::{Completion, Data, InlineData, Operation};
use clearstream_schema::rdma::{RdmaConfig, RdmaLatency, RdmaOperation, RdmaRate, RdmaWait};

use crate::{
    data_queue_pairs::{BATCH, Batch, DataQueuePairs, Role},
    error::RdmaError,
    negotiation::RemoteMemory,
};
use bandwidth::Bandwidth;
pub(crate) use credits::{Counters, Credits};
use immediate::Immediates;
use latency::PingPong;

/// Interval at which the watcher of a run is called: that of its samples.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Differences of the control protocols on the data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conventions {
    /// Between two sides of this crate. A run ends with a Read of one byte on
    /// each queue pair, whose response follows all data sent before.
    ClearStream {
        /// Each Write of a latency run is followed by immediate data, because
        /// its receiver sleeps and does not poll its memory. One that has
        /// immediate data of its own needs no other.
        announced_writes: bool,
    },
    /// With a program of perftest. A run ends when the last request is
    /// complete. In a latency run of Writes the server writes first and the
    /// client's last is not echoed; of Sends the first is not counted, because
    /// the server calibrates its clock before it responds; Sends are echoed
    /// with the same size.
    Perftest,
}

impl Conventions {
    /// Conventions of this crate's own protocol.
    pub(crate) fn clearstream(config: &RdmaConfig) -> Self {
        Self::ClearStream { announced_writes: config.wait() == RdmaWait::Sleep }
    }

    /// Maximum time without a completion while requests are outstanding.
    fn stall_timeout(self) -> Duration {
        match self {
            Self::ClearStream { .. } => Duration::from_secs(10),
            Self::Perftest => Duration::from_secs(20),
        }
    }

    /// Creates the error of a run without progress.
    fn stalled(self, pairs: &DataQueuePairs, qp: usize, what: &str, options: &str) -> RdmaError {
        let hint = match self {
            Self::ClearStream { .. } => String::new(),
            Self::Perftest => format!("; give its program the same {options}"),
        };
        let seconds = self.stall_timeout().as_secs();
        pairs.lost(qp, &format!("{what} for {seconds} s{hint}"))
    }

    /// Whether a run ends with a Read on each queue pair.
    fn flushes(self) -> bool {
        matches!(self, Self::ClearStream { .. })
    }

    /// Whether an interrupted run has no results: perftest's are of the
    /// requested count.
    fn discards_interrupted(self) -> bool {
        self == Self::Perftest
    }

    /// Returns the last byte of the Write with this number on its queue pair,
    /// from 0. It differs from the one before, and the first from cleared
    /// memory.
    fn stamp(self, number: u64) -> u8 {
        match self {
            Self::ClearStream { .. } => (number % 255) as u8 + 1,
            Self::Perftest => (number + 1) as u8,
        }
    }
}

/// Load of a measurement; message size and limit are set per run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) operation: RdmaOperation,
    /// One message in flight at a time, instead of as many as the layout's depth.
    pub(crate) latency: bool,
    /// Whether the server sends, writes or reads as well.
    pub(crate) bidirectional: bool,
    /// Whether each message has immediate data.
    pub(crate) immediate: bool,
}

impl Load {
    /// Returns the load that a configuration requests.
    pub(crate) fn new(config: &RdmaConfig, operation: RdmaOperation) -> Self {
        let RdmaConfig { latency, both_ways: bidirectional, immediate, .. } = *config;
        Self { operation, latency, bidirectional, immediate }
    }
}

/// End of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    Duration(Duration),
    /// Messages on each queue pair.
    Count(u64),
}

impl Limit {
    /// Messages on each queue pair.
    fn count(self) -> u64 {
        match self {
            Self::Duration(_) => u64::MAX,
            Self::Count(count) => count,
        }
    }
}

/// Results of one side's run.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) message_count: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latency: Option<RdmaLatency>,
}

/// The stop flag of a run and its watcher.
pub(crate) struct Watch<'a> {
    stop: &'a AtomicBool,
    started: Instant,
    next_tick: Duration,
    on_tick: &'a mut dyn FnMut(Duration, u64),
}

impl<'a> Watch<'a> {
    /// `on_tick` is called a few times per second during the run, with the time
    /// and the number of messages since its beginning.
    pub(crate) fn new(stop: &'a AtomicBool, on_tick: &'a mut dyn FnMut(Duration, u64)) -> Self {
        Self { stop, started: Instant::now(), next_tick: TICK_INTERVAL, on_tick }
    }

    /// Whether a run with this number of completed messages continues.
    fn should_continue(&mut self, limit: Limit, messages: u64) -> bool {
        let elapsed = self.started.elapsed();
        if elapsed >= self.next_tick {
            self.next_tick = elapsed + TICK_INTERVAL;
            (self.on_tick)(elapsed, messages);
        }
        let in_time = match limit {
            Limit::Duration(duration) => elapsed < duration,
            Limit::Count(_) => true,
        };
        in_time && !self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Load generator of one side, for all runs of a measurement.
#[derive(Debug)]
pub(crate) struct Generator {
    engine: Engine,
    role: Role,
    batch: Box<Batch>,
}

#[derive(Debug)]
enum Engine {
    Bandwidth(Bandwidth),
    Latency(PingPong),
}

impl Generator {
    /// Creates a generator before its first run.
    pub(crate) fn new(
        pairs: &DataQueuePairs,
        role: Role,
        load: Load,
        remote: Vec<RemoteMemory>,
        conventions: Conventions,
        credits: Credits,
    ) -> Self {
        let immediates =
            if load.immediate { Immediates::new(role, load.operation, pairs.count()) } else { None };
        let engine = if load.latency {
            Engine::Latency(PingPong::new(load.operation, remote, conventions, immediates))
        } else {
            let active = role == Role::Client || load.bidirectional;
            Engine::Bandwidth(Bandwidth::new(pairs, load, active, remote, conventions, credits, immediates))
        };
        Self { engine, role, batch: Box::new([Completion::EMPTY; BATCH]) }
    }

    /// Counts incoming messages by size ([`Self::received`]), until the last
    /// connection is closed.
    pub(crate) fn counting_received(mut self) -> Self {
        if let Engine::Bandwidth(bandwidth) = &mut self.engine {
            bandwidth.count_received();
        }
        self
    }

    /// Limits the number of messages that a server of latency runs echoes.
    pub(crate) fn limiting_replies(mut self, count: u64) -> Self {
        if let Engine::Latency(ping_pong) = &mut self.engine {
            ping_pong.limit(count);
        }
        self
    }

    /// Begins a run with messages of this size; 0 echoes messages of any size.
    pub(crate) fn begin(&mut self, size: u64) {
        match &mut self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.begin(size),
            Engine::Latency(ping_pong) => ping_pong.begin(size),
        }
    }

    /// Client: performs the run, until the limit or the stop flag.
    ///
    /// # Errors
    /// A closed connection, or no progress. [`RdmaError::Stopped`] where the
    /// conventions have no results of an interrupted run.
    pub(crate) fn run(
        &mut self,
        pairs: &mut DataQueuePairs,
        limit: Limit,
        watch: &mut Watch<'_>,
    ) -> Result<Measured, RdmaError> {
        match &mut self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.run(pairs, limit, watch, &mut self.batch),
            Engine::Latency(ping_pong) => ping_pong.run(pairs, limit, watch, &mut self.batch),
        }
    }

    /// Processes completions; a server also echoes, and sends where the load is
    /// bidirectional. Returns whether there was anything to do.
    ///
    /// # Errors
    /// A closed connection.
    pub(crate) fn step(&mut self, pairs: &mut DataQueuePairs) -> Result<bool, RdmaError> {
        match &mut self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.step(pairs, &mut self.batch),
            Engine::Latency(ping_pong) => match self.role {
                Role::Client => Ok(false),
                Role::Server => ping_pong.respond(pairs, &mut self.batch),
            },
        }
    }

    /// Stops posting messages of the run.
    pub(crate) fn finish(&mut self) {
        if let Engine::Bandwidth(bandwidth) = &mut self.engine {
            bandwidth.finish();
        }
    }

    /// After [`Self::finish`]: whether everything sent is in the peer's memory.
    ///
    /// # Errors
    /// A closed connection, or no progress.
    pub(crate) fn is_drained(&mut self, pairs: &DataQueuePairs) -> Result<bool, RdmaError> {
        match &mut self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.is_drained(pairs),
            Engine::Latency(_) => Ok(true),
        }
    }

    /// Called when there was nothing to do while requests are outstanding.
    ///
    /// # Errors
    /// No progress for too long.
    pub(crate) fn check_stall(&mut self, pairs: &DataQueuePairs) -> Result<(), RdmaError> {
        match &mut self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.check_stall(pairs),
            Engine::Latency(_) => Ok(()),
        }
    }

    /// Returns the results of a server's run: what it sent itself with the
    /// time, or the number of messages echoed.
    pub(crate) fn measured(&self) -> Measured {
        match &self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.measured(),
            Engine::Latency(ping_pong) => ping_pong.measured(),
        }
    }

    /// Handles a closed connection: the client's last Write is in memory.
    pub(crate) fn peer_closed(&mut self, pairs: &DataQueuePairs) {
        if let Engine::Latency(ping_pong) = &mut self.engine {
            ping_pong.consume_last(pairs);
        }
    }

    /// The peer has announced that it has sent everything of a run.
    pub(crate) fn peer_finished(&mut self) {
        if let Engine::Bandwidth(bandwidth) = &mut self.engine {
            bandwidth.peer_finished();
        }
    }

    /// Returns the incoming messages by size; `None` where they are not
    /// counted.
    pub(crate) fn received(&self) -> Option<Vec<RdmaRate>> {
        match &self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.received(),
            Engine::Latency(_) => None,
        }
    }

    /// Returns the message size of a latency run.
    pub(crate) fn message_bytes(&self) -> u64 {
        match &self.engine {
            Engine::Bandwidth(_) => 0,
            Engine::Latency(ping_pong) => ping_pong.message_bytes().into(),
        }
    }

    /// Returns the number of messages that came with other immediate data than
    /// the peer sent with them; `None` where they have none.
    pub(crate) fn immediate_mismatches(&self) -> Option<u64> {
        match &self.engine {
            Engine::Bandwidth(bandwidth) => bandwidth.immediate_mismatches(),
            Engine::Latency(ping_pong) => ping_pong.immediate_mismatches(),
        }
    }

    /// Returns the number of messages, or queue pairs, that differed from what
    /// the peer sends; 0 without verification.
    pub(crate) fn mismatches(&self, pairs: &DataQueuePairs) -> u64 {
        if !pairs.config.verify {
            return 0;
        }
        match &self.engine {
            // Only a side that is written to has memory to compare.
            Engine::Bandwidth(bandwidth) if self.role == Role::Server || bandwidth.is_bidirectional() => {
                bandwidth.mismatches() + bandwidth.written_mismatches(pairs)
            }
            Engine::Bandwidth(bandwidth) => bandwidth.mismatches(),
            Engine::Latency(ping_pong) => ping_pong.mismatches() + ping_pong.written_mismatches(pairs),
        }
    }
}

/// Builds one message of a queue pair; `number` selects the slot of a Read.
fn message(
    pairs: &DataQueuePairs,
    operation: RdmaOperation,
    remote: &RemoteMemory,
    qp: usize,
    number: u32,
    size: u32,
    immediate: Option<[u8; 4]>,
) -> Operation {
    let solicited = false;
    match (operation, immediate) {
        (RdmaOperation::Send, None) => {
            Operation::Send { data: data(pairs, qp, size), solicited, invalidate: None }
        }
        (RdmaOperation::Send, Some(immediate)) => {
            Operation::SendImmediate { data: data(pairs, qp, size), immediate, solicited }
        }
        (RdmaOperation::Write, None) => Operation::Write { data: data(pairs, qp, size), remote: remote.sink },
        (RdmaOperation::Write, Some(immediate)) => {
            let remote = remote.sink;
            Operation::WriteImmediate { data: data(pairs, qp, size), remote, immediate, solicited }
        }
        (RdmaOperation::Read, _) => Operation::Read {
            sink: pairs.sink_segment(qp, number, size),
            remote: remote.source,
            invalidate: false,
        },
    }
}

/// Returns a message's data: inline, or gathered from memory.
fn data(pairs: &DataQueuePairs, qp: usize, size: u32) -> Data {
    if u64::from(size) <= pairs.config.inline.0 {
        let mut bytes = InlineData::from_elem(0, size as usize);
        pairs.source.read(pairs.source_offset(qp), &mut bytes);
        Data::Inline(bytes)
    } else {
        Data::Gather([pairs.source_segment(qp, size)].into_iter().collect())
    }
}
