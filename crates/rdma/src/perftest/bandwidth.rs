//! Bandwidth: the client's requests, and what a server does with Sends.
//!
//! iWARP has no "receiver not ready": a Send without a receive ends the
//! connection. So the server of Sends counts what it has received, and Writes
//! the count into a word of the client's memory; the client has fewer than the
//! server's receives beyond that count on their way. Writes and Reads need
//! nobody at the server. A request counts when it is complete here, as
//! perftest counts.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    verbs::{Access, ProtectionDomain, Region},
    work::{Operation, Remote, SendRequest},
};
use clearstream_schema::rdma::RdmaOperation;

use crate::{
    data_queue_pairs::{Lanes, Purpose, batch, request_id, split_id},
    error::RdmaError,
    generator::bandwidth::data,
};

/// How long nothing may move.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a count, in the byte order of the hosts.
const COUNT_BYTES: usize = 4;

/// Where the server of Sends writes how many it has received, a word for each
/// queue pair.
#[derive(Debug)]
pub struct Counts {
    words: Region,
}

impl Counts {
    /// All zero.
    ///
    /// # Errors
    /// No memory.
    pub fn new(domain: &ProtectionDomain, lanes: usize) -> Result<Self, RdmaError> {
        let shown = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self { words: Region::new(domain, lanes * COUNT_BYTES, shown)? })
    }

    /// Where that of a queue pair is written.
    #[must_use]
    pub fn place(&self, lane: usize) -> Remote {
        let address = self.words.address() + (lane * COUNT_BYTES) as u64;
        Remote { stag: self.words.stag(), address }
    }

    /// What the server has received. It may write at any moment: a count that
    /// is seen twice was not half written.
    fn seen(&self, lane: usize) -> u64 {
        let look = || {
            let mut word = [0; COUNT_BYTES];
            self.words.read(lane * COUNT_BYTES, &mut word);
            word
        };
        let mut word = look();
        loop {
            let again = look();
            if again == word {
                return u32::from_ne_bytes(word).into();
            }
            word = again;
        }
    }
}

/// The client's part of one size.
#[derive(Debug)]
pub struct Flow<'a> {
    /// What is done.
    pub operation: RdmaOperation,
    /// The server's memory, of each queue pair.
    pub far: &'a [Remote],
    /// What the server has received, and its receives; for Sends.
    pub counts: Option<(&'a Counts, u32)>,
    /// Bytes of a message.
    pub size: u32,
    /// Messages on each queue pair.
    pub count: u64,
}

/// One queue pair of the client's.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    outstanding: u32,
    /// As the server last told.
    received: u64,
}

impl Flow<'_> {
    /// Does it: how long it took. `going` is called now and then.
    ///
    /// # Errors
    /// A connection that is over, a server that takes no more, or the flag to
    /// stop.
    pub fn run(
        &self,
        all: &mut Lanes,
        stop: &AtomicBool,
        going: &mut dyn FnMut(),
    ) -> Result<Duration, RdmaError> {
        let mut lanes = vec![Progress::default(); all.pairs.len()];
        let mut found = batch();
        let begun = Instant::now();
        let mut news = begun;
        loop {
            for (lane, progress) in lanes.iter_mut().enumerate() {
                self.post(all, lane, progress)?;
            }
            let count = all.poll(&mut found)?;
            for completion in &found[..count] {
                if let (Purpose::Data, lane, ended) = split_id(completion.id) {
                    lanes[lane].outstanding -= ended;
                }
            }
            if lanes.iter().all(|progress| progress.posted == self.count && progress.outstanding == 0) {
                return Ok(begun.elapsed());
            }
            if count > 0 {
                news = Instant::now();
            } else if all.rest()? {
                going();
                self.check(all, &lanes, news, stop)?;
            }
        }
    }

    fn check(
        &self,
        all: &Lanes,
        lanes: &[Progress],
        news: Instant,
        stop: &AtomicBool,
    ) -> Result<(), RdmaError> {
        if stop.load(Ordering::Relaxed) {
            return Err(RdmaError::Stopped);
        }
        if news.elapsed() < PATIENCE {
            return Ok(());
        }
        let seconds = PATIENCE.as_secs();
        let posted = lanes.first().map_or(0, |progress| progress.posted);
        let hint = match self.counts {
            Some(_) => "; give its program the same -n, -s, -q and -r",
            None => "",
        };
        Err(all.lost(0, &format!("nothing moves for {seconds} s after {posted} messages{hint}")))
    }

    fn post(&self, all: &Lanes, lane: usize, progress: &mut Progress) -> Result<(), RdmaError> {
        loop {
            let left = u32::try_from(self.count - progress.posted).unwrap_or(u32::MAX);
            let wanted = all.shape.signal_every.min(left);
            if wanted == 0 || all.shape.depth - progress.outstanding < wanted {
                return Ok(());
            }
            let count = wanted.min(self.taken_by_server(lane, progress, wanted));
            if count == 0 {
                return Ok(());
            }
            let requests = (0..count).map(|number| SendRequest {
                id: request_id(Purpose::Data, lane, count),
                operation: self.message(all, lane),
                signaled: number + 1 == count,
                fence: false,
            });
            all.pairs[lane].post_sends(requests).map_err(|error| all.lost(lane, &error.to_string()))?;
            progress.posted += u64::from(count);
            progress.outstanding += count;
        }
    }

    /// How many more Sends the server has receives for: one less than its
    /// receives may be on their way.
    fn taken_by_server(&self, lane: usize, progress: &mut Progress, wanted: u32) -> u32 {
        let Some((counts, receives)) = self.counts else { return wanted };
        let room = |received: u64| (received + u64::from(receives) - 1).saturating_sub(progress.posted);
        if room(progress.received) < u64::from(wanted) {
            // It cannot have received what was not sent.
            progress.received = counts.seen(lane).min(progress.posted);
        }
        u32::try_from(room(progress.received)).unwrap_or(u32::MAX)
    }

    fn message(&self, all: &Lanes, lane: usize) -> Operation {
        let remote = self.far[lane];
        match self.operation {
            RdmaOperation::Send => {
                Operation::Send { data: data(all, lane, self.size), solicited: false, invalidate: None }
            }
            RdmaOperation::Write => Operation::Write { data: data(all, lane, self.size), remote },
            RdmaOperation::Read => Operation::Read {
                sink: all.sink.segment(all.sink_offset(lane, 0), self.size),
                remote,
                invalidate: false,
            },
        }
    }
}
