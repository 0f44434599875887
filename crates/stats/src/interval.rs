//! Distribution-free confidence interval of a median, from order statistics.

use crate::quantile::of_sorted;

/// Probability permitted outside each end of an interval.
pub(crate) const TAIL: f64 = 0.025;

/// An estimate with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalEstimate {
    /// The estimate.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
    /// Confidence level; below 0.95 with fewer than six values: the range of n values misses the median with
    /// probability 2 / 2^n, and 2 / 2^5 is 6.25 %.
    pub confidence_ratio: f64,
}

impl IntervalEstimate {
    /// Width of the interval relative to the estimate; infinite for an estimate of zero.
    pub fn width_ratio(&self) -> f64 {
        if self.high == self.low { 0.0 } else { ((self.high - self.low) / self.value).abs() }
    }

    /// Whether the interval has 95 % confidence.
    pub fn is_95(&self) -> bool {
        self.confidence_ratio >= 1.0 - 2.0 * TAIL
    }
}

/// The median with the narrowest symmetric interval between two order statistics that contains the true
/// median with at least 95 % confidence (David and Nagaraja, "Order Statistics", 2003, section 7.1);
/// distribution-free. Two to five values have no such interval; the result is their range, with its
/// confidence (50 to 93.75 %).
///
/// `None` with fewer than two values: one measurement has no scatter.
pub fn median_interval(values: &[f64]) -> Option<IntervalEstimate> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if sorted.len() < 2 {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    let (skipped, confidence_ratio) = ends(sorted.len());
    Some(IntervalEstimate {
        value: of_sorted(&sorted, 0.5)?,
        low: sorted[skipped],
        high: sorted[sorted.len() - 1 - skipped],
        confidence_ratio,
    })
}

/// Values to omit at each end, and the confidence of the remaining interval.
fn ends(count: usize) -> (usize, f64) {
    // P(Binomial(n, 1/2) <= k), term by term; the logarithm keeps large n from underflowing.
    let ln_half = -(count as f64) * std::f64::consts::LN_2;
    let (mut ln_combinations, mut below, mut skipped, mut outside) = (0.0f64, 0.0f64, 0, None);
    for chosen in 0..count / 2 {
        below += (ln_combinations + ln_half).exp();
        if outside.is_some() && below > TAIL {
            break;
        }
        (skipped, outside) = (chosen, Some(below));
        ln_combinations += ((count - chosen) as f64 / (chosen + 1) as f64).ln();
    }
    (skipped, 1.0 - 2.0 * outside.unwrap_or(0.5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// 1 - 2 / 2^n for the range of n values; from six values on, the ranks of
    /// R 4 `qbinom(0.025, n, 0.5)` and the confidence of `pbinom`.
    #[test]
    fn the_ranks_match_the_binomial_distribution() {
        for (count, skipped, confidence) in [
            (2, 0, 0.5),
            (3, 0, 0.75),
            (4, 0, 0.875),
            (5, 0, 0.9375),
            (6, 0, 0.96875),
            (8, 0, 0.9921875),
            (9, 1, 0.9609375),
            (12, 2, 0.9614257),
            (20, 5, 0.9586105),
            (100, 39, 0.9647998),
        ] {
            let found = ends(count);
            assert_eq!(found.0, skipped, "{count}");
            assert!((found.1 - confidence).abs() < 1e-6, "{count}: {found:?}");
        }
    }

    #[test]
    fn few_values_give_their_range_without_95_percent_confidence() {
        assert_eq!(median_interval(&[20.0]), None);
        for values in [&[20.0, 23.0][..], &[20.0, 21.0, 23.0], &[20.0, 21.0, 21.5, 22.0, 23.0]] {
            let found = median_interval(values).unwrap();
            assert_eq!((found.low, found.high), (20.0, 23.0), "{values:?}");
            assert!(!found.is_95(), "{values:?}");
        }
        assert!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap().is_95());
        assert_eq!(median_interval(&[5.0; 9]).unwrap().width_ratio(), 0.0);
        assert_eq!(median_interval(&[1.0, f64::NAN, 3.0]).unwrap().value, 2.0);
    }

    /// Measured until the interval is narrow, at most twenty times: stopping at three values or more on a
    /// lucky range would contain the median in three of four cases; an interval of 95 % still contains it in
    /// 93 %.
    #[test]
    fn stopping_at_a_narrow_interval_keeps_its_confidence() {
        let mut random = Random::new(5);
        for scatter in [0.01, 0.02, 0.03] {
            let rounds = 1500;
            let mut held = 0;
            for _ in 0..rounds {
                let mut values = Vec::new();
                let mut found = None;
                while values.len() < 20 {
                    let normal: f64 =
                        (0..12).map(|_| random.below(1_000_000) as f64 / 1e6).sum::<f64>() - 6.0;
                    values.push((scatter * normal).exp());
                    found = median_interval(&values);
                    if found.is_some_and(|found| found.is_95() && found.width_ratio() <= 0.03) {
                        break;
                    }
                }
                held += u32::from(found.is_some_and(|found| found.low <= 1.0 && 1.0 <= found.high));
            }
            assert!(held >= 1395, "{scatter}: {held} of {rounds}");
        }
    }

    /// For several distributions and numbers of values, the interval contains the true median at least as
    /// often as its confidence.
    #[test]
    fn the_interval_holds_the_median_as_often_as_its_confidence() {
        let mut random = Random::new(99);
        for count in [3usize, 4, 5, 6, 7, 9, 15] {
            let rounds = 2000;
            let mut held = 0;
            let mut confidence = 0.0;
            for _ in 0..rounds {
                // Skewed, with the median at 1/8.
                let values: Vec<f64> =
                    (0..count).map(|_| (random.below(1_000_000) as f64 / 1e6).powi(3)).collect();
                let found = median_interval(&values).unwrap();
                held += u32::from(found.low <= 0.125 && 0.125 <= found.high);
                confidence = found.confidence_ratio;
            }
            let coverage = f64::from(held) / f64::from(rounds);
            // Three standard errors of 2000 rounds.
            let error = 3.0 * (confidence * (1.0 - confidence) / f64::from(rounds)).sqrt();
            assert!((coverage - confidence).abs() < error, "{count} values: {coverage} for {confidence}");
        }
    }
}
