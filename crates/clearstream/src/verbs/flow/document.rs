//! The documents of `clearstream flow`.

use clearstream_place::document::SteeringReport;
use clearstream_schema::JsonSchema;
use clearstream_schema::{
    flow::{FlowSummary, Interval},
    lab::DelayLineStats,
    probe::LatencyUnderLoad,
};
use serde::Serialize;

/// A finished test.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) summary: FlowSummary,
    pub(super) intervals: Vec<Interval>,
    pub(super) steering: Option<SteeringReport>,
    pub(super) delay_lines: Vec<DelayLineStats>,
    pub(super) latency: Option<LatencyUnderLoad>,
}

impl Measured {
    /// Goodput that a threshold is compared with: with data in both directions that of the
    /// slower one.
    pub(super) fn judged_bps(&self) -> f64 {
        let each = self.summary.directions.iter().map(|one| one.goodput_bps);
        each.reduce(f64::min).unwrap_or(self.summary.goodput_bps)
    }

    /// As it is printed; a stream has had the intervals before.
    pub(super) fn document(&self, is_stream: bool, threshold: Option<Threshold>) -> FlowDocument<'_> {
        FlowDocument {
            summary: &self.summary,
            intervals: (!is_stream).then_some(&self.intervals[..]),
            steering: self.steering.as_ref(),
            delay_lines: &self.delay_lines,
            latency: self.latency.as_ref(),
            threshold,
        }
    }
}

/// A flow test as a whole.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowDocument<'a> {
    /// The result.
    summary: &'a FlowSummary,
    /// Every interval in order; absent at the end of a stream, which had them before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intervals: Option<&'a [Interval]>,
    /// Where steered flows landed; absent where none were steered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steering: Option<&'a SteeringReport>,
    /// What the lab's delay lines did during the test.
    #[serde(default, skip_serializing_if = "<[DelayLineStats]>::is_empty")]
    delay_lines: &'a [DelayLineStats],
    /// Round trips before the flow and beside it, where `--latency` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latency: Option<&'a LatencyUnderLoad>,
    /// The threshold of `--fail-below`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<Threshold>,
}

/// The same test several times (`--repeat`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowRuns<'a> {
    /// Each test in order.
    pub(super) runs: Vec<FlowDocument<'a>>,
    /// Goodput of the runs.
    pub(super) goodput: Spread,
    /// The threshold of `--fail-below`, compared with the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) threshold: Option<Threshold>,
}

/// A rate that a figure has to reach.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(super) struct Threshold {
    /// The least that is wanted.
    pub(super) required_bps: f64,
    /// What was measured: with data both ways, of the slower direction.
    pub(super) measured_bps: f64,
    /// Whether it reaches the rate.
    pub(super) is_met: bool,
}

/// How runs of the same test differ.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub(super) struct Spread {
    /// Runs that count: complete ones.
    pub(super) run_count: u64,
    /// Median.
    pub(super) median_bps: f64,
    /// Lowest.
    pub(super) lowest_bps: f64,
    /// Highest.
    pub(super) highest_bps: f64,
    /// Interval of the median with at least 95 % confidence, from six runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interval: Option<MedianInterval>,
}

/// Distribution-free interval of a median, between two order statistics.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(super) struct MedianInterval {
    /// Low end.
    pub(super) low_bps: f64,
    /// High end.
    pub(super) high_bps: f64,
    /// Least probability that it holds the true median.
    pub(super) confidence_ratio: f64,
}

impl Spread {
    /// Of the goodput of runs; zero without any.
    pub(super) fn of(goodput_bps: &[f64]) -> Self {
        let interval = clearstream_stats::median_interval(goodput_bps).filter(|interval| interval.is_95());
        Self {
            run_count: goodput_bps.len() as u64,
            median_bps: clearstream_stats::median(goodput_bps).unwrap_or(0.0),
            lowest_bps: goodput_bps.iter().copied().reduce(f64::min).unwrap_or(0.0),
            highest_bps: goodput_bps.iter().copied().reduce(f64::max).unwrap_or(0.0),
            interval: interval.map(|interval| MedianInterval {
                low_bps: interval.low,
                high_bps: interval.high,
                confidence_ratio: interval.confidence_ratio,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue of statistics: five values have no 95 % interval of their median.
    #[test]
    fn an_interval_is_given_from_six_runs_on() {
        let five = Spread::of(&[5e9, 1e9, 4e9, 2e9, 3e9]);
        assert_eq!((five.median_bps, five.lowest_bps, five.highest_bps), (3e9, 1e9, 5e9));
        assert!(five.interval.is_none());
        let six = Spread::of(&[5e9, 1e9, 4e9, 2e9, 3e9, 6e9]).interval.expect("an interval");
        assert_eq!((six.low_bps, six.high_bps), (1e9, 6e9));
        // Both ends of the range of six: 1 - 2 / 2^6.
        assert!((six.confidence_ratio - (1.0 - 2.0 / 64.0)).abs() < 1e-9);
        assert_eq!(Spread::of(&[]).run_count, 0);
    }
}
