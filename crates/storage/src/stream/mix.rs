//! Which transfers of a mixed phase read: the exact share of every hundred, in an order of the seed.

use super::layout::permuted;

/// Transfers that have the share exactly.
const HUNDRED: u64 = 100;

/// The order of one rank.
#[derive(Debug, Clone)]
pub(super) struct Mix(Box<[bool]>);

impl Mix {
    pub(super) fn new(percent: u8, seed: u64) -> Self {
        Self((0..HUNDRED).map(|place| permuted(place, HUNDRED, seed) < u64::from(percent)).collect())
    }

    pub(super) fn reads(&self, number: u64) -> bool {
        self.0.get((number % HUNDRED) as usize).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundred_has_the_share_in_an_order_of_the_seed() {
        for percent in [1, 30, 50, 99] {
            let [one, other] = [1, 2].map(|seed| Mix::new(percent, seed));
            for begin in [0, 37, 1000] {
                let reads = (begin..begin + 100).filter(|number| one.reads(*number)).count();
                assert_eq!(reads, usize::from(percent));
            }
            let differ = (0..100).filter(|number| one.reads(*number) != other.reads(*number)).count();
            assert!(differ > 0, "{percent}");
            let runs = (1..100).filter(|number| one.reads(*number) != one.reads(number - 1)).count();
            assert!(percent != 50 || runs > 25, "in turns: {runs}");
        }
    }
}
