//! What happened on one direction, counted as it happens.

use clearstream_schema::lab::DelayLineStats;
use hdrhistogram::Histogram;

/// Counts and the spread of two times.
#[derive(Debug, Clone)]
pub struct Tally {
    passed_count: u64,
    passed_segment_count: u64,
    passed_bytes: u64,
    lost_count: u64,
    overflow_count: u64,
    refused_count: u64,
    late: Histogram<u64>,
    unseen: Histogram<u64>,
}

/// Longest time told apart from longer ones: 10 s, in nanoseconds.
const LONGEST_NS: u64 = 10_000_000_000;

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        // The bounds are constants that the histogram takes: 3 digits need a
        // range of 2 to 1.
        let spread = || Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap_or_else(|_| unreachable!());
        Self {
            passed_count: 0,
            passed_segment_count: 0,
            passed_bytes: 0,
            lost_count: 0,
            overflow_count: 0,
            refused_count: 0,
            late: spread(),
            unseen: spread(),
        }
    }

    /// A packet was handed over `late_ns` after its time.
    pub fn passed(&mut self, bytes: u64, late_ns: u64) {
        self.passed_count += 1;
        self.passed_bytes += bytes;
        self.late.saturating_record(late_ns.max(1));
    }

    /// A packet came in; it may have waited for up to `unseen_ns` before.
    pub fn arrived(&mut self, unseen_ns: u64) {
        self.unseen.saturating_record(unseen_ns.max(1));
    }

    /// Packets of the wire were accepted.
    pub fn accepted(&mut self, segments: u32) {
        self.passed_segment_count += u64::from(segments);
    }

    /// Packets of the wire were lost.
    pub fn lost(&mut self, segments: u32) {
        self.lost_count += u64::from(segments);
    }

    /// A packet found the queue full.
    pub fn overflowed(&mut self, segments: u32) {
        self.overflow_count += u64::from(segments);
    }

    /// The receiving host did not take a packet (its interface is down).
    pub fn refused(&mut self) {
        self.refused_count += 1;
    }

    /// As it is published.
    pub fn stats(&self, link: usize, from: &str, to: &str) -> DelayLineStats {
        let at = |spread: &Histogram<u64>, quantile| {
            if spread.is_empty() { 0 } else { spread.value_at_quantile(quantile).min(spread.max()) }
        };
        DelayLineStats {
            link: link as u64,
            from: from.to_owned(),
            to: to.to_owned(),
            passed_count: self.passed_count,
            passed_segment_count: self.passed_segment_count,
            passed_bytes: self.passed_bytes,
            lost_count: self.lost_count,
            overflow_count: self.overflow_count,
            refused_count: self.refused_count,
            late_p50_ns: at(&self.late, 0.5),
            late_p99_ns: at(&self.late, 0.99),
            late_max_ns: self.late.max(),
            unseen_p50_ns: at(&self.unseen, 0.5),
            unseen_p99_ns: at(&self.unseen, 0.99),
            unseen_max_ns: self.unseen.max(),
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_counted() {
        let mut tally = Tally::new();
        for late_us in 1..=1000 {
            tally.passed(100, late_us * 1000);
        }
        tally.lost(3);
        let stats = tally.stats(1, "a", "b");
        assert_eq!((stats.passed_count, stats.passed_bytes, stats.lost_count), (1000, 100_000, 3));
        // The histogram keeps three digits.
        assert!(stats.late_p50_ns.abs_diff(500_000) <= 1000, "{stats:?}");
        assert!(stats.late_p99_ns.abs_diff(990_000) <= 1000, "{stats:?}");
        assert!(stats.late_max_ns.abs_diff(1_000_000) <= 1000, "{stats:?}");
        assert_eq!(stats.unseen_max_ns, 0);
    }
}
