//! A median and how sure it is.

pub(crate) use clearstream_stats::median;
use clearstream_stats::median_interval;

use crate::format::range;

/// The same values always give the same interval.
const SEED: u64 = 0x40_6e;
/// Below this many values an interval would only repeat them.
const FEWEST: usize = 3;

/// A median of some trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    /// 95 % bootstrap interval of the median; absent below [`FEWEST`] values.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) count: usize,
}

impl Estimate {
    /// The median of finite values; `None` when there is none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let interval = if values.len() < FEWEST { None } else { median_interval(&values, SEED) };
        Some(Self {
            median: median(&values)?,
            interval: interval.map(|found| (found.low, found.high)),
            count: values.len(),
        })
    }

    /// `median of 5, 95 % interval 21.8 Gb/s to 22.6 Gb/s`.
    pub(crate) fn how_sure(&self, unit: impl Fn(f64) -> String) -> String {
        match (self.count, self.interval) {
            (1, _) => "one trial, no interval".to_owned(),
            (n, None) => format!("median of {n}, too few for an interval"),
            (n, Some((low, high))) => {
                format!("median of {n}, 95 % interval {}", range(&unit(low), &unit(high)))
            }
        }
    }

    /// The interval alone, or a dash.
    pub(crate) fn interval_text(&self, unit: impl Fn(f64) -> String) -> String {
        self.interval.map_or_else(|| "\u{2013}".to_owned(), |(low, high)| range(&unit(low), &unit(high)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_exact_and_the_interval_holds_it() {
        let estimate = Estimate::of(&[5.0, 1.0, 3.0, f64::NAN, 2.0, 4.0]).unwrap();
        assert_eq!((estimate.median, estimate.count), (3.0, 5));
        let (low, high) = estimate.interval.unwrap();
        assert!((1.0..=3.0).contains(&low) && (3.0..=5.0).contains(&high));
        assert_eq!(Estimate::of(&[5.0, 1.0, 3.0, 2.0, 4.0]), Some(estimate), "the same every time");
    }

    #[test]
    fn few_trials_say_so() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[7.0]).unwrap().how_sure(crate::format::rate), "one trial, no interval");
        assert_eq!(
            Estimate::of(&[7.0, 8.0]).unwrap().how_sure(crate::format::rate),
            "median of 2, too few for an interval"
        );
    }
}
