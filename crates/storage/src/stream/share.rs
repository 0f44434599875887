//! Which share of what was written a rank reads.

use clearstream_schema::storage::{StreamConfig, StreamReorder};

use super::layout::permuted;
use crate::data::mixed;

/// The share that a rank reads.
pub(super) fn owner(config: &StreamConfig, rank: usize, hosts: &[String], iteration: u32) -> usize {
    let count = hosts.len().max(1);
    match config.reorder {
        StreamReorder::None => rank,
        StreamReorder::Constant => {
            // As IOR: by the ranks of a host.
            let of_host = hosts.iter().filter(|host| Some(*host) == hosts.first()).count();
            let offset = config.reorder_offset.map_or(of_host, |offset| offset as usize);
            (rank + offset) % count
        }
        StreamReorder::Random => {
            let seed = mixed(config.seed ^ (u64::from(iteration) + 1));
            permuted(rank as u64, count as u64, seed) as usize
        }
    }
}

/// Whether a rank reads what its own host wrote.
pub(super) fn reads_own_host(config: &StreamConfig, hosts: &[String], iteration: u32) -> bool {
    (0..hosts.len()).any(|rank| hosts.get(owner(config, rank, hosts, iteration)) == hosts.get(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_reorder_reads_from_the_next_host_and_random_from_everybody_once() {
        let hosts: Vec<String> = ["a", "a", "b", "b"].map(str::to_owned).to_vec();
        let config = |reorder| StreamConfig { reorder, ..StreamConfig::default() };
        let of = |config: &StreamConfig, iteration| {
            (0..4).map(|rank| owner(config, rank, &hosts, iteration)).collect::<Vec<_>>()
        };
        assert_eq!(of(&config(StreamReorder::None), 0), [0, 1, 2, 3]);
        let constant = config(StreamReorder::Constant);
        assert_eq!(of(&constant, 0), [2, 3, 0, 1]);
        let further = StreamConfig { reorder_offset: Some(3), ..constant.clone() };
        assert_eq!(of(&further, 0), [3, 0, 1, 2]);
        let random = config(StreamReorder::Random);
        for iteration in 0..5 {
            let mut owners = of(&random, iteration);
            owners.sort_unstable();
            assert_eq!(owners, [0, 1, 2, 3], "nothing is read twice");
        }
        let seeds = (0..5).map(|seed| StreamConfig { seed, ..random.clone() });
        let orders: std::collections::BTreeSet<_> = seeds.map(|config| of(&config, 0)).collect();
        assert!(orders.len() > 1, "the seed changes the order");
        assert!(!reads_own_host(&constant, &hosts, 0));
        // Ranks in turns on the hosts, and ranks of one host.
        let cyclic: Vec<String> = ["a", "b", "a", "b"].map(str::to_owned).to_vec();
        assert!(reads_own_host(&constant, &cyclic, 0));
        assert!(reads_own_host(&constant, &hosts[..2], 0));
    }
}
