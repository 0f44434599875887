//! Splits a run into samples.

use std::time::Duration;

use clearstream_schema::rdma::{RdmaConfig, RdmaOperation, RdmaSample};

use crate::samples::nanoseconds;

/// Samples of one run, each from the end of the previous one.
#[derive(Debug)]
pub(crate) struct Sampler {
    size: u64,
    warm_up: bool,
    /// Messages per measured time of a latency test: 2 where it is a round
    /// trip.
    latency_parts: Option<f64>,
    last: (Duration, u64),
}

impl Sampler {
    pub(crate) fn new(config: &RdmaConfig, operation: RdmaOperation, size: u64, warm_up: bool) -> Self {
        let parts = if operation == RdmaOperation::Read { 1.0 } else { 2.0 };
        let last = (Duration::ZERO, 0);
        Self { size, warm_up, latency_parts: config.latency.then_some(parts), last }
    }

    /// Returns the sample since the last one, from the totals since the
    /// beginning of the run. None where no time has passed.
    pub(crate) fn sample(&mut self, elapsed: Duration, messages: u64) -> Option<RdmaSample> {
        let (from, before) = std::mem::replace(&mut self.last, (elapsed, messages));
        let seconds = elapsed.checked_sub(from).filter(|time| !time.is_zero())?.as_secs_f64();
        let message_count = messages.saturating_sub(before);
        let rate = message_count as f64 / seconds;
        let mean = |parts| (message_count > 0).then(|| seconds * 1e9 / message_count as f64 / parts);
        Some(RdmaSample {
            size_bytes: self.size,
            warm_up: self.warm_up,
            start_ns: nanoseconds(from),
            end_ns: nanoseconds(elapsed),
            message_count,
            goodput_bps: rate * self.size as f64 * 8.0,
            messages_per_second: rate,
            latency_mean_ns: self.latency_parts.and_then(mean),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn samples_follow_each_other_and_half_a_round_is_the_latency() {
        let config = RdmaConfig { latency: true, ..RdmaConfig::default() };
        let mut sampler = Sampler::new(&config, RdmaOperation::Send, 100, false);
        let first = sampler.sample(Duration::from_millis(100), 1000).unwrap();
        assert_eq!((first.start_ns, first.end_ns, first.message_count), (0, 100_000_000, 1000));
        assert_eq!((first.messages_per_second, first.goodput_bps), (1e4, 8e6));
        assert_eq!(first.latency_mean_ns, Some(50_000.0), "1000 rounds in 100 ms");
        let second = sampler.sample(Duration::from_millis(150), 1000).unwrap();
        assert_eq!((second.start_ns, second.message_count), (100_000_000, 0));
        assert_eq!(second.latency_mean_ns, None, "nothing was completed");
        assert_eq!(sampler.sample(Duration::from_millis(150), 1000), None);
    }
}
