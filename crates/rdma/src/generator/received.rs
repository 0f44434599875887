//! Incoming messages of a receiver of Sends, by run.

use std::time::{Duration, Instant};

use clearstream_schema::rdma::RdmaRate;

use crate::{data_queue_pairs::BATCH, samples::nanoseconds};

/// Messages of one size. The sender's message that ends a run uses another
/// connection than the data and may arrive before it; its next run has another
/// size, so the size identifies the run of a message.
#[derive(Debug, Clone, Copy)]
struct Run {
    size: u32,
    /// Earliest beginning of the run.
    began: Instant,
    messages: u64,
    /// Messages that were received before `settled`.
    early: u64,
    /// Time of the first poll that returned less than a full batch: messages
    /// polled later arrived later.
    settled: Option<Instant>,
    last: Instant,
}

impl Run {
    /// Returns the messages over the time in which they arrived. Many may have
    /// waited for the first poll; only those after it are significant for the
    /// rate.
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

/// Runs of a sender, in order.
#[derive(Debug)]
pub(super) struct ReceivedRuns {
    runs: Vec<Run>,
    began: Instant,
}

/// Maximum number of distinct sizes: a sender of more is faulty or hostile, and
/// its further messages are attributed to the last run.
const MAX_RUNS: usize = 1024;

impl ReceivedRuns {
    pub(super) fn new(now: Instant) -> Self {
        Self { runs: Vec::new(), began: now }
    }

    /// The sender has announced that it has sent everything of a run: the next
    /// one begins later.
    pub(super) fn announced(&mut self, now: Instant) {
        self.began = now;
    }

    /// Counts a message returned by a poll.
    pub(super) fn add(&mut self, size: u32, now: Instant) {
        let known = self.runs.iter().rposition(|run| run.size == size);
        let at = known.unwrap_or_else(|| {
            if self.runs.len() < MAX_RUNS {
                let began = self.began;
                self.runs.push(Run { size, began, messages: 0, early: 0, settled: None, last: now });
            }
            self.runs.len() - 1
        });
        let run = &mut self.runs[at];
        run.messages += 1;
        run.early += u64::from(run.settled.is_none());
        run.last = now;
    }

    /// Ends a poll that returned this many completions.
    pub(super) fn polled(&mut self, count: usize, now: Instant) {
        if count < BATCH
            && let Some(run) = self.runs.last_mut()
        {
            run.settled.get_or_insert(now);
        }
    }

    pub(super) fn rates(&self) -> Vec<RdmaRate> {
        self.runs.iter().map(Run::rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bound of a plausible rate: 100 Gb/s.
    const PLAUSIBLE_BPS: f64 = 100e9;

    #[test]
    fn late_messages_belong_to_their_run_and_rates_stay_possible() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut runs = ReceivedRuns::new(start);
        // Two of three messages of 64 KiB have arrived when the client
        // announces that it has sent all; the third arrives 80 ms later.
        runs.add(65_536, at(1000));
        runs.polled(1, at(1000));
        runs.add(65_536, at(1100));
        runs.polled(1, at(1100));
        runs.announced(at(1200));
        runs.polled(0, at(60_000));
        runs.add(65_536, at(81_200));
        runs.polled(1, at(81_200));
        // The next run: all messages are returned by one poll.
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
        // Since the earliest beginning of the run.
        assert_eq!(rates[1].elapsed_ns, 1_000_000);
    }

    #[test]
    fn sizes_without_end_take_bounded_memory() {
        let now = Instant::now();
        let mut runs = ReceivedRuns::new(now);
        for size in 0..10_000 {
            runs.add(size, now);
        }
        let rates = runs.rates();
        assert_eq!(rates.len(), MAX_RUNS);
        assert_eq!(rates.iter().map(|rate| rate.message_count).sum::<u64>(), 10_000);
    }
}
