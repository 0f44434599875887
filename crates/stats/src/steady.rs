//! Stationarity of a series.
//!
//! The Mann-Kendall test (Mann, Econometrica 13, 1945; Kendall, "Rank Correlation Methods", 1975) tests
//! whether the values tend to rise or to fall with time; it assumes nothing about their distribution. A trend
//! that is real but small does not affect a median, so its size counts too: Sen's slope (Sen, JASA 63, 1968),
//! the median of the slopes between all pairs, times the length of the series. A series is *unsteady* when
//! the trend is both significant (5 %) and larger than 5 % of the median: slow start that reaches into the
//! measured part, a window still growing, a machine slowing down. Bursts and noise alone do not make it so.

use crate::{median, quantile::of_sorted};

/// Fewest points for 5 % significance: four in perfect order still have a two-sided probability of 2/24.
const MINIMUM_POINTS: usize = 5;
/// Trend over the whole series, relative to its median, below which it is negligible.
const NEGLIGIBLE_TREND_RATIO: f64 = 0.05;
/// Maximum number of values without ties for which the distribution of the statistic is exact.
const EXACT_POINTS: usize = 40;
const SIGNIFICANCE: f64 = 0.05;

/// Trend of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Trend {
    /// Pairs in rising order less pairs in falling order (Mann-Kendall S).
    score: i64,
    /// Two-sided p-value of the score without a trend.
    probability: f64,
    /// Sen's slope per step.
    slope: f64,
}

/// Trend of equally spaced values; `None` below [`MINIMUM_POINTS`] or with values that are not finite.
fn trend(values: &[f64]) -> Option<Trend> {
    if values.len() < MINIMUM_POINTS || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut score = 0i64;
    let mut slopes = Vec::with_capacity(values.len() * (values.len() - 1) / 2);
    for (place, earlier) in values.iter().enumerate() {
        for (distance, later) in (1..).zip(&values[place + 1..]) {
            score += i64::from(later > earlier) - i64::from(later < earlier);
            slopes.push((later - earlier) / f64::from(distance));
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let probability = match ties(values) {
        groups if groups.is_empty() && values.len() <= EXACT_POINTS => exact(score, values.len()),
        groups => normal(score, values.len(), &groups),
    };
    Some(Trend { score, probability, slope: of_sorted(&slopes, 0.5)? })
}

/// Whether the series was stationary; `None` when it is too short to decide.
pub fn steady(values: &[f64]) -> Option<bool> {
    let trend = trend(values)?;
    let middle = median(values)?;
    let change = trend.slope * (values.len() - 1) as f64;
    Some(trend.probability >= SIGNIFICANCE || change.abs() <= NEGLIGIBLE_TREND_RATIO * middle.abs())
}

/// Sizes of the groups of equal values.
fn ties(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
        .chunk_by(|one, other| one == other)
        .filter(|group| group.len() > 1)
        .map(|group| group.len() as f64)
        .collect()
}

/// Two-sided p-value from the number of orders with each count of falling pairs (Kendall 1975, chapter 5: one
/// more value multiplies the generating function by 1 + x + ... + x^n).
fn exact(score: i64, points: usize) -> f64 {
    let mut orders = vec![1.0f64];
    for size in 2..=points {
        let mut next = vec![0.0; orders.len() + size - 1];
        for (falling, probability) in orders.iter().enumerate() {
            for added in 0..size {
                next[falling + added] += probability / size as f64;
            }
        }
        orders = next;
    }
    let pairs = points * (points - 1) / 2;
    let falling = (pairs - (score.unsigned_abs() as usize).min(pairs)) / 2;
    (2.0 * orders[..=falling].iter().sum::<f64>()).min(1.0)
}

/// Two-sided p-value by the normal approximation with correction for continuity and ties (Kendall 1975,
/// chapter 4).
fn normal(score: i64, points: usize, groups: &[f64]) -> f64 {
    let weight = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let variance = (weight(points as f64) - groups.iter().map(|&size| weight(size)).sum::<f64>()) / 18.0;
    if variance <= 0.0 || score == 0 {
        return 1.0;
    }
    let standard = (score.abs() - 1) as f64 / variance.sqrt();
    complementary_error_function(standard / std::f64::consts::SQRT_2)
}

/// erfc for arguments of at least zero: Abramowitz and Stegun 7.1.26, error below 1.5e-7.
pub(crate) fn complementary_error_function(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference: SciPy `stats.kendalltau` against time, method "exact" (the
    /// same statistic and null distribution), and `stats.theilslopes`.
    #[test]
    fn agrees_with_scipy() {
        let check = |values: &[f64], score, probability: f64, slope: f64, error| {
            let found = trend(values).unwrap();
            assert_eq!(found.score, score);
            assert!((found.probability - probability).abs() < error, "{found:?}");
            assert!((found.slope - slope).abs() < 1e-12, "{found:?}");
        };
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 10, 2.0 / 120.0, 1.0, 1e-12);
        check(&[20.1, 20.9, 20.4, 21.2, 21.0, 21.9, 21.5, 22.3], 22, 0.005_505_952_380_952, 0.2625, 1e-12);
        let noise = [23.4, 21.1, 22.0, 19.9, 22.8, 21.3, 20.7, 23.1, 22.2, 20.5, 21.9, 22.4];
        check(&noise, -2, 0.946_559_289_154_775, -0.027_678_571_428_571, 1e-9);
        // With ties: Kendall's variance with correction, computed with NumPy and `norm.sf`.
        check(&[5.0, 5.0, 6.0, 7.0, 6.0, 8.0, 8.0, 9.0], 23, 0.005_327_697, 0.585_714_285_714_286, 2e-7);
    }

    /// Abramowitz and Stegun, table 7.1 (and SciPy `special.erfc`).
    #[test]
    fn the_error_function_matches_the_tables() {
        for (x, expected) in [(0.0, 1.0), (0.5, 0.479_500_122), (1.0, 0.157_299_207), (2.0, 0.004_677_735)] {
            assert!((complementary_error_function(x) - expected).abs() < 1.5e-7, "{x}");
        }
    }

    #[test]
    fn slow_start_is_unsteady_and_noise_is_not() {
        assert_eq!(steady(&[1.0, 3.0, 9.0, 15.0, 18.0, 19.0, 19.2]), Some(false));
        assert_eq!(steady(&[20.0, 20.1, 20.2, 20.3, 20.4, 20.5]), Some(true), "real but small");
        assert_eq!(steady(&[8.0, 19.0, 9.0, 17.0, 8.0, 18.0, 9.0, 19.0]), Some(true), "bursts");
        assert_eq!(steady(&[5.0; 300]), Some(true));
        assert_eq!(steady(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(steady(&[1.0, 2.0, f64::NAN, 3.0, 4.0, 5.0]), None);
    }
}
