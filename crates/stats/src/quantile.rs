//! Median and quantiles of small samples.

/// The middle value, or the mean of the two middle ones. `None` without values. NaN values are omitted.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile at `probability` (0 to 1), linear between the neighbouring order statistics: definition 7 of
/// Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50 (1996), the
/// default of R and NumPy. `None` without values or when `probability` is out of range.
fn quantile(values: &[f64], probability: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&probability) {
        return None;
    }
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    of_sorted(&sorted, probability)
}

/// [`quantile`] of values already sorted.
pub(crate) fn of_sorted(sorted: &[f64], probability: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = probability * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    let between = place - place.floor();
    // Not low + between * (high - low): that is NaN for two infinities.
    Some(if between == 0.0 || low == high { low } else { low + between * (high - low) })
}

/// The smallest value that at least so many per cent of all do not exceed (nearest rank, definition 1 of Hyndman and
/// Fan): always one of the values, the lower of two in the middle. `None` without values.
pub fn nearest_rank<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (percent.min(100) * sorted.len()).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R: `quantile(c(15, 20, 35, 40, 50), c(0, .05, .3, .4, .5, 1), type = 1)`.
    #[test]
    fn the_nearest_rank_is_that_of_r() {
        let sorted = [15, 20, 35, 40, 50];
        let found = [0, 5, 30, 40, 50, 100].map(|percent| nearest_rank(&sorted, percent).unwrap());
        assert_eq!(found, [15, 15, 20, 20, 35, 50]);
        assert_eq!(nearest_rank(&[1, 2], 50), Some(1));
        assert_eq!(nearest_rank::<u64>(&[], 50), None);
        // 99 of a hundred are not the last one.
        assert_eq!(nearest_rank(&(1..=100).collect::<Vec<u32>>(), 99), Some(99));
    }

    /// Reference: NumPy 2 `quantile`, method "linear", of its documentation's kind of data.
    #[test]
    fn agrees_with_numpy() {
        let values = [20.7, 23.3, 25.3, 21.0, 22.4, 19.9];
        for (probability, expected) in
            [(0.0, 19.9), (0.1, 20.3), (0.25, 20.775), (0.5, 21.7), (0.9, 24.3), (1.0, 25.3)]
        {
            let found = quantile(&values, probability).unwrap();
            assert!((found - expected).abs() < 1e-12, "{probability}: {found}");
        }
    }

    #[test]
    fn the_middle_of_few() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[f64::NAN, 2.0]), Some(2.0));
        assert_eq!(quantile(&[1.0], 1.5), None);
        assert_eq!(median(&[f64::INFINITY, f64::INFINITY]), Some(f64::INFINITY));
    }
}
