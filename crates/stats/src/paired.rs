//! Paired comparison: the effect of one change, measured in blocks. Each block is a pair of values measured
//! under equal conditions except for that change, so that what differs between blocks (other settings, the
//! hour, the state of the machine) cancels.
//!
//! The estimate is the Hodges-Lehmann estimate on logarithms of the ratios, its interval and its probability
//! are those of Wilcoxon's signed-rank test (Hollander, Wolfe and Chicken, "Nonparametric Statistical
//! Methods", 2014, sections 3.1 to 3.3). Where the order within each pair was drawn at random the test is
//! exact for any distribution of the values.

use crate::{interval::TAIL, quantile::of_sorted};

/// Fewest pairs that can prove a difference at 5 %: n pairs with the same sign have a two-sided probability
/// of 2 / 2^n.
pub const LEAST_PAIRS: usize = 6;
/// Maximum pairs for which all averages are listed and the distribution of the rank sum is exact.
const EXACT_PAIRS: usize = 60;

/// A ratio of paired values, `changed / base`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedRatio {
    /// The estimated ratio.
    pub value: f64,
    /// Lower bound of its interval.
    pub low: f64,
    /// Upper bound of its interval.
    pub high: f64,
    /// Confidence level of the interval; below [`LEAST_PAIRS`] pairs the interval is their range, and this
    /// less than 0.95.
    pub confidence_ratio: f64,
    /// Two-sided p-value under the hypothesis of no change.
    pub probability_ratio: f64,
    /// Number of pairs.
    pub count: usize,
}

impl PairedRatio {
    /// Whether the interval has 95 % confidence.
    pub fn is_95(&self) -> bool {
        self.confidence_ratio >= 1.0 - 2.0 * TAIL
    }

    /// Whether a difference is proven: the interval has 95 % confidence and excludes a ratio of one.
    pub fn excludes_one(&self) -> bool {
        self.is_95() && (self.low > 1.0 || self.high < 1.0) && self.probability_ratio < 2.0 * TAIL
    }
}

/// Smallest two-sided p-value possible with this number of pairs.
pub fn least_probability(pairs: usize) -> f64 {
    2.0 * 0.5f64.powi(i32::try_from(pairs).unwrap_or(i32::MAX)).min(0.5)
}

/// The ratio of pairs `(base, changed)`; those with a value that is not positive and finite are omitted.
/// `None` when no pair is left.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<PairedRatio> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let mut logs: Vec<f64> = pairs
        .iter()
        .filter(|(base, changed)| positive(*base) && positive(*changed))
        .map(|(base, changed)| (changed / base).ln())
        .collect();
    logs.sort_unstable_by(f64::total_cmp);
    let count = logs.len();
    let (first, last) = (*logs.first()?, *logs.last()?);
    let probability_ratio = signed_rank_probability(&logs);
    let (value, low, high, confidence_ratio) = if count <= EXACT_PAIRS {
        let averages = averages(&logs);
        let (skipped, confidence) = skipped(count);
        let (low, high) = if skipped == 0 {
            (first, last)
        } else {
            (averages[skipped], averages[averages.len() - 1 - skipped])
        };
        (of_sorted(&averages, 0.5)?, low, high, confidence)
    } else {
        let total = (count * (count + 1) / 2) as f64;
        let n = count as f64;
        // Normal approximation of the rank sum (Hollander et al., equation 3.41).
        let reach = 1.959_964 * (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let at = |rank: f64| average_at(&logs, rank);
        (at(total / 2.0), at(total / 2.0 - reach), at(total / 2.0 + reach), 1.0 - 2.0 * TAIL)
    };
    Some(PairedRatio {
        value: value.exp(),
        low: low.exp(),
        high: high.exp(),
        confidence_ratio,
        probability_ratio,
        count,
    })
}

/// Walsh averages in ascending order: the mean of each value with itself and every other.
fn averages(sorted: &[f64]) -> Vec<f64> {
    let mut all = Vec::with_capacity(sorted.len() * (sorted.len() + 1) / 2);
    for (place, one) in sorted.iter().enumerate() {
        all.extend(sorted[place..].iter().map(|other| (one + other) / 2.0));
    }
    all.sort_unstable_by(f64::total_cmp);
    all
}

/// The Walsh average of a rank, by bisection: the averages are counted, not listed.
fn average_at(sorted: &[f64], rank: f64) -> f64 {
    let below = |limit: f64| {
        let mut other = sorted.len();
        let mut count = 0usize;
        for (place, one) in sorted.iter().enumerate() {
            while other > place && one + sorted[other - 1] > 2.0 * limit {
                other -= 1;
            }
            count += other.saturating_sub(place);
        }
        count as f64
    };
    let (mut low, mut high) = (sorted[0], sorted[sorted.len() - 1]);
    for _ in 0..64 {
        let middle = low.midpoint(high);
        if below(middle) < rank { low = middle } else { high = middle }
    }
    high
}

/// Averages to omit at each end of a 95 % interval, and its confidence.
fn skipped(count: usize) -> (usize, f64) {
    let ranks: Vec<usize> = (1..=count).collect();
    let orders = sum_distribution(&ranks);
    let (mut below, mut skipped, mut outside) = (0.0, 0, None);
    for (sum, probability) in orders.iter().enumerate() {
        below += probability;
        if outside.is_some() && below > TAIL {
            break;
        }
        (skipped, outside) = (sum, Some(below));
    }
    (skipped, (1.0 - 2.0 * outside.unwrap_or(0.5)).max(0.0))
}

/// Probability of each sum when every rank is included with probability one half.
fn sum_distribution(ranks: &[usize]) -> Vec<f64> {
    let mut probabilities = vec![1.0f64];
    for rank in ranks {
        let mut next = vec![0.0; probabilities.len() + rank];
        for (sum, probability) in probabilities.iter().enumerate() {
            next[sum] += probability / 2.0;
            next[sum + rank] += probability / 2.0;
        }
        probabilities = next;
    }
    probabilities
}

/// Two-sided p-value of the rank sum of the positive values; zeros are omitted, equal sizes get their mean
/// rank (doubled here, to stay integral).
fn signed_rank_probability(values: &[f64]) -> f64 {
    let mut sized: Vec<(f64, bool)> =
        values.iter().filter(|value| **value != 0.0).map(|value| (value.abs(), *value > 0.0)).collect();
    sized.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let count = sized.len();
    if count == 0 {
        return 1.0;
    }
    let (mut ranks, mut positive, mut place) = (Vec::with_capacity(count), 0usize, 0);
    for group in sized.chunk_by(|one, other| one.0 == other.0) {
        let doubled = 2 * place + group.len() + 1;
        for (_, is_positive) in group {
            ranks.push(doubled);
            positive += if *is_positive { doubled } else { 0 };
        }
        place += group.len();
    }
    let total: usize = ranks.iter().sum();
    let tail = positive.min(total - positive);
    if count <= EXACT_PAIRS {
        return (2.0 * sum_distribution(&ranks)[..=tail].iter().sum::<f64>()).min(1.0);
    }
    let variance = ranks.iter().map(|rank| (*rank as f64 / 2.0).powi(2)).sum::<f64>() / 4.0;
    let standard = ((total as f64 / 4.0 - tail as f64 / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    crate::steady::complementary_error_function(standard / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn ratios(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().map(|ratio| (10.0, 10.0 * ratio)).collect()
    }

    /// Reference: SciPy `stats.wilcoxon(x, method="exact")` of the depression
    /// scale factors of Hollander and Wolfe, example 3.1: nine pairs, the
    /// smaller rank sum 5, two-sided 0.0390625.
    #[test]
    #[allow(clippy::approx_constant, reason = "a published value happens to be 3.14")]
    fn the_p_value_matches_the_signed_rank_test() {
        let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        // On differences, as published: ratios of their exponentials.
        let pairs: Vec<(f64, f64)> =
            before.iter().zip(after).map(|(one, other): (&f64, f64)| (one.exp(), other.exp())).collect();
        let found = paired_ratio(&pairs).unwrap();
        assert!((found.probability_ratio - 0.039_062_5).abs() < 1e-12, "{found:?}");
        // Published: estimate -0.46; 96.1 % interval -0.786 to -0.010.
        assert!((found.value.ln() + 0.46).abs() < 5e-3, "{}", found.value.ln());
        assert!((found.low.ln() + 0.786).abs() < 1e-9, "{}", found.low.ln());
        assert!((found.high.ln() + 0.010).abs() < 1e-9, "{}", found.high.ln());
        assert!((found.confidence_ratio - 0.960_937_5).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn fewer_than_six_pairs_prove_nothing() {
        for count in 1..=5 {
            let found = paired_ratio(&ratios(&vec![2.0; count])).unwrap();
            assert!(!found.is_95() && !found.excludes_one(), "{found:?}");
            assert_eq!(found.probability_ratio, least_probability(count));
        }
        let six = paired_ratio(&ratios(&[2.0, 2.1, 1.9, 2.2, 2.0, 1.8])).unwrap();
        assert!(six.excludes_one(), "{six:?}");
        assert!((six.low - 1.8).abs() < 1e-12 && (six.high - 2.2).abs() < 1e-12, "the range: {six:?}");
        assert_eq!(six.probability_ratio, 2.0 / 64.0);
        assert_eq!(least_probability(LEAST_PAIRS), 2.0 / 64.0);
    }

    #[test]
    fn empty_input_gives_no_result() {
        assert_eq!(paired_ratio(&[]), None);
        assert_eq!(paired_ratio(&[(0.0, 1.0), (f64::NAN, 1.0)]), None);
        let same = paired_ratio(&ratios(&[1.0; 8])).unwrap();
        assert_eq!((same.value, same.probability_ratio), (1.0, 1.0));
    }

    #[test]
    fn many_pairs_agree_with_the_listed_averages() {
        let mut random = Random::new(4);
        let logs: Vec<f64> = (0..EXACT_PAIRS + 20).map(|_| random.below(1000) as f64 / 1e4).collect();
        let mut sorted = logs.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let listed = averages(&sorted);
        for rank in [1, 40, listed.len() / 2, listed.len()] {
            let found = average_at(&sorted, rank as f64);
            assert!((found - listed[rank - 1]).abs() < 1e-9, "{rank}");
        }
        let pairs: Vec<(f64, f64)> = logs.iter().map(|log| (1.0, log.exp())).collect();
        let found = paired_ratio(&pairs).unwrap();
        assert!(found.low < found.value && found.value < found.high && found.excludes_one(), "{found:?}");
    }

    /// A machine whose speed drifts by more than the scatter: pairs cancel it.
    #[test]
    fn drift_between_blocks_cancels_and_coverage_holds() {
        let mut random = Random::new(7);
        let mut noise = |size: f64| {
            let sum: f64 = (0..12).map(|_| random.below(1_000_000) as f64 / 1e6).sum();
            size * (sum - 6.0)
        };
        for (count, truth) in [(6, 1.0), (8, 1.05), (12, 1.0), (16, 0.9)] {
            let (mut held, mut claimed) = (0, 0);
            let rounds = 1000;
            for _ in 0..rounds {
                let mut speed = 40.0;
                let pairs: Vec<(f64, f64)> = (0..count)
                    .map(|_| {
                        speed *= noise(0.05).exp();
                        (speed * noise(0.02).exp(), speed * truth * noise(0.02).exp())
                    })
                    .collect();
                let found = paired_ratio(&pairs).unwrap();
                held += u32::from(found.low <= truth && truth <= found.high);
                claimed += u32::from(found.excludes_one());
            }
            assert!(held >= 930, "{count} pairs: {held} of {rounds} hold {truth}");
            if truth == 1.0 {
                assert!(claimed <= 50 + 15, "{count} pairs: {claimed} false claims in {rounds}");
            }
        }
    }
}
