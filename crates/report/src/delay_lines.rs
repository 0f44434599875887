//! Counters of the lab's delay lines: over all trials of a record, and of one trial.

use clearstream_schema::lab::DelayLineStats;

use crate::format::{count, percent, time};

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

/// Counters of the delay lines of a lab in one trial, the worse direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LineShare {
    late_p50_ns: u64,
    late_p99_ns: u64,
    late_max_ns: u64,
    dropped_count: u64,
    busy_ratio: Option<f64>,
    limited: bool,
}

impl LineShare {
    /// Nothing where no delay line was on the path.
    pub(crate) fn of(lines: &[DelayLineStats]) -> Option<Self> {
        lines.iter().fold(None, |sum: Option<Self>, line| {
            let sum = sum.unwrap_or_default();
            Some(Self {
                late_p50_ns: sum.late_p50_ns.max(line.late_p50_ns),
                late_p99_ns: sum.late_p99_ns.max(line.late_p99_ns),
                late_max_ns: sum.late_max_ns.max(line.late_max_ns),
                dropped_count: sum.dropped_count + line.relay_dropped_count + line.front_dropped_count,
                busy_ratio: match (sum.busy_ratio, line.busy_ratio) {
                    (Some(one), Some(other)) => Some(one.max(other)),
                    (one, other) => one.or(other),
                },
                limited: sum.limited || line.relay_limited,
            })
        })
    }

    /// What the lab did in this trial, with the delay that it was set to.
    pub(crate) fn sentence(&self, trial: u32, delay_ns: Option<u64>) -> String {
        let configured = delay_ns
            .map_or_else(String::new, |ns| format!(", set to {} in each direction,", time(ns as f64)));
        let busy = self.busy_ratio.map_or_else(String::new, |ratio| {
            format!("; its thread worked {} of the time with traffic", percent(ratio))
        });
        let dropped = match self.dropped_count {
            0 => String::new(),
            packets => format!("; {} lost because it was behind", count(packets, "packet")),
        };
        let verdict = if self.limited {
            "It counts as the limit of that trial (notice delay-line-limit): the shortfall is the lab\u{2019}s, not the path\u{2019}s."
        } else {
            "That is below what counts as the limit of a measurement."
        };
        format!(
            "The lab\u{2019}s own effect in trial {trial}: its delay line{configured} released packets {} late in the median, {} at \
             the 99th percentile and {} at most{busy}{dropped}. {verdict}",
            time(self.late_p50_ns as f64),
            time(self.late_p99_ns as f64),
            time(self.late_max_ns as f64),
        )
    }
}
