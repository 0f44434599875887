//! One factor's effect over blocks that differ in other factors, with a test for interaction. An effect that
//! depends on another factor has no single value; pooling two opposite ones gives a number that applies to
//! neither.

use crate::{PairedRatio, Random, false_discovery_adjusted, paired_ratio, permutation_test};

/// Levels whose typical ratios differ by less are treated as one effect.
pub const PRACTICAL_RATIO: f64 = 0.05;
/// Random permutations for three levels and more.
const ROUNDS: u32 = 2000;
const SIGNIFICANCE: f64 = 0.05;

/// A pair of values measured under equal conditions except for one factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Value at the factor's first level.
    pub base: f64,
    /// Value at its second level.
    pub changed: f64,
    /// Levels of the other factors, the same factors in the same order in every block.
    pub context: Vec<String>,
}

/// An effect with its interactions.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Over all blocks; only meaningful where [`Effect::interaction`] is `None`.
    pub pooled: PairedRatio,
    /// One per other factor with more than one level.
    pub moderators: Vec<Moderator>,
}

/// Another factor, and the effect at each of its levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Moderator {
    /// Index in [`Block::context`].
    pub factor: usize,
    /// p-value of such different ratios between its levels, adjusted for the number of factors tested; absent
    /// when nothing can be tested.
    pub probability_ratio: Option<f64>,
    /// The effect at each level, in the order in which they first appear.
    pub levels: Vec<(String, PairedRatio)>,
    /// Whether the effect depends on this factor: significantly and by more than [`PRACTICAL_RATIO`], or with
    /// too few blocks to test while the ranges of two levels lie on opposite sides of no effect.
    pub differs: bool,
}

impl Effect {
    /// The effect over these blocks; `None` without a valid one.
    pub fn of(blocks: &[Block], seed: u64) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = blocks.iter().map(|block| (block.base, block.changed)).collect();
        let pooled = paired_ratio(&pairs)?;
        let factors = blocks.iter().map(|block| block.context.len()).min().unwrap_or(0);
        let mut moderators: Vec<Moderator> =
            (0..factors).filter_map(|factor| Moderator::of(blocks, factor, seed)).collect();
        let tested: Vec<f64> = moderators.iter().filter_map(|m| m.probability_ratio).collect();
        let mut adjusted = false_discovery_adjusted(&tested).into_iter();
        for moderator in &mut moderators {
            moderator.probability_ratio = moderator.probability_ratio.and_then(|_| adjusted.next());
            moderator.decide();
        }
        Some(Self { pooled, moderators })
    }

    /// The factor with the most significant interaction, if any: then there is no pooled value.
    pub fn interaction(&self) -> Option<&Moderator> {
        let found = self.moderators.iter().filter(|moderator| moderator.differs);
        found.min_by(|one, other| {
            one.probability_ratio.unwrap_or(1.0).total_cmp(&other.probability_ratio.unwrap_or(1.0))
        })
    }

    /// The pooled value of this effect, unless it depends on another factor.
    pub fn single(&self) -> Option<PairedRatio> {
        if self.interaction().is_some() { None } else { Some(self.pooled) }
    }
}

impl Moderator {
    fn of(blocks: &[Block], factor: usize, seed: u64) -> Option<Self> {
        let mut groups: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for block in blocks {
            let pair = (block.base, block.changed);
            match groups.iter_mut().find(|(level, _)| *level == block.context[factor]) {
                Some((_, pairs)) => pairs.push(pair),
                None => groups.push((block.context[factor].clone(), vec![pair])),
            }
        }
        if groups.len() < 2 {
            return None;
        }
        let logs: Vec<Vec<f64>> = groups
            .iter()
            .map(|(_, pairs)| pairs.iter().map(|(base, changed)| (changed / base).ln()).collect())
            .collect();
        let levels =
            groups.into_iter().filter_map(|(level, pairs)| Some((level, paired_ratio(&pairs)?))).collect();
        Some(Self { factor, probability_ratio: groups_differ(&logs, seed), levels, differs: false })
    }

    fn decide(&mut self) {
        let ratios = || self.levels.iter().map(|(_, ratio)| ratio.value);
        let level_ratio = ratios().fold(f64::MIN, f64::max) / ratios().fold(f64::MAX, f64::min);
        let beyond_chance = self.probability_ratio.is_some_and(|probability| probability < SIGNIFICANCE);
        let side = |wanted: fn(&PairedRatio) -> bool| self.levels.iter().any(|(_, ratio)| wanted(ratio));
        let opposite = side(|r| r.count >= 2 && r.high < 1.0) && side(|r| r.count >= 2 && r.low > 1.0);
        self.differs = level_ratio > 1.0 + PRACTICAL_RATIO && (beyond_chance || opposite);
    }
}

/// p-value of such different group means under the null hypothesis: by exact permutation for two groups
/// ([`permutation_test`]), by random permutations of the sum of squares for more. `None` with fewer than two
/// groups or a value that is not finite.
fn groups_differ(groups: &[Vec<f64>], seed: u64) -> Option<f64> {
    let groups: Vec<&Vec<f64>> = groups.iter().filter(|group| !group.is_empty()).collect();
    if let [one, other] = groups.as_slice() {
        return permutation_test(one, other, seed);
    }
    let mut values: Vec<f64> = groups.iter().flat_map(|group| group.iter().copied()).collect();
    if groups.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let between = |values: &[f64]| {
        let mut rest = values;
        let squares = groups.iter().map(|group| {
            let (here, after) = rest.split_at(group.len());
            rest = after;
            let sum: f64 = here.iter().map(|value| value - mean).sum();
            sum * sum / here.len() as f64
        });
        squares.sum::<f64>()
    };
    let observed = between(&values) * (1.0 - 1e-12);
    let mut random = Random::new(seed);
    let mut count = 1u32;
    for _ in 0..ROUNDS {
        random.shuffle(&mut values);
        count += u32::from(between(&values) >= observed);
    }
    Some(f64::from(count) / f64::from(ROUNDS + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(of: &[(&str, &str, f64)]) -> Vec<Block> {
        let block = |(sender, steering, ratio): &(&str, &str, f64)| Block {
            base: 20.0,
            changed: 20.0 * ratio,
            context: vec![(*sender).to_owned(), (*steering).to_owned()],
        };
        of.iter().map(block).collect()
    }

    /// The eight pairs of a run on a machine of two cores: reading on the interrupt core loses a third where
    /// the sender is on it, too, and doubles the rate where it is not. Unpaired and pooled the result was
    /// "+19.2 %".
    #[test]
    fn two_opposite_effects_have_no_single_value() {
        let found = Effect::of(
            &blocks(&[
                ("on the interrupt core", "0", 0.73),
                ("on the interrupt core", "0", 0.66),
                ("on the interrupt core", "1", 0.72),
                ("on the interrupt core", "1", 0.70),
                ("elsewhere", "0", 1.55),
                ("elsewhere", "0", 3.16),
                ("elsewhere", "1", 2.32),
                ("elsewhere", "1", 1.91),
            ]),
            1,
        )
        .unwrap();
        assert_eq!(found.single(), None);
        let depends = found.interaction().unwrap();
        assert_eq!(depends.factor, 0, "on the sender's core, not on the steering");
        // 2 of the 70 combinations of four of eight, two factors: at most twice that.
        assert!(depends.probability_ratio.unwrap() <= 4.0 / 70.0, "{depends:?}");
        let [one, other] = depends.levels.as_slice() else { unreachable!() };
        assert!((one.1.value - 0.70).abs() < 0.01 && (other.1.value - 2.16).abs() < 0.1, "{depends:?}");
    }

    #[test]
    fn one_effect_is_pooled_independent_of_the_other_factors() {
        let same: Vec<(&str, &str, f64)> = (0..8)
            .map(|place| {
                let sender = if place % 2 == 0 { "0" } else { "1" };
                let steering = if place < 4 { "0" } else { "1" };
                (sender, steering, [1.09, 1.11, 1.10, 1.08, 1.12, 1.10, 1.09, 1.11][place])
            })
            .collect();
        let found = Effect::of(&blocks(&same), 1).unwrap();
        let single = found.single().unwrap();
        assert!((single.value - 1.10).abs() < 0.005 && single.excludes_one(), "{single:?}");
        assert_eq!(found.moderators.len(), 2);
    }

    #[test]
    fn opposite_ranges_are_not_pooled_even_where_a_test_is_too_weak() {
        let two = blocks(&[("a", "0", 0.7), ("a", "0", 0.72), ("b", "0", 1.5), ("b", "0", 1.6)]);
        let found = Effect::of(&two, 1).unwrap();
        assert!(found.moderators[0].probability_ratio.unwrap() > 0.3, "2 of 6 combinations");
        assert!(found.single().is_none(), "{found:?}");
    }

    #[test]
    fn a_small_difference_of_effects_does_not_matter() {
        let similar: Vec<_> = (0..20)
            .map(|place| (if place % 2 == 0 { "a" } else { "b" }, "0", 1.10 + 0.02 * f64::from(place % 2)))
            .collect();
        assert!(Effect::of(&blocks(&similar), 1).unwrap().single().is_some());
    }

    #[test]
    fn three_different_groups_are_distinguished_and_equal_ones_are_not() {
        let apart = [vec![1.0, 1.1, 0.9], vec![2.0, 2.1, 1.9], vec![3.0, 3.1, 2.9]];
        assert!(groups_differ(&apart, 1).unwrap() < 0.02);
        let mut random = Random::new(3);
        let mut found = 0;
        for round in 0..200 {
            let groups: Vec<Vec<f64>> =
                (0..3).map(|_| (0..4).map(|_| random.below(1000) as f64).collect()).collect();
            found += u32::from(groups_differ(&groups, round).unwrap() < 0.05);
        }
        assert!(found <= 20, "{found} of 200 differ by chance");
        assert_eq!(groups_differ(&[vec![1.0]], 1), None);
    }
}
