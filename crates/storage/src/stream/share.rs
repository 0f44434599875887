//! Which rank reads what: in the same run, and in a later one that may have more ranks than wrote, or fewer.

use clearstream_schema::storage::{StreamConfig, StreamReorder};

use super::layout::permuted;
use crate::data::mixed;

/// Transfers that one rank wrote, in the order in which it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Rank that wrote them.
    pub(super) owner: usize,
    /// Number of the first one.
    pub(super) first: u64,
    pub(super) count: u64,
}

/// Pieces of one share of `shares`: what one rank wrote when as many read, else an equal part of all that was
/// written, each transfer in one share.
pub(super) fn pieces(written: &[u64], shares: usize, share: usize) -> Vec<Piece> {
    if shares == written.len() {
        let count = written.get(share).copied().unwrap_or(0);
        return vec![Piece { owner: share, first: 0, count }];
    }
    let all: u128 = written.iter().map(|count| u128::from(*count)).sum();
    let bound = |share: usize| all * share as u128 / shares.max(1) as u128;
    let (from, to) = (bound(share), bound(share + 1));
    let mut before = 0_u128;
    let mut found = Vec::new();
    for (owner, count) in written.iter().enumerate() {
        let behind = before + u128::from(*count);
        let (first, last) = (from.max(before), to.min(behind));
        if first < last {
            let part = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
            found.push(Piece { owner, first: part(first - before), count: part(last - first) });
        }
        before = behind;
    }
    found
}

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
    fn every_transfer_is_read_once_by_any_number_of_ranks() {
        for written in [vec![5, 5, 5], vec![7, 0, 2, 11], vec![1], vec![0, 0]] {
            for shares in 1..9 {
                let mut found: Vec<(usize, u64)> = Vec::new();
                for share in 0..shares {
                    for piece in pieces(&written, shares, share) {
                        found.extend(
                            (piece.first..piece.first + piece.count).map(|index| (piece.owner, index)),
                        );
                    }
                }
                let expected: Vec<(usize, u64)> = written
                    .iter()
                    .enumerate()
                    .flat_map(|(owner, count)| (0..*count).map(move |index| (owner, index)))
                    .collect();
                assert_eq!(found, expected, "{written:?} by {shares}");
            }
        }
    }

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
