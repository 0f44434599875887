//! Counters of one direction.

use clearstream_schema::lab::DelayLineStats;
use hdrhistogram::Histogram;

use super::model::Verdict;

/// Counters and two time histograms.
#[derive(Debug, Clone)]
pub struct Counters {
    passed_count: u64,
    passed_segment_count: u64,
    passed_bytes: u64,
    lost_count: u64,
    overflow_count: u64,
    relay_dropped_count: u64,
    refused_count: u64,
    late: Histogram<u64>,
    unseen: Histogram<u64>,
}

/// Maximum value of the histograms: 10 s, in nanoseconds.
const MAX_NS: u64 = 10_000_000_000;

impl Counters {
    /// Creates counters of zero.
    pub fn new() -> Self {
        // The bounds are valid constants: 3 digits need a range of at least 2
        // to 1.
        let spread = || Histogram::new_with_bounds(1, MAX_NS, 3).unwrap_or_else(|_| unreachable!());
        Self {
            passed_count: 0,
            passed_segment_count: 0,
            passed_bytes: 0,
            lost_count: 0,
            overflow_count: 0,
            relay_dropped_count: 0,
            refused_count: 0,
            late: spread(),
            unseen: spread(),
        }
    }

    /// A packet was released `late_ns` after its time.
    pub fn passed(&mut self, bytes: u64, late_ns: u64) {
        self.passed_count += 1;
        self.passed_bytes += bytes;
        self.late.saturating_record(late_ns.max(1));
    }

    /// A packet arrived; it may have waited for up to `unseen_ns` before.
    pub fn arrived(&mut self, unseen_ns: u64) {
        self.unseen.saturating_record(unseen_ns.max(1));
    }

    /// Segments were accepted.
    pub fn accepted(&mut self, segments: u32) {
        self.passed_segment_count += u64::from(segments);
    }

    /// Segments were lost.
    pub fn lost(&mut self, segments: u32) {
        self.lost_count += u64::from(segments);
    }

    /// Segments were dropped by the full queue.
    pub fn overflowed(&mut self, segments: u32) {
        self.overflow_count += u64::from(segments);
    }

    /// Segments were dropped because the delay line was too far behind.
    pub fn relay_dropped(&mut self, segments: u32) {
        self.relay_dropped_count += u64::from(segments);
    }

    /// Accounts for the verdict on segments that were not lost.
    pub fn record(&mut self, verdict: Verdict, segments: u32) {
        match verdict {
            Verdict::Leaves { .. } => self.accepted(segments),
            Verdict::Overflow => self.overflowed(segments),
            Verdict::Behind => self.relay_dropped(segments),
        }
    }

    /// The receiving host did not accept a packet (its interface is down).
    pub fn refused(&mut self) {
        self.refused_count += 1;
    }

    /// Returns the published form. `load` is the thread's,
    /// `front_dropped_count` the drops of the sending interface.
    pub fn stats(
        &self,
        link: usize,
        [from, to]: [&str; 2],
        load: Load,
        front_dropped_count: u64,
    ) -> DelayLineStats {
        let at = |spread: &Histogram<u64>, quantile| {
            if spread.is_empty() { 0 } else { spread.value_at_quantile(quantile).min(spread.max()) }
        };
        let stats = DelayLineStats {
            link: link as u64,
            from: from.to_owned(),
            to: to.to_owned(),
            passed_count: self.passed_count,
            passed_segment_count: self.passed_segment_count,
            passed_bytes: self.passed_bytes,
            lost_count: self.lost_count,
            overflow_count: self.overflow_count,
            relay_dropped_count: self.relay_dropped_count,
            front_dropped_count,
            refused_count: self.refused_count,
            late_p50_ns: at(&self.late, 0.5),
            late_p99_ns: at(&self.late, 0.99),
            late_max_ns: self.late.max(),
            unseen_p50_ns: at(&self.unseen, 0.5),
            unseen_p99_ns: at(&self.unseen, 0.99),
            unseen_max_ns: self.unseen.max(),
            busy_ratio: load.ratio(),
            relay_limited: false,
        };
        DelayLineStats { relay_limited: stats.exceeds_relay_limits(), ..stats }
    }
}

/// Load of a delay line's thread, in windows of [`Load::WINDOW_NS`]: only those
/// with traffic count, so that idle time before and after a test does not
/// dilute it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Load {
    busy_ns: u64,
    active_ns: u64,
    window_start_ns: u64,
    window_busy_ns: u64,
}

impl Load {
    /// Length of a window.
    pub const WINDOW_NS: u64 = 10_000_000;

    /// The thread was busy for `busy_ns` until `now_ns`.
    pub fn worked(&mut self, now_ns: u64, busy_ns: u64) {
        self.roll(now_ns);
        self.window_busy_ns += busy_ns;
    }

    /// Closes an expired window.
    pub fn roll(&mut self, now_ns: u64) {
        let window_ns = now_ns.saturating_sub(self.window_start_ns);
        if window_ns < Self::WINDOW_NS {
            return;
        }
        if self.window_busy_ns > 0 {
            self.busy_ns += self.window_busy_ns;
            self.active_ns += window_ns.max(self.window_busy_ns);
        }
        (self.window_start_ns, self.window_busy_ns) = (now_ns, 0);
    }

    /// Resets the counters.
    pub fn reset(&mut self) {
        *self = Self { window_start_ns: self.window_start_ns, ..Self::default() };
    }

    /// Returns the busy ratio of the windows with traffic; `None` when there
    /// were none.
    pub fn ratio(&self) -> Option<f64> {
        (self.active_ns > 0).then(|| self.busy_ns as f64 / self.active_ns as f64)
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_counted() {
        let mut counters = Counters::new();
        for late_us in 1..=1000 {
            counters.passed(100, late_us * 1000);
        }
        counters.lost(3);
        let stats = counters.stats(1, ["a", "b"], Load::default(), 0);
        assert_eq!((stats.passed_count, stats.passed_bytes, stats.lost_count), (1000, 100_000, 3));
        // The histogram keeps three digits.
        assert!(stats.late_p50_ns.abs_diff(500_000) <= 1000, "{stats:?}");
        assert!(stats.late_p99_ns.abs_diff(990_000) <= 1000, "{stats:?}");
        assert!(stats.late_max_ns.abs_diff(1_000_000) <= 1000, "{stats:?}");
        assert_eq!(stats.unseen_max_ns, 0);
    }

    #[test]
    fn busy_ratio_is_of_the_time_with_traffic() {
        let mut load = Load::default();
        assert_eq!(load.ratio(), None);
        // Idle for a second, then busy for 1 ms in each of ten windows.
        load.roll(1_000_000_000);
        for window in 1..=10u64 {
            load.worked(1_000_000_000 + window * Load::WINDOW_NS - 1, 1_000_000);
            load.roll(1_000_000_000 + window * Load::WINDOW_NS);
        }
        let ratio = load.ratio().unwrap();
        assert!((0.09..0.11).contains(&ratio), "{ratio}");
        load.roll(9_000_000_000);
        assert_eq!(load.ratio(), Some(ratio));
    }

    #[test]
    fn the_relay_is_the_limit_when_it_drops_or_is_late_or_busy() {
        let of = |change: &dyn Fn(&mut Counters), busy_ns: u64, front: u64| {
            let (mut counters, mut load) = (Counters::new(), Load::default());
            (0..100).for_each(|_| counters.passed(1500, 30_000));
            change(&mut counters);
            load.worked(1, busy_ns);
            load.roll(Load::WINDOW_NS);
            counters.stats(0, ["a", "b"], load, front).relay_limited
        };
        assert!(!of(&|_| {}, 5_000_000, 0));
        assert!(!of(&|counters| counters.overflowed(9), 5_000_000, 0), "the modelled queue is the path's");
        assert!(!of(&|counters| counters.lost(9), 5_000_000, 0), "modelled losses are the path's");
        assert!(!of(&|counters| counters.passed(1500, 900_000_000), 5_000_000, 0), "one late packet");
        assert!(of(&|counters| (0..4).for_each(|_| counters.passed(1500, 20_000_000)), 5_000_000, 0));
        assert!(of(&|counters| counters.relay_dropped(1), 5_000_000, 0));
        assert!(of(&|_| {}, 5_000_000, 1));
        assert!(of(&|_| {}, 9_500_000, 0));
        assert!(of(&|counters| (0..200).for_each(|_| counters.passed(1500, 2_000_000)), 5_000_000, 0));
    }
}
