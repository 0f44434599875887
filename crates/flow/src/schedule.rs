//! The interval schedule. Both sides compute it from the same configuration, so that interval n is the same
//! at both.

use std::time::Duration;

use clearstream_schema::flow::FlowConfig;

/// The ends of a test's intervals. No interval spans the end of the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    interval: Duration,
    warm_up: Duration,
    warm_up_count: u32,
    /// End of the test; absent when the amount of data is the limit.
    end: Option<Duration>,
}

impl Schedule {
    /// A test of a given amount of data has no warm-up: the whole transfer counts.
    pub fn new(config: &FlowConfig) -> Self {
        let interval = config.interval.to_std().max(Duration::from_millis(1));
        let warm_up = match config.bytes {
            Some(_) => Duration::ZERO,
            None => config.warm_up.to_std(),
        };
        let warm_up_count = warm_up.as_nanos().div_ceil(interval.as_nanos());
        let end = config.bytes.is_none().then(|| warm_up + config.duration.to_std());
        let warm_up_count = u32::try_from(warm_up_count).unwrap_or(u32::MAX);
        Self { interval, warm_up, warm_up_count, end }
    }

    /// Whether interval `index` is part of the warm-up.
    pub fn is_warm_up(&self, index: u32) -> bool {
        index < self.warm_up_count
    }

    /// When interval `index` ends, since the start; `None` after the last.
    pub fn end_of(&self, index: u32) -> Option<Duration> {
        if self.is_warm_up(index) {
            return Some((self.interval * (index + 1)).min(self.warm_up));
        }
        let before = self.warm_up + self.interval * (index - self.warm_up_count);
        match self.end {
            Some(end) if before >= end => None,
            Some(end) => Some((before + self.interval).min(end)),
            None => Some(before + self.interval),
        }
    }

    /// End of the whole test, warm-up included, unless the amount of data is the limit.
    pub fn end(&self) -> Option<Duration> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{ByteCount, TimeSpan};

    use super::*;

    fn ends(schedule: Schedule) -> Vec<u128> {
        (0..).map_while(|index| schedule.end_of(index)).take(9).map(|end| end.as_millis()).collect()
    }

    #[test]
    fn no_interval_spans_the_warm_up_and_the_last_is_cut() {
        let config = FlowConfig {
            warm_up: TimeSpan::from_millis(1500),
            duration: TimeSpan::from_millis(2200),
            ..FlowConfig::default()
        };
        let schedule = Schedule::new(&config);
        assert_eq!(ends(schedule), [1000, 1500, 2500, 3500, 3700]);
        let warm: Vec<bool> = (0..5).map(|index| schedule.is_warm_up(index)).collect();
        assert_eq!(warm, [true, true, false, false, false]);
    }

    #[test]
    fn an_amount_of_data_has_neither_warm_up_nor_end() {
        let config = FlowConfig { bytes: Some(ByteCount(1)), ..FlowConfig::default() };
        let schedule = Schedule::new(&config);
        assert_eq!(ends(schedule)[..3], [1000, 2000, 3000]);
        assert!(!schedule.is_warm_up(0) && schedule.end().is_none());
    }
}
