//! Two-sample permutation test, and adjustment for multiple tests.

use crate::Random;

/// Maximum number of permutations that are enumerated for an exact result.
const EXACT_LIMIT: u64 = 20_000;
/// Random permutations beyond this limit.
const RANDOM_ROUNDS: u64 = 20_000;

/// p-value of a difference of means at least as large, in either direction, under random labels: the
/// two-sided Fisher-Pitman test (Pitman 1937). Means are used since medians of five values take too few
/// values for a useful test.
///
/// Exact up to 20,000 permutations, otherwise from random ones, with the observed one included
/// (Phipson and Smyth, "Permutation P-values Should Never Be Zero", 2010). `None` when a set is empty or a
/// value is not finite.
pub fn permutation_test(one: &[f64], other: &[f64], seed: u64) -> Option<f64> {
    let mut values: Vec<f64> = one.iter().chain(other).copied().collect();
    if one.is_empty() || other.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let observed = difference(&values, one.len());
    // Sums in another order differ in the last bits: they are treated as equal.
    let scale = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let as_large = |value: f64| value >= observed - scale * 1e-12;
    match combinations(values.len() as u64, one.len() as u64) {
        Some(total) => {
            let mut count = 0u64;
            each_choice(values.len(), one.len(), |chosen| {
                let permuted = permuted(&values, chosen);
                count += u64::from(as_large(difference(&permuted, one.len())));
            });
            Some(count as f64 / total as f64)
        }
        None => {
            let mut random = Random::new(seed);
            let mut count = 1u64;
            for _ in 0..RANDOM_ROUNDS {
                random.shuffle(&mut values);
                count += u64::from(as_large(difference(&values, one.len())));
            }
            Some(count as f64 / (RANDOM_ROUNDS + 1) as f64)
        }
    }
}

/// Adjusts the p-values of many tests so that among those called different at a level only that fraction is
/// expected to be so by chance (Benjamini and Hochberg, "Controlling the False Discovery Rate", 1995).
pub fn false_discovery_adjusted(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|one, other| probabilities[*other].total_cmp(&probabilities[*one]));
    let mut adjusted = vec![0.0; probabilities.len()];
    let mut least = 1.0f64;
    for (passed, place) in order.into_iter().enumerate() {
        let rank = probabilities.len() - passed;
        least = least.min(probabilities[place] * probabilities.len() as f64 / rank as f64);
        adjusted[place] = least;
    }
    adjusted
}

/// Absolute difference between the mean of the first values and of the rest.
fn difference(values: &[f64], first: usize) -> f64 {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    (mean(&values[..first]) - mean(&values[first..])).abs()
}

/// The values with the chosen ones first.
fn permuted(values: &[f64], chosen: &[usize]) -> Vec<f64> {
    let rest = (0..values.len()).filter(|place| !chosen.contains(place));
    chosen.iter().copied().chain(rest).map(|place| values[place]).collect()
}

/// Binomial coefficient, when at most [`EXACT_LIMIT`].
fn combinations(all: u64, few: u64) -> Option<u64> {
    let mut total = 1u64;
    for step in 1..=few.min(all - few) {
        total = total * (all + 1 - step) / step;
        if total > EXACT_LIMIT {
            return None;
        }
    }
    Some(total)
}

/// Calls `see` with every choice of `few` places out of `all`, in lexical order.
fn each_choice(all: usize, few: usize, mut see: impl FnMut(&[usize])) {
    let mut chosen: Vec<usize> = (0..few).collect();
    loop {
        see(&chosen);
        let Some(place) = (0..few).rev().find(|&place| chosen[place] < all - few + place) else { return };
        chosen[place] += 1;
        for next in place + 1..few {
            chosen[next] = chosen[next - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference: SciPy 1.x `stats.permutation_test`, all permutations,
    /// statistic |mean(x) - mean(y)|; the second data set is Rice,
    /// "Mathematical Statistics and Data Analysis", the first nine values of
    /// the heat of fusion of ice by two methods.
    #[test]
    fn agrees_with_scipy() {
        let close = |one: &[f64], other: &[f64], expected: f64| {
            let found = permutation_test(one, other, 1).unwrap();
            assert!((found - expected).abs() < 1e-12, "{found} for {expected}");
        };
        close(&[20.7, 21.0, 19.9, 20.2, 21.3], &[22.4, 23.3, 22.9, 21.1, 23.0], 4.0 / 252.0);
        // Two of these ten are as large only in exact arithmetic (counted with integers); SciPy's sums lose
        // them to rounding and it returns 8/126.
        close(&[79.98, 80.04, 80.02, 80.04, 80.03], &[80.02, 79.94, 79.98, 79.97], 10.0 / 126.0);
        // By hand: two of the twenty combinations of 1..6 are as extreme.
        close(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.1);
        close(&[3.0; 4], &[3.0; 4], 1.0);
    }

    #[test]
    fn random_rounds_approximate_the_exact_result_and_are_never_zero() {
        let one: Vec<f64> = (0..12).map(f64::from).collect();
        let other: Vec<f64> = (0..12).map(|value| f64::from(value) + 4.0).collect();
        // SciPy, 200 000 resamples: 0.0158.
        let found = permutation_test(&one, &other, 5).unwrap();
        assert!((found - 0.0158).abs() < 0.004, "{found}");
        let distant: Vec<f64> = other.iter().map(|value| value + 1e6).collect();
        assert!(permutation_test(&one, &distant, 5).unwrap() > 0.0);
    }

    /// Reference: the fifteen probabilities of Benjamini and Hochberg 1995, section 4.1:
    /// at 5 % they reject the first four. Adjusted values: SciPy `stats.false_discovery_control`.
    #[test]
    fn adjusts_as_published() {
        let published = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.0,
        ];
        let adjusted = false_discovery_adjusted(&published);
        assert_eq!(adjusted.iter().filter(|probability| **probability <= 0.05).count(), 4);
        for (found, expected) in adjusted.iter().zip([0.0015, 0.003, 0.0095, 0.035625, 0.0603]) {
            assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        }
        assert!(false_discovery_adjusted(&[]).is_empty());
    }

    #[test]
    fn empty_input_gives_no_result() {
        assert_eq!(permutation_test(&[], &[1.0], 1), None);
        assert_eq!(permutation_test(&[f64::NAN], &[1.0], 1), None);
    }
}
