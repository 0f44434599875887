//! Latency samples and CPU time.

use std::time::Duration;

use clearstream_schema::rdma::RdmaLatency;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// Significant digits of the histogram: samples are accurate to a thousandth.
const DIGITS: u8 = 3;
/// Maximum value of the histogram: an hour.
const MAX_NS: u64 = 3_600_000_000_000;

/// Latency samples in a histogram of fixed size.
#[derive(Debug)]
pub(crate) struct Samples {
    times: Histogram<u64>,
    least: u64,
    most: u64,
}

impl Default for Samples {
    fn default() -> Self {
        let times = Histogram::new_with_bounds(1, MAX_NS, DIGITS)
            .unwrap_or_else(|_| unreachable!("1 to an hour in three digits is a histogram"));
        Self { times, least: u64::MAX, most: 0 }
    }
}

impl Samples {
    /// Adds a sample.
    pub(crate) fn add(&mut self, time: Duration) {
        let ns = nanoseconds(time);
        self.least = self.least.min(ns);
        self.most = self.most.max(ns);
        self.times.saturating_record(ns);
    }

    /// Order statistics; `None` when there are no samples.
    pub(crate) fn latency(&self) -> Option<RdmaLatency> {
        (!self.times.is_empty()).then(|| RdmaLatency {
            sample_count: self.times.len(),
            // The histogram returns the upper bound of a bucket.
            p50_ns: self.times.value_at_quantile(0.5).clamp(self.least, self.most),
            p99_ns: self.times.value_at_quantile(0.99).clamp(self.least, self.most),
            min_ns: self.least,
            max_ns: self.most,
            mean_ns: self.times.mean().round() as u64,
        })
    }
}

/// A duration in nanoseconds.
pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this process so far, user and system, all threads.
pub(crate) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_of_known_times() {
        let mut samples = Samples::default();
        assert_eq!(samples.latency(), None);
        for microseconds in 1..=1000 {
            samples.add(Duration::from_micros(microseconds));
        }
        let found = samples.latency().unwrap();
        assert_eq!((found.sample_count, found.min_ns, found.max_ns), (1000, 1_000, 1_000_000));
        for (value, expected) in [(found.p50_ns, 500e3), (found.p99_ns, 990e3), (found.mean_ns, 500.5e3)] {
            let off = (value as f64 - expected).abs() / expected;
            assert!(off < 0.002, "{value} is not {expected}");
        }
    }

    #[test]
    fn cpu_time_is_this_process_and_grows_with_work() {
        let before = cpu_ns();
        let mut value = 1u64;
        while cpu_ns() < before + 5_000_000 {
            value = std::hint::black_box(value.wrapping_mul(31));
        }
        assert!(cpu_ns() - before >= 5_000_000);
    }
}
