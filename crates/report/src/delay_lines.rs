//! Counters of the lab's delay lines, over all trials of a record.

use clearstream_schema::lab::DelayLineStats;

/// Counters of the lab's delay lines, over all trials.
#[derive(Debug, Clone, Default)]
pub(crate) struct DelayLines {
    pub(crate) passed_count: u64,
    pub(crate) lost_count: u64,
    pub(crate) overflow_count: u64,
    /// Trials in which a delay line, not the path, was the limit.
    pub(crate) limited_trial_count: usize,
    pub(crate) late_p50_ns: Vec<f64>,
    pub(crate) late_p99_ns: u64,
    pub(crate) late_max_ns: u64,
}

impl DelayLines {
    pub(crate) fn add(&mut self, stats: &DelayLineStats) {
        self.passed_count += stats.passed_count;
        self.lost_count += stats.lost_count;
        self.overflow_count += stats.overflow_count;
        self.late_p50_ns.push(stats.late_p50_ns as f64);
        self.late_p99_ns = self.late_p99_ns.max(stats.late_p99_ns);
        self.late_max_ns = self.late_max_ns.max(stats.late_max_ns);
    }
}
