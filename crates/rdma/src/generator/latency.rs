//! Latency: one message in flight at a time, round-robin over the queue pairs.
//!
//! A Send is echoed by a Send, a Write by a Write; the latency is half the
//! round trip. A Write is detected by polling the last byte of the memory,
//! which changes with each message; or, where the receiver sleeps, by immediate
//! data after it, and with immediate data of its own by that. A Read needs no program at the peer: its latency is the whole
//! time from the request to the arrival of the data.

use std::time::Instant;

use clearstream_iwarp::work::{Operation, SendRequest};
use clearstream_schema::rdma::RdmaOperation;

use super::{Conventions, Limit, Measured, Watch, immediate::Immediates, message};
use crate::{
    data_queue_pairs::{Batch, DataQueuePairs, Purpose, decode_id, request_id},
    error::RdmaError,
    negotiation::RemoteMemory,
    samples::Samples,
};

/// One in this many messages of a queue pair is signaled; its completion covers
/// the others.
const SIGNAL_INTERVAL: u64 = 8;

/// Ping-pong load of one side.
#[derive(Debug)]
pub(super) struct PingPong {
    operation: RdmaOperation,
    conventions: Conventions,
    remote: Vec<RemoteMemory>,
    /// Where each message has immediate data.
    immediates: Option<Immediates>,
    /// Message size in bytes; 0 echoes messages of any size.
    size: u32,
    /// Messages of the run on each queue pair.
    limit: u64,
    /// Messages of the run, sent and consumed, all queue pairs together.
    sent: u64,
    consumed: u64,
    /// For each queue pair: messages that arrived and are not consumed, and
    /// completed Reads.
    arrived: Vec<u32>,
    /// Size of the last message that arrived.
    arrived_bytes: u32,
    mismatches: u64,
    started: Instant,
}

impl PingPong {
    pub(super) fn new(
        operation: RdmaOperation,
        remote: Vec<RemoteMemory>,
        conventions: Conventions,
        immediates: Option<Immediates>,
    ) -> Self {
        Self {
            operation,
            conventions,
            immediates,
            arrived: vec![0; remote.len()],
            remote,
            size: 0,
            limit: u64::MAX,
            sent: 0,
            consumed: 0,
            arrived_bytes: 0,
            mismatches: 0,
            started: Instant::now(),
        }
    }

    pub(super) fn begin(&mut self, size: u64) {
        self.size = u32::try_from(size).unwrap_or(u32::MAX);
        (self.sent, self.consumed, self.mismatches) = (0, 0, 0);
        // Of messages of 0 bytes the first one is as long as those that follow.
        self.arrived_bytes = 0;
        self.arrived.fill(0);
        if let Some(immediates) = &mut self.immediates {
            immediates.begin();
        }
        self.started = Instant::now();
    }

    /// Limits the number of messages that the server echoes.
    pub(super) fn limit(&mut self, count: u64) {
        self.limit = count;
    }

    pub(super) fn measured(&self) -> Measured {
        Measured { message_count: self.consumed, elapsed: self.started.elapsed(), latency: None }
    }

    pub(super) fn message_bytes(&self) -> u32 {
        if self.size == 0 { self.arrived_bytes } else { self.size }
    }

    pub(super) fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// As of [`Bandwidth`](super::bandwidth::Bandwidth).
    pub(super) fn immediate_mismatches(&self) -> Option<u64> {
        self.immediates.as_ref().map(Immediates::mismatches)
    }

    /// Performs the client's run; records the latency of each message.
    pub(super) fn run(
        &mut self,
        pairs: &mut DataQueuePairs,
        limit: Limit,
        watch: &mut Watch<'_>,
        batch: &mut Batch,
    ) -> Result<Measured, RdmaError> {
        let most = limit.count().saturating_mul(self.remote.len() as u64);
        let round_trip = if self.operation == RdmaOperation::Read { 1 } else { 2 };
        let mut samples = Samples::default();
        let mut should_continue = self.open(pairs, watch, batch)?;
        while should_continue && self.sent < most && watch.should_continue(limit, self.consumed) {
            let start = Instant::now();
            self.post(pairs)?;
            if self.sent == most && self.last_is_not_echoed() {
                break;
            }
            should_continue = self.wait(pairs, watch, batch)?;
            if should_continue {
                samples.add(start.elapsed() / round_trip);
            }
        }
        if watch.is_stopped() && self.conventions.discards_interrupted() {
            return Err(RdmaError::Stopped);
        }
        Ok(Measured {
            message_count: self.consumed,
            elapsed: self.started.elapsed(),
            latency: samples.latency(),
        })
    }

    /// Exchanges the messages before the first one that counts; false when
    /// stopped.
    fn open(
        &mut self,
        pairs: &mut DataQueuePairs,
        watch: &mut Watch<'_>,
        batch: &mut Batch,
    ) -> Result<bool, RdmaError> {
        match (self.conventions, self.operation) {
            (Conventions::ClearStream { .. }, _) | (Conventions::Perftest, RdmaOperation::Read) => Ok(true),
            (Conventions::Perftest, RdmaOperation::Write) => self.wait(pairs, watch, batch),
            (Conventions::Perftest, RdmaOperation::Send) => {
                self.post(pairs)?;
                self.wait(pairs, watch, batch)
            }
        }
    }

    fn last_is_not_echoed(&self) -> bool {
        self.conventions == Conventions::Perftest && self.operation == RdmaOperation::Write
    }

    /// Waits for the next message and consumes it; false when stopped.
    fn wait(
        &mut self,
        pairs: &mut DataQueuePairs,
        watch: &mut Watch<'_>,
        batch: &mut Batch,
    ) -> Result<bool, RdmaError> {
        let mut idle_since = None;
        loop {
            let is_busy = self.poll(pairs, batch)?;
            if self.has_arrived(pairs) {
                self.take(pairs);
                return Ok(true);
            }
            if !is_busy && pairs.idle()? {
                if !watch.should_continue(Limit::Count(u64::MAX), self.consumed) {
                    return Ok(false);
                }
                let since = idle_since.get_or_insert_with(Instant::now);
                if since.elapsed() > self.conventions.stall_timeout() {
                    let qp = self.queue_pair(self.consumed);
                    return Err(self.conventions.stalled(pairs, qp, "no reply", "-n and -s"));
                }
            }
        }
    }

    /// Server: polls once and echoes. Returns whether there was a message.
    pub(super) fn respond(
        &mut self,
        pairs: &mut DataQueuePairs,
        batch: &mut Batch,
    ) -> Result<bool, RdmaError> {
        if self.sent == 0 && self.last_is_not_echoed() {
            self.post(pairs)?;
        }
        let is_busy = self.poll(pairs, batch)?;
        if self.operation == RdmaOperation::Read || !self.has_arrived(pairs) {
            return Ok(is_busy);
        }
        self.take(pairs);
        if self.sent < self.limit {
            self.post(pairs)?;
        }
        Ok(true)
    }

    /// Consumes a Write that is in memory although the connection is closed.
    pub(super) fn consume_last(&mut self, pairs: &DataQueuePairs) {
        if self.operation == RdmaOperation::Write && self.has_arrived(pairs) {
            self.take(pairs);
        }
    }

    fn queue_pair(&self, number: u64) -> usize {
        (number % self.remote.len() as u64) as usize
    }

    /// Returns the last byte of the Write with this number.
    fn stamp(&self, number: u64) -> u8 {
        self.conventions.stamp(number / self.remote.len() as u64)
    }

    /// Whether each Write is followed by immediate data.
    fn is_announced(&self) -> bool {
        self.operation == RdmaOperation::Write
            && self.immediates.is_none()
            && self.conventions == Conventions::ClearStream { announced_writes: true }
    }

    /// Whether Writes are detected in memory and not by a completion.
    fn polls_memory(&self) -> bool {
        self.operation == RdmaOperation::Write && !self.is_announced() && self.immediates.is_none()
    }

    fn post(&mut self, pairs: &DataQueuePairs) -> Result<(), RdmaError> {
        let (number, qp) = (self.sent, self.queue_pair(self.sent));
        self.sent += 1;
        let size = self.message_bytes();
        if self.polls_memory() {
            let last = pairs.source_offset(qp) + size as usize - 1;
            pairs.source.write(last, &[self.stamp(number)]);
        }
        let immediate = self.immediates.as_mut().map(|immediates| immediates.next(qp));
        let operation = message(pairs, self.operation, &self.remote[qp], qp, 0, size, immediate);
        let is_read = self.operation == RdmaOperation::Read;
        let id = request_id(if is_read { Purpose::Data } else { Purpose::Untracked }, qp, 1);
        let signaled = is_read || (number / self.remote.len() as u64).is_multiple_of(SIGNAL_INTERVAL);
        if self.is_announced() {
            let announcement = Operation::Immediate { data: [0; 8], solicited: false };
            return pairs.post_sends(
                qp,
                [
                    SendRequest { id, operation, signaled: false, fence: false },
                    SendRequest { id, operation: announcement, signaled, fence: false },
                ],
            );
        }
        pairs.post_send(qp, SendRequest { id, operation, signaled, fence: false })
    }

    /// Processes completions; returns whether there were any.
    fn poll(&mut self, pairs: &mut DataQueuePairs, batch: &mut Batch) -> Result<bool, RdmaError> {
        let count = pairs.poll(batch)?;
        for completion in &batch[..count] {
            let (purpose, qp, number) = decode_id(completion.id);
            match purpose {
                Purpose::Data => self.arrived[qp] += 1,
                Purpose::Receive => {
                    self.arrived[qp] = self.arrived[qp].saturating_add(1);
                    self.arrived_bytes = completion.bytes;
                    if let Some(immediates) = &mut self.immediates {
                        immediates.received(qp, completion);
                    }
                    if pairs.config.verify && self.operation == RdmaOperation::Send {
                        self.verify(pairs, qp, number, completion.bytes);
                    }
                    pairs.post_receive(qp, number)?;
                }
                Purpose::Untracked | Purpose::Flush => {}
            }
        }
        Ok(count > 0)
    }

    /// Whether the next message has arrived.
    fn has_arrived(&self, pairs: &DataQueuePairs) -> bool {
        let qp = self.queue_pair(self.consumed);
        if !self.polls_memory() {
            return self.arrived[qp] > 0;
        }
        let mut last = [0];
        pairs.sink.read(pairs.sink_offset(qp, 0) + self.size as usize - 1, &mut last);
        last[0] == self.stamp(self.consumed)
    }

    fn take(&mut self, pairs: &DataQueuePairs) {
        let qp = self.queue_pair(self.consumed);
        self.consumed += 1;
        self.arrived[qp] = self.arrived[qp].saturating_sub(1);
        if pairs.config.verify && self.operation == RdmaOperation::Read {
            self.verify(pairs, qp, 0, self.size);
        }
    }

    /// Compares a slot with the peer's message, and clears it.
    fn verify(&mut self, pairs: &DataQueuePairs, qp: usize, slot: u32, bytes: u32) {
        let size = u64::from(self.size);
        let is_same = bytes == self.size && pairs.holds_message(qp, slot, size);
        self.mismatches += u64::from(!is_same);
        pairs.clear_slot(qp, slot, size);
    }

    /// Returns the number of queue pairs whose memory differs from the peer's
    /// Writes, except for the last byte.
    pub(super) fn written_mismatches(&self, pairs: &DataQueuePairs) -> u64 {
        if self.operation != RdmaOperation::Write {
            return 0;
        }
        let size = u64::from(self.size);
        let length = if self.polls_memory() { size - 1 } else { size };
        let written = (0..pairs.count()).take(usize::try_from(self.consumed).unwrap_or(usize::MAX));
        written.filter(|qp| !pairs.holds_prefix(*qp, size, length)).count() as u64
    }
}
