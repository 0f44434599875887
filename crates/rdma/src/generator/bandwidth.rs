//! Bandwidth: keeps the send queue of each queue pair filled, in one or both
//! directions.

use std::time::{Duration, Instant};

use clearstream_iwarp::work::{Completion, Operation, SendRequest};
use clearstream_schema::rdma::{RdmaOperation, RdmaRate};

use super::{
    Conventions, Limit, Load, Measured, Watch, credits::Credits, immediate::Immediates, message,
    received::ReceivedRuns,
};
use crate::{
    data_queue_pairs::{Batch, DataQueuePairs, Purpose, decode_id, request_id},
    error::RdmaError,
    negotiation::RemoteMemory,
};

/// Bytes of the Read that ends a run.
const FLUSH_BYTES: u32 = 1;

/// Bandwidth load of one side.
#[derive(Debug)]
pub(super) struct Bandwidth {
    load: Load,
    conventions: Conventions,
    remote: Vec<RemoteMemory>,
    credits: Credits,
    /// Where each message has immediate data.
    immediates: Option<Immediates>,
    queue_pairs: Vec<State>,
    /// Whether this side sends, writes or reads.
    active: bool,
    /// Posts messages of the current run.
    posting: bool,
    /// Message size in bytes.
    size: u32,
    /// Messages of the run on each queue pair.
    limit: u64,
    /// Own messages that are complete.
    sent: u64,
    mismatches: u64,
    started: Instant,
    /// Time at which all own messages were in the receiver's memory.
    drained: Option<Instant>,
    stalled_since: Option<Instant>,
    /// Counter of incoming messages, which tolerates closed connections.
    received: Option<ReceivedRuns>,
}

/// State of one queue pair.
#[derive(Debug, Clone, Default)]
struct State {
    /// Messages posted in this run.
    posted: u64,
    /// Messages posted and not complete.
    outstanding: u32,
    /// Number of the next message, which selects its slot.
    next: u32,
    /// The Read that ends the run: `Some(false)` when posted, `Some(true)` when
    /// complete.
    flush: Option<bool>,
    /// Its connection is closed.
    closed: bool,
}

impl Bandwidth {
    pub(super) fn new(
        pairs: &DataQueuePairs,
        load: Load,
        active: bool,
        remote: Vec<RemoteMemory>,
        conventions: Conventions,
        credits: Credits,
        immediates: Option<Immediates>,
    ) -> Self {
        Self {
            load,
            conventions,
            remote,
            credits,
            immediates,
            queue_pairs: vec![State::default(); pairs.count()],
            active,
            posting: false,
            size: 0,
            limit: u64::MAX,
            sent: 0,
            mismatches: 0,
            started: Instant::now(),
            drained: None,
            stalled_since: None,
            received: None,
        }
    }

    pub(super) fn count_received(&mut self) {
        self.received = Some(ReceivedRuns::new(Instant::now()));
    }

    pub(super) fn received(&self) -> Option<Vec<RdmaRate>> {
        self.received.as_ref().map(ReceivedRuns::rates)
    }

    pub(super) fn peer_finished(&mut self) {
        if let Some(received) = &mut self.received {
            received.announced(Instant::now());
        }
    }

    pub(super) fn is_bidirectional(&self) -> bool {
        self.load.bidirectional
    }

    pub(super) fn begin(&mut self, size: u64) {
        self.size = u32::try_from(size).unwrap_or(u32::MAX);
        (self.limit, self.posting) = (u64::MAX, self.active);
        (self.sent, self.mismatches) = (0, 0);
        (self.drained, self.stalled_since) = (None, None);
        self.credits.begin();
        if let Some(immediates) = &mut self.immediates {
            immediates.begin();
        }
        for state in &mut self.queue_pairs {
            (state.posted, state.flush) = (0, None);
        }
        self.started = Instant::now();
    }

    pub(super) fn finish(&mut self) {
        self.posting = false;
    }

    pub(super) fn measured(&self) -> Measured {
        let elapsed = match (self.active, self.drained) {
            (true, Some(drained)) => drained - self.started,
            (true, None) => self.started.elapsed(),
            (false, _) => Duration::ZERO,
        };
        Measured { message_count: self.sent, elapsed, latency: None }
    }

    /// Performs the client's run, until all of it was received.
    pub(super) fn run(
        &mut self,
        pairs: &mut DataQueuePairs,
        limit: Limit,
        watch: &mut Watch<'_>,
        batch: &mut Batch,
    ) -> Result<Measured, RdmaError> {
        self.limit = limit.count();
        loop {
            if self.posting && (!watch.should_continue(limit, self.sent) || self.all_posted()) {
                self.posting = false;
            }
            if watch.is_stopped() && self.conventions.discards_interrupted() {
                return Err(RdmaError::Stopped);
            }
            let is_busy = self.step(pairs, batch)?;
            if (!self.posting || self.all_posted()) && self.is_drained(pairs)? {
                return Ok(self.measured());
            }
            if !is_busy && pairs.idle()? {
                self.check_stall(pairs)?;
            }
        }
    }

    fn all_posted(&self) -> bool {
        self.queue_pairs.iter().all(|state| state.posted >= self.limit)
    }

    /// Posts as many messages as fit, and processes completions; returns
    /// whether there were any.
    pub(super) fn step(&mut self, pairs: &mut DataQueuePairs, batch: &mut Batch) -> Result<bool, RdmaError> {
        if self.posting {
            for qp in 0..self.queue_pairs.len() {
                while let count @ 1.. = self.room(pairs, qp) {
                    self.post(pairs, qp, count)?;
                }
            }
        }
        self.take(pairs, batch)
    }

    /// Returns the number of messages to post at once: those that end with one
    /// completion.
    fn room(&mut self, pairs: &DataQueuePairs, qp: usize) -> u32 {
        let state = &self.queue_pairs[qp];
        let left = u32::try_from(self.limit.saturating_sub(state.posted)).unwrap_or(u32::MAX);
        let batch_size = pairs.layout.signal_interval.min(left);
        if batch_size == 0 || pairs.layout.depth - state.outstanding < batch_size {
            return 0;
        }
        if self.needs_receives() { self.credits.available(qp, batch_size) } else { batch_size }
    }

    /// Whether each message consumes a receive of the peer's.
    fn needs_receives(&self) -> bool {
        self.load.operation == RdmaOperation::Send || self.immediates.is_some()
    }

    fn post(&mut self, pairs: &DataQueuePairs, qp: usize, count: u32) -> Result<(), RdmaError> {
        let state = &mut self.queue_pairs[qp];
        let (operation, remote, size, first) = (self.load.operation, self.remote[qp], self.size, state.next);
        let immediates = &mut self.immediates;
        let requests = (0..count).map(|number| {
            let immediate = immediates.as_mut().map(|immediates| immediates.next(qp));
            let slot = first.wrapping_add(number);
            SendRequest {
                id: request_id(Purpose::Data, qp, count),
                operation: message(pairs, operation, &remote, qp, slot, size, immediate),
                signaled: number + 1 == count,
                fence: false,
            }
        });
        pairs.post_sends(qp, requests)?;
        state.posted += u64::from(count);
        state.outstanding += count;
        state.next = first.wrapping_add(count);
        if self.needs_receives() {
            self.credits.spend(qp, count);
        }
        Ok(())
    }

    /// Whether everything sent is complete and in the receiver's memory; posts
    /// the Reads that verify it.
    pub(super) fn is_drained(&mut self, pairs: &DataQueuePairs) -> Result<bool, RdmaError> {
        if !self.active {
            return Ok(true);
        }
        let done = if self.conventions.flushes() {
            self.flush(pairs)?;
            self.queue_pairs.iter().all(|state| state.flush == Some(true))
        } else {
            self.queue_pairs.iter().all(|state| state.outstanding == 0)
        };
        if done {
            self.drained.get_or_insert_with(Instant::now);
        }
        Ok(done)
    }

    /// Posts the Read that ends the run where all messages are complete.
    fn flush(&mut self, pairs: &DataQueuePairs) -> Result<(), RdmaError> {
        for (qp, state) in self.queue_pairs.iter_mut().enumerate() {
            if state.outstanding > 0 || state.flush.is_some() {
                continue;
            }
            state.flush = Some(false);
            let operation = Operation::Read {
                sink: pairs.flush_segment(qp, FLUSH_BYTES),
                remote: self.remote[qp].source,
                invalidate: false,
            };
            let id = request_id(Purpose::Flush, qp, 0);
            pairs.post_send(qp, SendRequest { id, operation, signaled: true, fence: false })?;
        }
        Ok(())
    }

    /// Processes completions, reposts receives and grants credits.
    fn take(&mut self, pairs: &mut DataQueuePairs, batch: &mut Batch) -> Result<bool, RdmaError> {
        let mut failures = Failures::default();
        let count = match self.received {
            None => pairs.poll(batch)?,
            Some(_) => pairs.poll_each(batch, |qp, error| failures.add(qp, error))?,
        };
        let now = self.received.is_some().then(Instant::now);
        for completion in &batch[..count] {
            let (purpose, qp, number) = decode_id(completion.id);
            match purpose {
                Purpose::Data => self.sent(pairs, qp, number),
                Purpose::Receive => {
                    let result = self.arrived(pairs, qp, number, completion, now);
                    self.tolerate(&mut failures, qp, result)?;
                }
                Purpose::Flush => self.queue_pairs[qp].flush = Some(true),
                Purpose::Untracked => {}
            }
        }
        if count > 0 {
            self.stalled_since = None;
        }
        if let (Some(received), Some(now)) = (&mut self.received, now) {
            received.polled(count, now);
        }
        if self.credits.reports_after_polls() {
            self.report_credits(pairs, count == 0, &mut failures)?;
        }
        self.close(failures)?;
        Ok(count > 0)
    }

    fn sent(&mut self, pairs: &DataQueuePairs, qp: usize, count: u32) {
        let state = &mut self.queue_pairs[qp];
        state.outstanding -= count;
        self.sent += u64::from(count);
        if self.load.operation == RdmaOperation::Read && pairs.config.verify {
            // Completions are in order: these are the oldest outstanding
            // messages.
            let oldest = state.next.wrapping_sub(state.outstanding + count);
            for number in 0..count {
                self.verify(pairs, qp, oldest.wrapping_add(number), self.size);
            }
        }
    }

    /// Processes a completed receive: a message, or credits.
    fn arrived(
        &mut self,
        pairs: &DataQueuePairs,
        qp: usize,
        slot: u32,
        completion: &Completion,
        now: Option<Instant>,
    ) -> Result<(), RdmaError> {
        if self.credits.granted(qp, completion) {
            return pairs.post_receive(qp, slot);
        }
        if let Some(immediates) = &mut self.immediates {
            immediates.received(qp, completion);
        }
        if let (Some(received), Some(now)) = (&mut self.received, now) {
            received.add(completion.bytes, now);
        }
        // What was written is compared at the end: the receive holds none of it.
        if pairs.config.verify && self.load.operation == RdmaOperation::Send {
            self.verify(pairs, qp, slot, completion.bytes);
        }
        let report = self.credits.received(qp, completion.bytes, &self.remote[qp]);
        pairs.post_receive(qp, slot)?;
        report.map_or(Ok(()), |operation| self.post_untracked(pairs, qp, operation))
    }

    fn post_untracked(
        &self,
        pairs: &DataQueuePairs,
        qp: usize,
        operation: Operation,
    ) -> Result<(), RdmaError> {
        let id = request_id(Purpose::Untracked, qp, 0);
        pairs.post_send(qp, SendRequest { id, operation, signaled: true, fence: false })
    }

    fn report_credits(
        &mut self,
        pairs: &DataQueuePairs,
        is_idle: bool,
        failures: &mut Failures,
    ) -> Result<(), RdmaError> {
        for qp in 0..self.queue_pairs.len() {
            if !self.queue_pairs[qp].closed
                && let Some(operation) = self.credits.report(qp, is_idle, &self.remote[qp])
            {
                let result = self.post_untracked(pairs, qp, operation);
                self.tolerate(failures, qp, result)?;
            }
        }
        Ok(())
    }

    /// Handles the failure of one queue pair: it ends the run, unless incoming
    /// messages are counted.
    fn tolerate(
        &self,
        failures: &mut Failures,
        qp: usize,
        result: Result<(), RdmaError>,
    ) -> Result<(), RdmaError> {
        match result {
            Err(error) if self.received.is_some() => {
                failures.add(qp, error);
                Ok(())
            }
            result => result,
        }
    }

    /// Marks closed queue pairs; returns the first error once none is left.
    fn close(&mut self, failures: Failures) -> Result<(), RdmaError> {
        for qp in failures.queue_pairs {
            self.queue_pairs[qp].closed = true;
        }
        match failures.first {
            Some(error) if self.queue_pairs.iter().all(|state| state.closed) => Err(error),
            _ => Ok(()),
        }
    }

    /// Compares a slot with the peer's message, and clears it.
    fn verify(&mut self, pairs: &DataQueuePairs, qp: usize, slot: u32, bytes: u32) {
        let size = u64::from(self.size);
        let is_same = bytes == self.size && pairs.holds_message(qp, slot, size);
        self.mismatches += u64::from(!is_same);
        pairs.clear_slot(qp, slot, size);
    }

    pub(super) fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// Returns the number of messages that came with other immediate data;
    /// `None` where they have none.
    pub(super) fn immediate_mismatches(&self) -> Option<u64> {
        self.immediates.as_ref().map(Immediates::mismatches)
    }

    /// Returns the number of queue pairs whose memory differs from the peer's
    /// Writes.
    pub(super) fn written_mismatches(&self, pairs: &DataQueuePairs) -> u64 {
        if self.load.operation != RdmaOperation::Write {
            return 0;
        }
        let same = |qp: &usize| pairs.holds_message(*qp, 0, self.size.into());
        (0..pairs.count()).filter(|qp| !same(qp)).count() as u64
    }

    pub(super) fn check_stall(&mut self, pairs: &DataQueuePairs) -> Result<(), RdmaError> {
        let since = *self.stalled_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.conventions.stall_timeout() {
            return Ok(());
        }
        let posted = self.queue_pairs.first().map_or(0, |state| state.posted);
        let what = format!("nothing moves after {posted} messages");
        Err(self.conventions.stalled(pairs, 0, &what, "-n, -s, -q and -r"))
    }
}

/// Failed queue pairs of one poll.
#[derive(Debug, Default)]
struct Failures {
    queue_pairs: Vec<usize>,
    first: Option<RdmaError>,
}

impl Failures {
    fn add(&mut self, qp: usize, error: RdmaError) {
        self.queue_pairs.push(qp);
        self.first.get_or_insert(error);
    }
}
