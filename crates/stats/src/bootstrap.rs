//! How sure a median is.

use crate::{Random, median, quantile::of_sorted};

/// Resamples drawn: enough that the ends of a 95 % interval move by less than
/// the scatter of the samples themselves (Efron and Tibshirani, "An
/// Introduction to the Bootstrap", 1993, section 19.3, ask for 1000 or more).
pub const BOOTSTRAP_ROUNDS: usize = 2000;

/// An estimate with the interval it is believed to lie in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalEstimate {
    /// The estimate.
    pub value: f64,
    /// Low end of the interval.
    pub low: f64,
    /// High end.
    pub high: f64,
}

impl IntervalEstimate {
    /// Width of the interval as a share of the estimate; infinite for an estimate of zero.
    pub fn width_ratio(&self) -> f64 {
        if self.high == self.low { 0.0 } else { ((self.high - self.low) / self.value).abs() }
    }
}

/// The median with its 95 % percentile bootstrap interval (Efron and
/// Tibshirani 1993, section 13.3).
///
/// `None` with fewer than two values: one measurement tells nothing about its
/// own scatter. With two to five values the interval is the whole range; no
/// method that assumes nothing about the distribution can do better.
pub fn median_interval(values: &[f64], seed: u64) -> Option<IntervalEstimate> {
    let values = finite(values);
    let value = median(&values).filter(|_| values.len() >= 2)?;
    let mut random = Random::new(seed);
    Some(percentile(value, || resampled_median(&values, &mut random)))
}

/// The ratio of the medians `changed / base` with its 95 % percentile
/// bootstrap interval, both sets resampled independently. `None` when a set
/// has fewer than two values or the base holds values that are not positive.
pub fn ratio_interval(base: &[f64], changed: &[f64], seed: u64) -> Option<IntervalEstimate> {
    let (base, changed) = (finite(base), finite(changed));
    if base.len() < 2 || changed.len() < 2 || base.iter().any(|&value| value <= 0.0) {
        return None;
    }
    let value = median(&changed)? / median(&base)?;
    let mut random = Random::new(seed);
    Some(percentile(value, || resampled_median(&changed, &mut random) / resampled_median(&base, &mut random)))
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite()).collect()
}

fn resampled_median(values: &[f64], random: &mut Random) -> f64 {
    let mut drawn: Vec<f64> = values.iter().map(|_| values[random.below(values.len())]).collect();
    drawn.sort_unstable_by(f64::total_cmp);
    of_sorted(&drawn, 0.5).unwrap_or(f64::NAN)
}

fn percentile(value: f64, mut draw: impl FnMut() -> f64) -> IntervalEstimate {
    let mut drawn: Vec<f64> = (0..BOOTSTRAP_ROUNDS).map(|_| draw()).collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let at = |share| of_sorted(&drawn, share).unwrap_or(value);
    IntervalEstimate { value, low: at(0.025), high: at(0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_give_their_whole_range() {
        assert_eq!(median_interval(&[20.0], 1), None);
        for values in [&[20.0, 23.0][..], &[20.0, 21.0, 23.0], &[20.0, 21.0, 21.5, 22.0, 23.0]] {
            let found = median_interval(values, 1).unwrap();
            assert_eq!((found.low, found.high), (20.0, 23.0), "{values:?}");
        }
        assert_eq!(median_interval(&[5.0; 9], 1).unwrap().width_ratio(), 0.0);
    }

    /// The exact bootstrap distribution of the median of nine distinct values is
    /// binomial (Efron, "Bootstrap Methods", 1979, section 3): P(median* <= x_(k)) =
    /// P(Binomial(9, k/9) >= 5) = 0.0014, 0.0304, 0.1448 for k = 1, 2, 3 and 0.9696,
    /// 0.9986 for k = 7, 8 (SciPy `binom.sf`): the 2.5 % point is x_(2), the other x_(8).
    /// Drawing 2000 may move an end by one place.
    #[test]
    fn the_interval_follows_the_exact_distribution() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        for seed in 0..20 {
            let found = median_interval(&values, seed).unwrap();
            assert_eq!(found.value, 5.0);
            assert!((2.0..=3.0).contains(&found.low) && (7.0..=8.0).contains(&found.high), "{found:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values = [20.7, 23.3, 25.3, 21.0, 22.4, 19.9, 20.2];
        assert_eq!(median_interval(&values, 7), median_interval(&values, 7));
    }

    #[test]
    fn a_ratio_covers_the_truth_and_refuses_nonsense() {
        let base = [20.0, 20.2, 19.8, 20.1, 19.9];
        let changed = base.map(|value| value * 1.1);
        let found = ratio_interval(&base, &changed, 3).unwrap();
        assert!((found.value - 1.1).abs() < 1e-12 && found.low < 1.1 && found.high > 1.1, "{found:?}");
        assert_eq!(ratio_interval(&base, &[1.0], 3), None);
        assert_eq!(ratio_interval(&[0.0, 1.0], &base, 3), None);
    }

    /// Over many samples of a known distribution the interval holds the true
    /// median about as often as it says (percentile bootstrap, n = 15, 95 %).
    #[test]
    fn coverage_is_near_what_is_promised() {
        let mut random = Random::new(99);
        let covered = (0..300)
            .filter(|&round| {
                let values: Vec<f64> = (0..15).map(|_| random.below(1_000_000) as f64).collect();
                let found = median_interval(&values, round).unwrap();
                found.low <= 500_000.0 && 500_000.0 <= found.high
            })
            .count();
        assert!((270..=298).contains(&covered), "{covered} of 300");
    }
}
