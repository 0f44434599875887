//! Latency: one message at a time, on one queue pair.
//!
//! A Send is answered by a Send. Writes go both ways and are seen in memory:
//! the last byte is the number of the message, and the server writes first.
//! A Read needs nobody at the server.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::work::{Operation, Remote, SendRequest};
use clearstream_schema::rdma::RdmaOperation;

use crate::{
    data_queue_pairs::{Batch, Lanes, Purpose, batch, request_id, split_id},
    error::RdmaError,
    generator::bandwidth::data,
    samples::Samples,
};

/// The queue pair.
const LANE: usize = 0;
/// Every one of so many messages asks for a completion.
const SIGNAL_EVERY: u64 = 8;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// One end.
#[derive(Debug)]
pub struct Exchange {
    operation: RdmaOperation,
    far: Remote,
    /// Bytes of a message; 0 answers Sends with as many as came.
    size: u32,
    /// Messages sent, and taken.
    sent: u64,
    taken: u64,
    /// Messages and Reads that ended and were not taken.
    arrived: u32,
    /// Bytes of the last Send.
    came: u32,
    found: Batch,
}

impl Exchange {
    /// Before the first message.
    #[must_use]
    pub fn new(operation: RdmaOperation, far: Remote, size: u32) -> Self {
        Self { operation, far, size, sent: 0, taken: 0, arrived: 0, came: 0, found: batch() }
    }

    /// Messages taken so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.taken
    }

    /// Bytes of a message.
    #[must_use]
    pub fn size(&self) -> u32 {
        if self.size == 0 { self.came } else { self.size }
    }

    /// The client: so many messages; the time of each.
    ///
    /// # Errors
    /// A connection that is over, no answer, or the flag to stop.
    pub fn measure(
        &mut self,
        all: &mut Lanes,
        count: u64,
        stop: &AtomicBool,
        going: &mut dyn FnMut(),
    ) -> Result<Samples, RdmaError> {
        let mut samples = Samples::default();
        let halves = if self.operation == RdmaOperation::Read { 1 } else { 2 };
        match self.operation {
            // The server's first Write opens the exchange, and the last of
            // the client's is not answered.
            RdmaOperation::Write => self.wait(all, stop, going)?,
            // Before its first answer the server measures its clock, for 0.1 s
            // or so: that one does not count.
            RdmaOperation::Send => {
                self.post(all)?;
                self.wait(all, stop, going)?;
            }
            RdmaOperation::Read => {}
        }
        while self.sent < count {
            let start = Instant::now();
            self.post(all)?;
            if self.operation == RdmaOperation::Write && self.sent == count {
                break;
            }
            self.wait(all, stop, going)?;
            samples.add(start.elapsed() / halves);
        }
        Ok(samples)
    }

    fn wait(&mut self, all: &mut Lanes, stop: &AtomicBool, going: &mut dyn FnMut()) -> Result<(), RdmaError> {
        let since = Instant::now();
        loop {
            let some = self.look(all)?;
            if self.there(all) {
                self.take();
                return Ok(());
            }
            if !some && all.rest()? {
                going();
                if stop.load(Ordering::Relaxed) {
                    return Err(RdmaError::Stopped);
                }
                if since.elapsed() > PATIENCE {
                    let seconds = PATIENCE.as_secs();
                    return Err(all.lost(
                        LANE,
                        &format!("no answer within {seconds} s; give its program the same -n and -s"),
                    ));
                }
            }
        }
    }

    /// The server: looks once, and answers. Whether there was something.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn answer(&mut self, all: &mut Lanes, count: u64) -> Result<bool, RdmaError> {
        if self.operation == RdmaOperation::Write && self.sent == 0 {
            self.post(all)?;
        }
        let some = self.look(all)?;
        if self.operation == RdmaOperation::Read || !self.there(all) {
            return Ok(some);
        }
        self.take();
        let last = self.operation == RdmaOperation::Write && self.sent >= count;
        if !last {
            self.post(all)?;
        }
        Ok(true)
    }

    /// The server, once the client has gone: its last Write is in memory though
    /// nothing more can be answered.
    pub fn end(&mut self, all: &Lanes) {
        if self.operation == RdmaOperation::Write && self.there(all) {
            self.take();
        }
    }

    /// Takes completions; whether there were some.
    fn look(&mut self, all: &mut Lanes) -> Result<bool, RdmaError> {
        let count = all.poll(&mut self.found)?;
        for completion in &self.found[..count] {
            let (purpose, lane, number) = split_id(completion.id);
            match purpose {
                Purpose::Data => self.arrived += 1,
                Purpose::Receive => {
                    (self.arrived, self.came) = (self.arrived + 1, completion.bytes);
                    all.expect(lane, number)?;
                }
                Purpose::Aside | Purpose::Flush => {}
            }
        }
        Ok(count > 0)
    }

    /// The next message has come.
    fn there(&self, all: &Lanes) -> bool {
        if self.operation != RdmaOperation::Write {
            return self.arrived > 0;
        }
        let mut last = [0];
        all.sink.read(all.sink_offset(LANE, 0) + self.size as usize - 1, &mut last);
        last[0] == (self.taken + 1) as u8
    }

    fn take(&mut self) {
        self.taken += 1;
        self.arrived = self.arrived.saturating_sub(1);
    }

    fn post(&mut self, all: &Lanes) -> Result<(), RdmaError> {
        let read = self.operation == RdmaOperation::Read;
        self.sent += 1;
        let operation = match self.operation {
            RdmaOperation::Send => {
                Operation::Send { data: data(all, LANE, self.size()), solicited: false, invalidate: None }
            }
            RdmaOperation::Write => {
                let last = all.source_offset(LANE) + self.size as usize - 1;
                all.source.write(last, &[self.sent as u8]);
                Operation::Write { data: data(all, LANE, self.size), remote: self.far }
            }
            RdmaOperation::Read => Operation::Read {
                sink: all.sink.segment(all.sink_offset(LANE, 0), self.size),
                remote: self.far,
                invalidate: false,
            },
        };
        let purpose = if read { Purpose::Data } else { Purpose::Aside };
        let request = SendRequest {
            id: request_id(purpose, LANE, 1),
            operation,
            signaled: read || self.sent.is_multiple_of(SIGNAL_EVERY),
            fence: false,
        };
        all.pairs[LANE].post_send(request).map_err(|error| all.lost(LANE, &error.to_string()))
    }
}
