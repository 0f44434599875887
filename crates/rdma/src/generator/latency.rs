//! Latency: one message at a time, to and fro over the queue pairs in turn.
//!
//! A Send is answered by a Send, a Write by a Write; half the round is the
//! time of one. Who polls sees a Write by looking at its memory, at the last
//! byte, which is another one each time. Who sleeps can not look; there each
//! Write is followed by immediate data. A Read needs no program at the other
//! end: its time is all of it, from the request until the data is there.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::work::{Operation, SendRequest};
use clearstream_schema::rdma::RdmaOperation;

use crate::{
    data_queue_pairs::{Batch, Lanes, Purpose, batch, request_id, split_id},
    error::RdmaError,
    generator::bandwidth::data,
    negotiation::{Advert, announces_writes},
    samples::Samples,
};

/// Every one of so many messages of a queue pair asks for a completion: the
/// others end with it.
const SIGNAL_EVERY: u64 = 8;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One end.
#[derive(Debug)]
pub struct PingPong {
    operation: RdmaOperation,
    far: Advert,
    size: u64,
    announced: bool,
    /// Messages that arrived and were not taken, and Reads that ended, on each
    /// queue pair.
    arrived: Vec<u32>,
    /// Messages sent and taken in this round.
    number: u64,
    batch: Batch,
    /// Messages that were not as the other end sends them.
    pub mismatches: u64,
}

/// What a wait came to.
enum Came {
    /// The message.
    Message,
    /// A moment has passed without it.
    Nothing,
}

impl PingPong {
    /// For the rounds of a test.
    #[must_use]
    pub fn new(all: &Lanes, operation: RdmaOperation, far: Advert) -> Self {
        Self {
            operation,
            far,
            size: 0,
            announced: announces_writes(&all.config),
            arrived: vec![0; all.pairs.len()],
            number: 0,
            batch: batch(),
            mismatches: 0,
        }
    }

    /// Begins a round with messages of this size.
    pub fn begin(&mut self, size: u64) {
        (self.size, self.number, self.mismatches) = (size, 0, 0);
        self.arrived.fill(0);
    }

    /// The near end: one message, and until its answer is there. `None` when
    /// `stop` was raised meanwhile.
    ///
    /// # Errors
    /// A connection that is over, or no answer.
    pub fn exchange(&mut self, all: &mut Lanes, stop: &AtomicBool) -> Result<Option<Duration>, RdmaError> {
        let lane = self.lane();
        let start = Instant::now();
        self.post(all, lane)?;
        let time = loop {
            if let Came::Message = self.come(all, lane)? {
                break start.elapsed();
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if start.elapsed() > PATIENCE {
                return Err(all.lost(lane, &format!("no answer within {} s", PATIENCE.as_secs())));
            }
        };
        self.taken(all, lane);
        let halves = if self.operation == RdmaOperation::Read { 1 } else { 2 };
        Ok(Some(time / halves))
    }

    /// The far end: looks for the next message for a moment, and answers it.
    /// Whether there was one.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn answer(&mut self, all: &mut Lanes) -> Result<bool, RdmaError> {
        let lane = self.lane();
        if self.operation == RdmaOperation::Read {
            // Nothing comes, but with inline progress somebody must move bytes.
            self.look(all)?;
            all.rest()?;
            return Ok(false);
        }
        let Came::Message = self.come(all, lane)? else { return Ok(false) };
        self.post(all, lane)?;
        self.taken(all, lane);
        Ok(true)
    }

    fn lane(&self) -> usize {
        (self.number % self.arrived.len() as u64) as usize
    }

    /// The message's last byte: never zero, and another one each time.
    fn stamp(&self) -> u8 {
        (self.number / self.arrived.len() as u64 % 255) as u8 + 1
    }

    /// Writes are seen in memory and not by a completion.
    fn watched(&self) -> bool {
        self.operation == RdmaOperation::Write && !self.announced
    }

    /// Posts the message.
    fn post(&mut self, all: &Lanes, lane: usize) -> Result<(), RdmaError> {
        let lost = |reason: &str| all.lost(lane, reason);
        let size = self.size as u32;
        let on_lane = self.number / self.arrived.len() as u64;
        let signaled = on_lane.is_multiple_of(SIGNAL_EVERY);
        let operation = match self.operation {
            RdmaOperation::Send => {
                Operation::Send { data: data(all, lane, size), solicited: false, invalidate: None }
            }
            RdmaOperation::Write => {
                if self.watched() {
                    all.source.write(all.source_offset(lane) + self.size as usize - 1, &[self.stamp()]);
                }
                Operation::Write { data: data(all, lane, size), remote: self.far.sink(lane) }
            }
            RdmaOperation::Read => Operation::Read {
                sink: all.sink.segment(all.sink_offset(lane, 0), size),
                remote: self.far.source(lane),
                invalidate: false,
            },
        };
        let read = self.operation == RdmaOperation::Read;
        let purpose = if read { Purpose::Data } else { Purpose::Aside };
        let id = request_id(purpose, lane, 1);
        let pair = &all.pairs[lane];
        if self.operation == RdmaOperation::Write && self.announced {
            let telling = Operation::Immediate { data: [0; 8], solicited: false };
            let pieces = [
                SendRequest { id, operation, signaled: false, fence: false },
                SendRequest { id, operation: telling, signaled, fence: false },
            ];
            return pair.post_sends(pieces).map_err(|error| lost(&error.to_string()));
        }
        let request = SendRequest { id, operation, signaled: signaled || read, fence: false };
        pair.post_send(request).map_err(|error| lost(&error.to_string()))
    }

    /// Looks once for the message that is expected on a lane.
    fn come(&mut self, all: &mut Lanes, lane: usize) -> Result<Came, RdmaError> {
        loop {
            let some = self.look(all)?;
            let there = if self.watched() {
                let mut last = [0];
                let at = all.sink_offset(lane, 0) + self.size as usize - 1;
                all.sink.read(at, &mut last);
                last[0] == self.stamp()
            } else {
                self.arrived[lane] > 0
            };
            if there {
                self.arrived[lane] = self.arrived[lane].saturating_sub(1);
                return Ok(Came::Message);
            }
            if !some && all.rest()? {
                return Ok(Came::Nothing);
            }
        }
    }

    /// Takes completions; whether there were some.
    fn look(&mut self, all: &mut Lanes) -> Result<bool, RdmaError> {
        let count = all.poll(&mut self.batch)?;
        for completion in &self.batch[..count] {
            let (purpose, lane, number) = split_id(completion.id);
            match purpose {
                Purpose::Data => self.arrived[lane] += 1,
                Purpose::Receive => {
                    self.arrived[lane] += 1;
                    if all.config.verify && self.operation == RdmaOperation::Send {
                        let right =
                            u64::from(completion.bytes) == self.size && all.as_sent(lane, number, self.size);
                        self.mismatches += u64::from(!right);
                        all.clear(lane, number, self.size);
                    }
                    all.expect(lane, number)?;
                }
                Purpose::Aside | Purpose::Flush => {}
            }
        }
        Ok(count > 0)
    }

    /// The message of this number is done.
    fn taken(&mut self, all: &Lanes, lane: usize) {
        self.number += 1;
        if all.config.verify && self.operation == RdmaOperation::Read {
            self.mismatches += u64::from(!all.as_sent(lane, 0, self.size));
            all.clear(lane, 0, self.size);
        }
    }

    /// Compares what Writes have left behind, but for the byte that changes.
    pub fn compare_written(&mut self, all: &Lanes) {
        if self.operation != RdmaOperation::Write {
            return;
        }
        let size = if self.watched() { self.size - 1 } else { self.size };
        let lanes = (0..self.arrived.len()).take(usize::try_from(self.number).unwrap_or(usize::MAX));
        self.mismatches += lanes.filter(|lane| !all.begins_as_sent(*lane, self.size, size)).count() as u64;
    }
}

/// Exchanges until there is enough, or `stop` is raised; the time of each message.
///
/// # Errors
/// A connection that is over, or no answer.
pub fn measure(
    ping_pong: &mut PingPong,
    all: &mut Lanes,
    stop: &AtomicBool,
    mut enough: impl FnMut(u64) -> bool,
) -> Result<Samples, RdmaError> {
    let mut samples = Samples::default();
    while !enough(ping_pong.number) {
        match ping_pong.exchange(all, stop)? {
            Some(time) => samples.add(time),
            None => break,
        }
    }
    Ok(samples)
}
