//! Pearson's chi-square goodness-of-fit test of counts against expected proportions.

/// Result of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// `sum of (observed - expected)^2 / expected`.
    pub statistic: f64,
    /// Degrees of freedom: categories with a positive proportion, less one.
    pub degrees: u32,
    /// Probability of this statistic or a larger one under the expected proportions.
    pub p_value: f64,
}

/// Tests counts against expected proportions, which need not sum to 1. `None` for fewer than two proportions
/// above zero, for no counts, and where a category is expected to have fewer than five counts: the test is
/// not valid there (Cochran 1954, Biometrics 10, p. 420). Counts of a category with proportion zero make the
/// fit impossible: p-value 0.
pub fn goodness_of_fit(observed: &[u64], proportions: &[f64]) -> Option<Fit> {
    let total: u64 = observed.iter().sum();
    let sum: f64 = proportions.iter().sum();
    let categories = proportions.iter().filter(|proportion| **proportion > 0.0).count();
    if observed.len() != proportions.len() || categories < 2 || total == 0 {
        return None;
    }
    let mut statistic = 0.0;
    for (count, proportion) in observed.iter().zip(proportions) {
        let expected = total as f64 * proportion / sum;
        if *proportion <= 0.0 {
            if *count > 0 {
                statistic = f64::INFINITY;
            }
            continue;
        }
        if expected < 5.0 {
            return None;
        }
        statistic += (*count as f64 - expected).powi(2) / expected;
    }
    let degrees = u32::try_from(categories - 1).unwrap_or(u32::MAX);
    Some(Fit { statistic, degrees, p_value: chi_square_tail(statistic, degrees) })
}

/// The relative deviation of a category's count from its expected value that some category exceeds by chance
/// with no more than `probability` when `total` counts follow these proportions: the normal approximation of
/// the binomial distribution with Bonferroni's correction for several categories, of which that with the
/// smallest proportion deviates most. `None` for no counts and for fewer than two proportions above zero.
pub fn chance_deviation(total: u64, proportions: &[f64], probability: f64) -> Option<f64> {
    let sum: f64 = proportions.iter().sum();
    let some = || proportions.iter().filter(|proportion| **proportion > 0.0);
    let categories = some().count();
    if total == 0 || categories < 2 {
        return None;
    }
    let smallest = some().fold(f64::INFINITY, |one, other| one.min(*other)) / sum;
    // The square of a normal variable is chi-square with one degree of freedom.
    let wanted = probability / categories as f64;
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if chi_square_tail(middle, 1) > wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some((high * (1.0 - smallest) / (smallest * total as f64)).sqrt())
}

/// Probability that a chi-square variable with `degrees` degrees of freedom is
/// at least `statistic`: `Q(degrees / 2, statistic / 2)`, the regularised upper
/// incomplete gamma function (Abramowitz and Stegun 26.4.2 and 26.4.19).
fn chi_square_tail(statistic: f64, degrees: u32) -> f64 {
    if statistic.is_infinite() {
        return 0.0;
    }
    if statistic <= 0.0 || degrees == 0 {
        return 1.0;
    }
    let (shape, point) = (f64::from(degrees) / 2.0, statistic / 2.0);
    let scale = (shape * point.ln() - point - log_gamma(shape)).exp();
    let tail = if point < shape + 1.0 {
        1.0 - scale * lower_series(shape, point)
    } else {
        scale * upper_fraction(shape, point)
    };
    tail.clamp(0.0, 1.0)
}

/// Terms after which both expansions have converged for all practical fits.
const TERMS: u32 = 10_000;

/// `gamma(a, x) / (x^a e^-x)` as a series (Abramowitz and Stegun 6.5.29).
fn lower_series(shape: f64, point: f64) -> f64 {
    let mut term = 1.0 / shape;
    let mut sum = term;
    for step in 1..TERMS {
        term *= point / (shape + f64::from(step));
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum
}

/// `Gamma(a, x) / (x^a e^-x)` as a continued fraction (Abramowitz and Stegun
/// 6.5.31) by Lentz's method.
fn upper_fraction(shape: f64, point: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = point + 1.0 - shape;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for step in 1..TERMS {
        let step = f64::from(step);
        let a = -step * (step - shape);
        b += 2.0;
        d = 1.0 / not_zero(a * d + b, TINY);
        c = not_zero(b + a / c, TINY);
        fraction *= d * c;
        if (d * c - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

fn not_zero(value: f64, tiny: f64) -> f64 {
    if value.abs() < tiny { tiny } else { value }
}

/// Logarithm of the gamma function for a positive argument: Stirling's series
/// (Abramowitz and Stegun 6.1.41) after raising the argument above 10.
fn log_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_critical_values_have_their_probability() {
        // NIST/SEMATECH e-Handbook of Statistical Methods 1.3.6.7.4, upper
        // critical values of the chi-square distribution.
        for (degrees, probability, critical) in [
            (1, 0.05, 3.841),
            (1, 0.001, 10.828),
            (2, 0.10, 4.605),
            (5, 0.10, 9.236),
            (5, 0.05, 11.070),
            (5, 0.01, 15.086),
            (5, 0.001, 20.515),
            (7, 0.025, 16.013),
            (30, 0.05, 43.773),
            (63, 0.05, 82.529),
            (100, 0.01, 135.807),
        ] {
            let found = chi_square_tail(critical, degrees);
            let error = (found - probability).abs() / probability;
            assert!(error < 0.002, "{degrees} {critical}: {found}, not {probability}");
        }
        assert_eq!(chi_square_tail(0.0, 5), 1.0);
        assert!(chi_square_tail(1e5, 5) < 1e-300);
    }

    #[test]
    fn two_degrees_are_an_exponential() {
        for x in [0.01f64, 0.5, 2.0, 9.0, 40.0, 200.0] {
            let exact = (-x / 2.0).exp();
            assert!((chi_square_tail(x, 2) - exact).abs() <= exact * 1e-10, "{x}");
        }
    }

    #[test]
    fn a_textbook_die() {
        // 120 rolls of a die, 20 of each expected: (0 + 4 + 9 + 4 + 1 + 16) / 20.
        let fit = goodness_of_fit(&[20, 22, 17, 18, 19, 24], &[1.0; 6]).unwrap();
        assert!((fit.statistic - 1.7).abs() < 1e-12 && fit.degrees == 5, "{fit:?}");
        // R: pchisq(1.7, 5, lower.tail = FALSE) = 0.8889...
        assert!((fit.p_value - 0.889).abs() < 0.001, "{fit:?}");
    }

    #[test]
    fn the_published_gateway_load_is_even_and_with_a_missing_gateway_it_is_not() {
        let even = goodness_of_fit(&[35, 36, 39, 40, 39, 51], &[1.0; 6]).unwrap();
        assert!(even.p_value > 0.05, "{even:?}");
        let missing = goodness_of_fit(&[48, 48, 0, 48, 48, 48], &[1.0; 6]).unwrap();
        assert!(missing.p_value < 1e-6, "{missing:?}");
        let weighted = goodness_of_fit(&[152, 48], &[3.0, 1.0]).unwrap();
        assert!(weighted.p_value > 0.5, "{weighted:?}");
    }

    #[test]
    fn chance_deviation_matches_the_binomial_distribution() {
        // Two equal halves of 10 000: the 97.5 % point of the normal
        // distribution is 1.95996 (NIST/SEMATECH 1.3.6.7.1), halved for two
        // categories 2.24140; the standard deviation is 50 of 5000.
        let half = chance_deviation(10_000, &[0.5, 0.5], 0.05).unwrap();
        assert!((half - 0.022414).abs() < 1e-6, "{half}");
        // One of six by 1000: sqrt(5 / 1000) = 7.07 %, times 2.63826 (the
        // point of 1 - 0.05 / 12).
        let six = chance_deviation(1000, &[1.0; 6], 0.05).unwrap();
        assert!((six - 2.63826 * 0.005f64.sqrt()).abs() < 1e-5, "{six}");
        assert_eq!(chance_deviation(0, &[0.5, 0.5], 0.05), None);
        assert_eq!(chance_deviation(9, &[1.0, 0.0], 0.05), None);
    }

    #[test]
    fn invalid_inputs_are_not_tested() {
        assert_eq!(goodness_of_fit(&[1, 2], &[1.0, 1.0]), None, "too few");
        assert_eq!(goodness_of_fit(&[100], &[1.0]), None);
        assert_eq!(goodness_of_fit(&[0, 0], &[1.0, 1.0]), None);
        assert_eq!(goodness_of_fit(&[50, 50], &[1.0]), None);
        assert_eq!(goodness_of_fit(&[50, 50, 1], &[1.0, 1.0, 0.0]).unwrap().p_value, 0.0);
    }
}
