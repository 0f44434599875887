//! Allocation order of STag indices, and their hash.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Number of indices; the highest is one less.
pub(super) const INDICES: u32 = 1 << 24;
const HALF_BITS: u32 = 12;
const HALF: u32 = (1 << HALF_BITS) - 1;
const ROUNDS: usize = 4;

/// Permutation of all indices: an index is reused only after all others, so
/// that a deregistered STag stays invalid for as long as possible, and one STag
/// does not reveal the next. (RFC 5042, section 6.1, lists guessed STags among
/// the attacks.) Index 0 is never used: a faulty peer is most likely to send
/// it.
pub(super) struct Order {
    next: u32,
    keys: [u64; ROUNDS],
}

impl Order {
    pub(super) fn new() -> Self {
        // The standard library's random keys, once per table.
        let random = RandomState::new();
        Self { next: 0, keys: std::array::from_fn(|round| random.hash_one(round)) }
    }

    /// Returns the next index.
    pub(super) fn next(&mut self) -> u32 {
        loop {
            let index = self.permuted(self.next);
            self.next = (self.next + 1) % INDICES;
            if index != 0 {
                return index;
            }
        }
    }

    /// Feistel network of 24 bits: bijective whatever its rounds compute.
    fn permuted(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF_BITS, number & HALF);
        for key in self.keys {
            (left, right) = (right, left ^ mix(right, key));
        }
        left << HALF_BITS | right
    }
}

fn mix(half: u32, key: u64) -> u32 {
    let product = (u64::from(half) ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((product ^ (product >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 52) as u32 & HALF
}

/// Hasher of indices, which are already random: one multiplication spreads
/// them.
#[derive(Default)]
pub(super) struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::{INDICES, Order};

    #[test]
    #[cfg_attr(miri, ignore = "sixteen million steps")]
    fn every_index_but_zero_comes_once() {
        let mut order = Order::new();
        let mut seen = vec![false; INDICES as usize];
        for _ in 1..INDICES {
            let index = order.next() as usize;
            assert!(!seen[index], "index {index} twice");
            seen[index] = true;
        }
        assert!(!seen[0]);
    }
}
