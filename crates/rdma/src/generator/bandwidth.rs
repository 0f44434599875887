//! Bandwidth: each queue pair is kept filled with requests.
//!
//! Sends need a posted receive at the other end (RFC 5040 has no "receiver not
//! ready"), so that they go by credits: a receiver tells with immediate data
//! when it has posted some anew. A round ends with a Read of one byte on each
//! queue pair: its response follows all that was sent before it, so that the
//! time ends when everything is in the receiver's memory.

use std::time::{Duration, Instant};

use clearstream_iwarp::work::{Completed, Completion, Data, InlineData, Operation, SendRequest};
use clearstream_schema::rdma::RdmaOperation;

use crate::{
    data_queue_pairs::{Batch, Lanes, Purpose, request_id, split_id},
    error::RdmaError,
    negotiation::Advert,
};

/// Bytes of the Read that ends a round.
const FLUSH_BYTES: u32 = 1;
/// How long nothing may happen while something should.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one end has done in a round, and has yet to hear of.
#[derive(Debug)]
pub struct Traffic {
    operation: RdmaOperation,
    size: u64,
    lanes: Vec<LaneState>,
    /// Messages of ours that ended.
    pub sent: u64,
    /// Messages that were not as the other end sends them.
    pub mismatches: u64,
    started: Instant,
    /// When everything of ours was in the receiver's memory.
    finished: Option<Instant>,
    far: Advert,
    last_news: Option<Instant>,
}

/// One queue pair's.
#[derive(Debug, Default)]
struct LaneState {
    /// Messages posted, of this round.
    posted: u64,
    /// Messages posted that have not ended.
    outstanding: u32,
    /// Sends that the other end has receives for.
    credits: u32,
    /// Receives posted anew that the other end has not been told of.
    owed: u32,
    /// Number of the next message, and with it of its slot.
    next: u32,
    /// The Read that ends the round: posted, and ended.
    flush: Option<bool>,
}

impl Traffic {
    /// For the rounds of a test.
    #[must_use]
    pub fn new(lanes: &Lanes, operation: RdmaOperation, far: Advert) -> Self {
        let credits = lanes.shape.depth;
        let fresh = || LaneState { credits, ..LaneState::default() };
        Self {
            operation,
            size: 0,
            lanes: lanes.pairs.iter().map(|_| fresh()).collect(),
            sent: 0,
            mismatches: 0,
            started: Instant::now(),
            finished: None,
            far,
            last_news: None,
        }
    }

    /// Begins a round with messages of this size.
    pub fn begin(&mut self, size: u64) {
        (self.size, self.sent, self.mismatches) = (size, 0, 0);
        (self.finished, self.last_news) = (None, None);
        self.started = Instant::now();
        for lane in &mut self.lanes {
            (lane.posted, lane.flush) = (0, None);
        }
    }

    /// From the begin until everything of ours was there.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.finished.unwrap_or_else(Instant::now) - self.started
    }

    /// Posts what there is room for, up to so many messages on each queue pair
    /// in this round.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn post(&mut self, all: &Lanes, most: u64) -> Result<(), RdmaError> {
        for lane in 0..self.lanes.len() {
            while let count @ 1.. = self.room(all, lane, most) {
                self.post_some(all, lane, count)?;
            }
        }
        Ok(())
    }

    /// How many to post at once: those that end with one completion.
    fn room(&self, all: &Lanes, lane: usize, most: u64) -> u32 {
        let state = &self.lanes[lane];
        let left = u32::try_from(most.saturating_sub(state.posted)).unwrap_or(u32::MAX);
        let wanted = all.shape.signal_every.min(left);
        if wanted == 0 || all.shape.depth - state.outstanding < wanted {
            return 0;
        }
        match self.operation {
            RdmaOperation::Send => wanted.min(state.credits),
            RdmaOperation::Write | RdmaOperation::Read => wanted,
        }
    }

    fn post_some(&mut self, all: &Lanes, lane: usize, count: u32) -> Result<(), RdmaError> {
        let state = &mut self.lanes[lane];
        let (operation, far, size, first) = (self.operation, &self.far, self.size as u32, state.next);
        let requests = (0..count).map(|number| SendRequest {
            id: request_id(Purpose::Data, lane, count),
            operation: message(all, far, operation, lane, first.wrapping_add(number), size),
            signaled: number + 1 == count,
            fence: false,
        });
        all.pairs[lane].post_sends(requests).map_err(|error| all.lost(lane, &error.to_string()))?;
        state.posted += u64::from(count);
        state.outstanding += count;
        state.next = first.wrapping_add(count);
        if operation == RdmaOperation::Send {
            state.credits -= count;
        }
        Ok(())
    }

    /// Posts the Reads that end the round where all else has ended; whether
    /// they have ended as well.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn flush(&mut self, all: &Lanes) -> Result<bool, RdmaError> {
        let far = self.far;
        for (lane, state) in self.lanes.iter_mut().enumerate() {
            if state.outstanding > 0 || state.flush.is_some() {
                continue;
            }
            state.flush = Some(false);
            let request = SendRequest {
                id: request_id(Purpose::Flush, lane, 0),
                operation: Operation::Read {
                    sink: all.aside.segment(lane * 8, FLUSH_BYTES),
                    remote: far.source(lane),
                    invalidate: false,
                },
                signaled: true,
                fence: false,
            };
            all.pairs[lane].post_send(request).map_err(|error| all.lost(lane, &error.to_string()))?;
        }
        let done = self.lanes.iter().all(|state| state.flush == Some(true));
        if done && self.finished.is_none() {
            self.finished = Some(Instant::now());
        }
        Ok(done)
    }

    /// As many messages as asked for are posted on each queue pair.
    #[must_use]
    pub fn all_posted(&self, most: u64) -> bool {
        self.lanes.iter().all(|state| state.posted >= most)
    }

    /// Takes what has ended and arrived, and posts receives anew. Whether
    /// there was something.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn take(&mut self, all: &mut Lanes, batch: &mut Batch) -> Result<bool, RdmaError> {
        let count = all.poll(batch)?;
        for completion in &batch[..count] {
            let (purpose, lane, number) = split_id(completion.id);
            let state = &mut self.lanes[lane];
            match purpose {
                Purpose::Data => {
                    state.outstanding -= number;
                    self.sent += u64::from(number);
                    if self.operation == RdmaOperation::Read && all.config.verify {
                        self.compare_read(all, lane, number);
                    }
                }
                Purpose::Receive => self.received(all, lane, number, completion)?,
                Purpose::Flush => state.flush = Some(true),
                Purpose::Aside => {}
            }
        }
        if count > 0 {
            self.last_news = None;
        }
        Ok(count > 0)
    }

    /// Something of ours should come and does not.
    ///
    /// # Errors
    /// When that has been so for too long.
    pub fn grow_impatient(&mut self, all: &Lanes) -> Result<(), RdmaError> {
        match self.last_news {
            None => self.last_news = Some(Instant::now()),
            Some(since) if since.elapsed() > PATIENCE => {
                return Err(all.lost(0, &format!("nothing moves for {} s", PATIENCE.as_secs())));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn received(
        &mut self,
        all: &Lanes,
        lane: usize,
        slot: u32,
        completion: &Completion,
    ) -> Result<(), RdmaError> {
        if completion.completed == Completed::ReceiveImmediate {
            let told = u64::from_be_bytes(completion.immediate.unwrap_or_default());
            let state = &mut self.lanes[lane];
            let most = u64::from(all.shape.depth);
            state.credits = told.saturating_add(state.credits.into()).min(most) as u32;
            return all.expect(lane, slot);
        }
        if all.config.verify {
            let right = u64::from(completion.bytes) == self.size && all.as_sent(lane, slot, self.size);
            self.mismatches += u64::from(!right);
            all.clear(lane, slot, self.size);
        }
        all.expect(lane, slot)?;
        let state = &mut self.lanes[lane];
        state.owed += 1;
        if state.owed == all.shape.signal_every {
            let credits = std::mem::take(&mut state.owed);
            return self.tell_credits(all, lane, credits);
        }
        Ok(())
    }

    fn tell_credits(&self, all: &Lanes, lane: usize, credits: u32) -> Result<(), RdmaError> {
        let request = SendRequest {
            id: request_id(Purpose::Aside, lane, 0),
            operation: Operation::Immediate { data: u64::from(credits).to_be_bytes(), solicited: false },
            signaled: true,
            fence: false,
        };
        all.pairs[lane].post_send(request).map_err(|error| all.lost(lane, &error.to_string()))
    }

    /// Compares the slots of the Reads that ended with one completion: they
    /// are the oldest that are outstanding.
    fn compare_read(&mut self, all: &Lanes, lane: usize, count: u32) {
        let state = &self.lanes[lane];
        let oldest = state.next.wrapping_sub(state.outstanding + count);
        for number in 0..count {
            let slot = oldest.wrapping_add(number) % all.shape.slots;
            self.mismatches += u64::from(!all.as_sent(lane, slot, self.size));
            all.clear(lane, slot, self.size);
        }
    }

    /// Compares what Writes have left behind.
    pub fn compare_written(&mut self, all: &Lanes) {
        if self.operation != RdmaOperation::Write {
            return;
        }
        let wrong = (0..self.lanes.len()).filter(|lane| !all.as_sent(*lane, 0, self.size)).count();
        self.mismatches += wrong as u64;
    }
}

/// One message of a test.
fn message(
    all: &Lanes,
    far: &Advert,
    operation: RdmaOperation,
    lane: usize,
    number: u32,
    size: u32,
) -> Operation {
    match operation {
        RdmaOperation::Send => {
            Operation::Send { data: data(all, lane, size), solicited: false, invalidate: None }
        }
        RdmaOperation::Write => Operation::Write { data: data(all, lane, size), remote: far.sink(lane) },
        RdmaOperation::Read => Operation::Read {
            sink: all.sink.segment(all.sink_offset(lane, number), size),
            remote: far.source(lane),
            invalidate: false,
        },
    }
}

/// A message's bytes: copied into the request, or gathered when it is sent.
pub fn data(all: &Lanes, lane: usize, size: u32) -> Data {
    if u64::from(size) <= all.config.inline.0 {
        let mut bytes = InlineData::from_elem(0, size as usize);
        all.source.read(all.source_offset(lane), &mut bytes);
        Data::Inline(bytes)
    } else {
        Data::Gather([all.source_segment(lane, size)].into_iter().collect())
    }
}
