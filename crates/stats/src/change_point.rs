//! Change points of a series: where its level changed.

use crate::Random;

/// Probability by chance above which a change is not claimed.
const SIGNIFICANCE: f64 = 0.01;
/// Values on each side of a change: two sets of four separate by chance with 2 / 70.
const LEAST_SEGMENT: usize = 5;
/// Random permutations of a test.
const ROUNDS: u64 = 4_999;

/// Fewest values of which a change can be claimed.
pub const LEAST_SERIES: usize = 2 * LEAST_SEGMENT;

/// A change of the level of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value after the change.
    pub index: usize,
    /// Probability of such a separation by chance.
    pub probability_ratio: f64,
}

/// Changes of the level, in the order of the series: the largest standardised Mann-Whitney statistic of all splits
/// (Hawkins and Deng, "A Nonparametric Change-Point Control Chart", Journal of Quality Technology 42, 2010) on the
/// whole, then on each side of a change that was found (binary segmentation). Pettitt's statistic (1979) is not
/// standardised, and places changes too near to the middle. Probabilities are of random permutations, with the
/// observed order included. Without a finite value everywhere there is none.
pub fn change_points(values: &[f64], seed: u64) -> Vec<ChangePoint> {
    let mut found = Vec::new();
    if values.iter().all(|value| value.is_finite()) {
        let mut random = Random::new(seed);
        split(values, 0, &mut random, &mut found);
    }
    found
}

fn split(values: &[f64], offset: usize, random: &mut Random, found: &mut Vec<ChangePoint>) {
    if values.len() < LEAST_SERIES {
        return;
    }
    let ranks = ranks(values);
    let (at, separation) = separated(&ranks);
    let mut permuted = ranks;
    let mut as_large = 1u64;
    for _ in 0..ROUNDS {
        random.shuffle(&mut permuted);
        as_large += u64::from(separated(&permuted).1 >= separation);
    }
    let probability = as_large as f64 / (ROUNDS + 1) as f64;
    if probability > SIGNIFICANCE {
        return;
    }
    split(&values[..at], offset, random, found);
    found.push(ChangePoint { index: offset + at, probability_ratio: probability });
    split(&values[at..], offset + at, random, found);
}

/// Twice the rank of each value, equal values with the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<i64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count();
    let equal = |value: f64| values.iter().filter(|other| **other == value).count();
    values.iter().map(|value| (2 * below(*value) + equal(*value) + 1) as i64).collect()
}

/// The split after which ranks differ most, with its statistic: U^2 / (t (n - t)), which is proportional to the square
/// of the standardised U, where U = 2 R - t (n + 1), and R the sum of the first t ranks.
fn separated(doubled_ranks: &[i64]) -> (usize, f64) {
    let count = doubled_ranks.len();
    let (mut sum, mut best) = (0, (LEAST_SEGMENT, -1.0));
    for (index, rank) in doubled_ranks.iter().enumerate() {
        sum += rank;
        let taken = index + 1;
        let statistic = (sum - (taken * (count + 1)) as i64) as f64;
        let statistic = statistic * statistic / (taken * (count - taken)) as f64;
        if (LEAST_SEGMENT..=count - LEAST_SEGMENT).contains(&taken) && statistic > best.1 {
            best = (taken, statistic);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Annual flow of the Nile at Aswan, 1871 to 1970 (Cobb, "The problem of the Nile", Biometrika 1978).
    const NILE: [f64; 100] = [
        1120., 1160., 963., 1210., 1160., 1160., 813., 1230., 1370., 1140., 995., 935., 1110., 994., 1020.,
        960., 1180., 799., 958., 1140., 1100., 1210., 1150., 1250., 1260., 1220., 1030., 1100., 774., 840.,
        874., 694., 940., 833., 701., 916., 692., 1020., 1050., 969., 831., 726., 456., 824., 702., 1120.,
        1100., 832., 764., 821., 768., 845., 864., 862., 698., 845., 744., 796., 1040., 759., 781., 865.,
        845., 944., 984., 897., 822., 1010., 771., 676., 649., 846., 812., 742., 801., 1040., 860., 874.,
        848., 890., 744., 749., 838., 1050., 918., 986., 797., 923., 975., 815., 1020., 906., 901., 1170.,
        912., 746., 919., 718., 714., 740.,
    ];

    /// The literature has the change after 1898, the 28th year, and no other.
    #[test]
    fn the_flow_of_the_nile_changed_once() {
        let found = change_points(&NILE, 1);
        assert_eq!(found.iter().map(|one| 1871 + one.index).collect::<Vec<_>>(), [1899]);
        assert!(found[0].probability_ratio < 0.001);
    }

    #[test]
    fn levels_that_change_twice_are_found_and_order_does_not_matter_to_ranks() {
        let level = |index: usize| [100.0, 60.0, 80.0][index / 12] + [0.3, -0.2, 0.5, 0.0, -0.4][index % 5];
        let series: Vec<f64> = (0..36).map(level).collect();
        assert_eq!(change_points(&series, 1).iter().map(|one| one.index).collect::<Vec<_>>(), [12, 24]);
        let scaled: Vec<f64> = series.iter().map(|value| value * 1e9).collect();
        assert_eq!(change_points(&scaled, 1), change_points(&series, 1));
    }

    /// A high value before a drop belongs to the level before it.
    #[test]
    fn the_place_is_not_drawn_to_the_middle() {
        let series: Vec<f64> =
            (0..22).map(|day| if day < 14 { 20.0 } else { 26.0 } + [0.0, 0.3, -0.2][day % 3]).collect();
        assert_eq!(change_points(&series, 1).iter().map(|one| one.index).collect::<Vec<_>>(), [14]);
    }

    #[test]
    fn few_equal_and_missing_values_have_no_change() {
        assert_eq!(change_points(&[], 1), []);
        assert_eq!(change_points(&[1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0], 1), []);
        assert_eq!(change_points(&[5.0; 50], 1), []);
        assert_eq!(change_points(&[f64::NAN; 20], 1), []);
        let ten = [1.0, 1.1, 1.2, 1.0, 1.1, 9.0, 9.1, 9.0, 9.2, 9.1];
        assert_eq!(change_points(&ten, 1)[0].index, 5);
    }

    /// Series without a change: at most the share that chance allows is called changed.
    #[test]
    fn noise_is_rarely_called_a_change() {
        let mut random = Random::new(7);
        let mut series: Vec<f64> = (0..30).map(f64::from).collect();
        let called = (0..200).filter(|seed| {
            random.shuffle(&mut series);
            !change_points(&series, *seed).is_empty()
        });
        let called = called.count();
        assert!(called <= 8, "{called} of 200, 2 are expected");
    }
}
