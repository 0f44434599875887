//! Where each rank's transfers are: IOR's segments, blocks and transfers, in order or in a random one.

use clearstream_schema::storage::StreamConfig;
use serde::{Deserialize, Serialize};

use crate::data::mixed;

/// Layout of the files of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    ranks: u64,
    transfer: u64,
    block: u64,
    /// Transfers of a rank.
    count: u64,
    is_shared: bool,
    seed: Option<u64>,
}

impl Layout {
    /// `seed` is that of an iteration, the same on all ranks.
    pub(super) fn new(config: &StreamConfig, ranks: usize, seed: u64) -> Self {
        Self {
            ranks: ranks as u64,
            transfer: config.transfer.0,
            block: config.block.0,
            count: config.transfer_count(),
            is_shared: !config.file_per_process,
            seed: config.random_offsets.then_some(seed),
        }
    }

    /// Bytes of a block.
    pub(super) fn block(&self) -> u64 {
        self.block
    }

    /// Transfers of a rank that writes all.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Offset in its file of the transfer that a rank does as number `index`; a random order is one of the first `of`
    /// transfers. A shared file has in each segment a block of every rank, in their order.
    pub(super) fn offset(&self, owner: usize, index: u64, of: u64) -> u64 {
        let place = match self.seed {
            Some(seed) => permuted(index, of, seed ^ (owner as u64) << 32),
            None => index,
        };
        if !self.is_shared {
            return place * self.transfer;
        }
        let per_block = self.block / self.transfer;
        let (segment, within) = (place / per_block, place % per_block);
        segment * self.ranks * self.block + owner as u64 * self.block + within * self.transfer
    }

    /// Bytes of a file that is whole.
    pub(super) fn file_bytes(&self) -> u64 {
        let own = self.count * self.transfer;
        if self.is_shared { own * self.ranks } else { own }
    }
}

/// The place of `index` in a permutation of 0 to `count`, in constant memory: a Feistel network of four rounds
/// over the next power of four, walked until the result is in range (J. Black, P. Rogaway: "Ciphers with
/// Arbitrary Finite Domains", 2002).
pub(super) fn permuted(index: u64, count: u64, seed: u64) -> u64 {
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let mut value = index;
    loop {
        let (mut left, mut right) = (value >> half, value & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (mixed(right ^ mixed(seed ^ round)) & mask));
        }
        value = left << half | right;
        if value < count {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clearstream_schema::ByteCount;

    use super::*;

    fn config() -> StreamConfig {
        StreamConfig { transfer: ByteCount(10), block: ByteCount(30), segments: 2, ..StreamConfig::default() }
    }

    /// As drawn in IOR's user guide: a segment has the blocks of all ranks, a block its transfers.
    #[test]
    fn a_shared_file_has_segments_of_blocks_of_transfers() {
        let layout = Layout::new(&config(), 2, 0);
        let of = |rank| {
            (0..layout.count).map(|index| layout.offset(rank, index, layout.count)).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [0, 10, 20, 60, 70, 80]);
        assert_eq!(of(1), [30, 40, 50, 90, 100, 110]);
        assert_eq!(layout.file_bytes(), 120);
        let own = Layout::new(&StreamConfig { file_per_process: true, ..config() }, 2, 0);
        assert_eq!(
            (0..own.count).map(|index| own.offset(1, index, own.count)).collect::<Vec<_>>(),
            [0, 10, 20, 30, 40, 50]
        );
        assert_eq!(own.file_bytes(), 60);
    }

    #[test]
    fn random_offsets_are_all_of_them_once_and_differ_by_seed() {
        let random =
            |seed| Layout::new(&StreamConfig { random_offsets: true, segments: 50, ..config() }, 3, seed);
        let (one, other) = (random(1), random(2));
        let of = |layout: &Layout, rank| {
            (0..150).map(|index| layout.offset(rank, index, layout.count)).collect::<Vec<_>>()
        };
        let all: BTreeSet<u64> = (0..3).flat_map(|rank| of(&one, rank)).collect();
        assert_eq!(all, (0..450).map(|place| place * 10).collect(), "of all ranks, each place once");
        assert_ne!(of(&one, 0), of(&other, 0));
        let in_order: Vec<u64> = {
            let mut sorted = of(&one, 0);
            sorted.sort_unstable();
            sorted
        };
        assert_ne!(of(&one, 0), in_order);
        for count in [1, 2, 3, 1000] {
            let places: BTreeSet<u64> = (0..count).map(|index| permuted(index, count, 7)).collect();
            assert_eq!(places, (0..count).collect(), "{count}");
        }
    }
}
