//! What a server does with Sends: receives, credits, and the runs that they
//! are counted in.

use std::time::{Duration, Instant};

use clearstream_iwarp::work::{Data, Operation, Remote, SendRequest};
use clearstream_schema::rdma::RdmaRate;

use crate::{
    data_queue_pairs::{BATCH, Batch, Lanes, Purpose, batch, request_id, split_id},
    error::RdmaError,
    samples::nanoseconds,
};

/// Messages of one size. The client's message that ends a run travels on
/// another connection than the data and may arrive before it; its next run has
/// another size, so the size says which run a message belongs to.
#[derive(Debug, Clone, Copy)]
struct Run {
    size: u32,
    /// The run cannot have begun before.
    began: Instant,
    messages: u64,
    /// Messages that were there before `settled`.
    early: u64,
    /// A poll has found fewer than a whole batch: what is found later has
    /// arrived later.
    settled: Option<Instant>,
    last: Instant,
}

impl Run {
    /// Messages over the time in which they arrived. Many may have waited for
    /// the first poll; only those after it say something of the rate.
    fn rate(&self) -> RdmaRate {
        let after = self.messages - self.early;
        let elapsed = match self.settled {
            Some(settled) if after > 0 && self.last > settled => {
                (self.last - settled).mul_f64(self.messages as f64 / after as f64)
            }
            _ => self.last.saturating_duration_since(self.began).max(Duration::from_nanos(1)),
        };
        RdmaRate::new(self.messages, self.size.into(), nanoseconds(elapsed))
    }
}

/// Runs of a client, in their order.
#[derive(Debug)]
struct Runs {
    runs: Vec<Run>,
    began: Instant,
}

impl Runs {
    fn new(now: Instant) -> Self {
        Self { runs: Vec::new(), began: now }
    }

    /// The client says that it has sent everything of a run: the next one
    /// begins later.
    fn announced(&mut self, now: Instant) {
        self.began = now;
    }

    /// Counts a message that a poll has found.
    fn add(&mut self, size: u32, now: Instant) {
        let known = self.runs.iter().rposition(|run| run.size == size);
        let at = known.unwrap_or_else(|| {
            let began = self.began;
            self.runs.push(Run { size, began, messages: 0, early: 0, settled: None, last: now });
            self.runs.len() - 1
        });
        let run = &mut self.runs[at];
        run.messages += 1;
        run.early += u64::from(run.settled.is_none());
        run.last = now;
    }

    /// A poll that found this many is over.
    fn polled(&mut self, count: usize, now: Instant) {
        if count < BATCH
            && let Some(run) = self.runs.last_mut()
        {
            run.settled.get_or_insert(now);
        }
    }

    fn rates(&self) -> Vec<RdmaRate> {
        self.runs.iter().map(Run::rate).collect()
    }
}

/// One queue pair.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    /// Bytes of its last message.
    size: Option<u32>,
    /// Received of this size, and reported to the client.
    received: u64,
    reported: u64,
    over: bool,
}

/// The server's part of Sends.
#[derive(Debug)]
pub struct Intake {
    /// Where the client reads the credits of each queue pair.
    far: Vec<Remote>,
    lanes: Vec<Lane>,
    runs: Runs,
    found: Batch,
}

impl Intake {
    /// Nothing received.
    #[must_use]
    pub fn new(far: Vec<Remote>) -> Self {
        let lanes = vec![Lane::default(); far.len()];
        Self { far, lanes, runs: Runs::new(Instant::now()), found: batch() }
    }

    /// What was counted, of each run.
    #[must_use]
    pub fn rates(&self) -> Vec<RdmaRate> {
        self.runs.rates()
    }

    /// The client says that a run is sent.
    pub fn announced(&mut self) {
        self.runs.announced(Instant::now());
    }

    /// Takes what has come, posts receives anew and gives the client credits.
    /// Whether there was something.
    ///
    /// # Errors
    /// All connections are over: the reason of the first.
    pub fn take(&mut self, all: &mut Lanes) -> Result<bool, RdmaError> {
        let mut first = None;
        let Self { lanes, found, runs, .. } = self;
        let mut end = |lanes: &mut Vec<Lane>, lane: usize, error: RdmaError| {
            lanes[lane].over = true;
            first.get_or_insert(error);
        };
        let count = all.poll_each(found, |lane, error| end(lanes, lane, error))?;
        let now = Instant::now();
        for completion in &found[..count] {
            let (Purpose::Receive, lane, number) = split_id(completion.id) else { continue };
            runs.add(completion.bytes, now);
            // The client counts anew with each run.
            if lanes[lane].size != Some(completion.bytes) {
                lanes[lane] =
                    Lane { size: Some(completion.bytes), over: lanes[lane].over, ..Lane::default() };
            }
            lanes[lane].received += 1;
            if let Err(error) = all.expect(lane, number) {
                end(lanes, lane, error);
            }
        }
        runs.polled(count, now);
        for lane in 0..self.lanes.len() {
            let Lane { received, reported, over, .. } = self.lanes[lane];
            let due = received - reported;
            // A client with few receives in mind waits for the first of them:
            // whoever is idle reports.
            let is_due = due >= u64::from(all.shape.signal_every) || count == 0 && due > 0;
            if !over
                && is_due
                && let Err(error) = self.credit(all, lane)
            {
                self.lanes[lane].over = true;
                first.get_or_insert(error);
            }
        }
        match first {
            Some(error) if self.lanes.iter().all(|lane| lane.over) => Err(error),
            _ => Ok(count > 0),
        }
    }

    fn credit(&mut self, all: &Lanes, lane: usize) -> Result<(), RdmaError> {
        let received = self.lanes[lane].received;
        // The count has 32 bits, and wraps.
        let data = Data::Inline((received as u32).to_ne_bytes().into_iter().collect());
        let request = SendRequest {
            id: request_id(Purpose::Aside, lane, 0),
            operation: Operation::Write { data, remote: self.far[lane] },
            signaled: true,
            fence: false,
        };
        all.pairs[lane].post_send(request).map_err(|error| all.lost(lane, &error.to_string()))?;
        self.lanes[lane].reported = received;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 Gb/s is more than any message here can have had.
    const PLAUSIBLE_BPS: f64 = 100e9;

    #[test]
    fn late_messages_belong_to_their_run_and_rates_stay_possible() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut runs = Runs::new(start);
        // Two of three messages of 64 KiB are there when the client says that
        // it has sent all; the third comes 80 ms later.
        runs.add(65_536, at(1000));
        runs.polled(1, at(1000));
        runs.add(65_536, at(1100));
        runs.polled(1, at(1100));
        runs.announced(at(1200));
        runs.polled(0, at(60_000));
        runs.add(65_536, at(81_200));
        runs.polled(1, at(81_200));
        // The next run: everything is found by one poll, at one moment.
        runs.announced(at(90_000));
        for _ in 0..3 {
            runs.add(131_072, at(91_000));
        }
        runs.polled(3, at(91_000));
        let rates = runs.rates();
        let counts: Vec<(u64, u64)> = rates.iter().map(|rate| (rate.message_count, rate.bytes)).collect();
        assert_eq!(counts, [(3, 3 * 65_536), (3, 3 * 131_072)]);
        for rate in &rates {
            assert!(rate.goodput_bps < PLAUSIBLE_BPS, "{rate:?}");
        }
        // Two messages in the 80.2 ms after the first.
        assert_eq!(rates[0].elapsed_ns, 80_200_000 * 3 / 2);
        // Since the run may have begun.
        assert_eq!(rates[1].elapsed_ns, 1_000_000);
    }
}
