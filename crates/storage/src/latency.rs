//! Latency of operations in a histogram of fixed size.
//!
//! Ranks read the time by `quanta`, from the processor's cycle counter where it is constant: 9 ns instead of 21 ns for
//! the system's clock (AMD EPYC). An operation of a file system in memory takes 300 ns.

use std::time::Duration;

use clearstream_schema::storage::StorageLatency;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Significant digits: 3 cost 500 KiB per rank, 2 have an error below one percent.
const DIGITS: u8 = 2;
/// Maximum value of the histogram: an hour.
const MAX_NS: u64 = 3_600_000_000_000;

/// Latency samples of a rank.
#[derive(Debug)]
pub struct Latency {
    times: Histogram<u64>,
    sum: u64,
    min: u64,
    max: u64,
}

/// Latency samples as a message: values of the histogram with their counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LatencyCounts {
    counts: Vec<(u64, u64)>,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let mut times = Histogram::new_with_bounds(1, MAX_NS, DIGITS)
            .unwrap_or_else(|_| unreachable!("1 to an hour in two digits is a histogram"));
        // Its pages are there when samples come.
        times.reset();
        Self { times, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Latency {
    /// Adds a sample.
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum = self.sum.saturating_add(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.times.saturating_record(ns);
    }

    /// Adds the samples of another one.
    pub(crate) fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.times.add(&other.times);
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Samples as a message.
    pub(crate) fn counts(&self) -> LatencyCounts {
        let counts = self.times.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        LatencyCounts { counts: counts.collect(), sum: self.sum, min: self.min, max: self.max }
    }

    /// Order statistics of the samples of all ranks; nothing without samples.
    pub(crate) fn of<'a>(all: impl IntoIterator<Item = &'a LatencyCounts>) -> Option<StorageLatency> {
        let mut merged = Self::default();
        for one in all {
            for (value, count) in &one.counts {
                merged.times.saturating_record_n(*value, *count);
            }
            merged.sum = merged.sum.saturating_add(one.sum);
            merged.min = merged.min.min(one.min);
            merged.max = merged.max.max(one.max);
        }
        let times = &merged.times;
        // The histogram returns the upper bound of a bucket.
        let at = |quantile| times.value_at_quantile(quantile).clamp(merged.min, merged.max);
        (!times.is_empty()).then(|| StorageLatency {
            sample_count: times.len(),
            min_ns: merged.min,
            mean_ns: merged.sum / times.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: merged.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_two_ranks_are_merged() {
        let (mut one, mut two) = (Latency::default(), Latency::default());
        (1..=900).for_each(|us| one.add(Duration::from_micros(us)));
        (901..=1000).for_each(|us| two.add(Duration::from_micros(us)));
        let found = Latency::of([&one.counts(), &two.counts()]).unwrap();
        assert_eq!((found.sample_count, found.min_ns, found.max_ns), (1000, 1000, 1_000_000));
        assert_eq!(found.mean_ns, 500_500);
        for (found, expected) in [(found.p50_ns, 500_000), (found.p90_ns, 900_000), (found.p99_ns, 990_000)] {
            assert!(found.abs_diff(expected) * 100 <= expected, "{found} {expected}");
        }
        assert_eq!(Latency::of([&LatencyCounts::default()]), None);
    }
}
