//! A median, or a ratio of pairs, and how sure it is.

pub(crate) use clearstream_stats::median;
use clearstream_stats::{PairedRatio, median_interval};

use crate::format::{count, range, signed_percent};

/// A median of some trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    /// 95 % interval of the median, or the range of fewer values than have one; absent for one value.
    pub(crate) interval: Option<(f64, f64)>,
    /// The interval has 95 % confidence.
    pub(crate) is_95: bool,
    pub(crate) count: usize,
}

impl Estimate {
    /// The median of finite values; `None` when there is none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let interval = median_interval(&values);
        Some(Self {
            median: median(&values)?,
            interval: interval.map(|found| (found.low, found.high)),
            is_95: interval.is_some_and(|found| found.is_95()),
            count: values.len(),
        })
    }

    /// `median of 9, 95 % interval 21.8 to 22.6 Gb/s`; below six values their range is called so.
    pub(crate) fn how_sure(&self, unit: impl Fn(f64) -> String) -> String {
        match (self.count, self.interval) {
            (1, _) | (_, None) => "one trial, no interval".to_owned(),
            (n, Some((low, high))) => {
                format!("median of {n}, {} {}", kind(self.is_95, n), range(&unit(low), &unit(high)))
            }
        }
    }

    /// The interval alone, a range marked as such, or a dash.
    pub(crate) fn interval_text(&self, unit: impl Fn(f64) -> String) -> String {
        match self.interval {
            None => "\u{2013}".to_owned(),
            Some((low, high)) if self.is_95 => range(&unit(low), &unit(high)),
            Some((low, high)) => format!("{} (range of {})", range(&unit(low), &unit(high)), self.count),
        }
    }
}

/// Kind of the two ends.
fn kind(is_95: bool, count: usize) -> String {
    if is_95 { "95 % interval".to_owned() } else { format!("range of {count}:") }
}

/// A ratio of pairs as a change: `+25 % (9 pairs, 95 % interval +20 to +30 %)`.
pub(crate) fn change(ratio: &PairedRatio) -> String {
    format!("{} ({})", signed_percent(ratio.value - 1.0), change_sure(ratio))
}

/// `9 pairs, 95 % interval +20 to +30 %`.
pub(crate) fn change_sure(ratio: &PairedRatio) -> String {
    let pairs = count(ratio.count, "pair");
    if ratio.count < 2 {
        return pairs;
    }
    let ends = range(&signed_percent(ratio.low - 1.0), &signed_percent(ratio.high - 1.0));
    format!("{pairs}, {} {ends}", kind(ratio.is_95(), ratio.count))
}

/// Remark on the highest of several: it was chosen by its value,
/// so it is biased upwards. Nothing for a single one.
pub(crate) fn chosen(candidates: usize, noun: &str) -> String {
    if candidates < 2 {
        return String::new();
    }
    format!(
        "the highest of {}, chosen after measuring: expect a lower value when repeated",
        count(candidates, noun)
    )
}

#[cfg(test)]
mod tests {
    use clearstream_stats::paired_ratio;

    use super::*;

    #[test]
    fn an_interval_is_called_95_percent_from_six_values_on() {
        let five = Estimate::of(&[5.0, 1.0, 3.0, f64::NAN, 2.0, 4.0]).unwrap();
        assert_eq!((five.median, five.count, five.interval), (3.0, 5, Some((1.0, 5.0))));
        assert_eq!(five.how_sure(|value| format!("{value} s")), "median of 5, range of 5: 1 to 5 s");
        assert_eq!(five.interval_text(|value| value.to_string()), "1 to 5 (range of 5)");
        let six = Estimate::of(&[5.0, 1.0, 3.0, 6.0, 2.0, 4.0]).unwrap();
        assert_eq!(six.how_sure(|value| format!("{value} s")), "median of 6, 95 % interval 1 to 6 s");
        assert_eq!(six.interval_text(|value| value.to_string()), "1 to 6");
    }

    #[test]
    fn few_trials_are_marked_as_few() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[7.0]).unwrap().how_sure(crate::format::rate), "one trial, no interval");
        let pairs = |n: usize| paired_ratio(&vec![(4.0, 5.0); n]).unwrap();
        assert_eq!(change(&pairs(1)), "+25 % (1 pair)");
        assert_eq!(change(&pairs(4)), "+25 % (4 pairs, range of 4: +25 %)");
        assert_eq!(change(&pairs(6)), "+25 % (6 pairs, 95 % interval +25 %)");
    }

    #[test]
    fn a_maximum_is_called_one() {
        assert_eq!(chosen(1, "cell"), "");
        assert!(chosen(8, "cell").starts_with("the highest of 8 cells, chosen after measuring"));
    }
}
