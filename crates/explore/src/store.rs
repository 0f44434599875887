//! The states that a rank owns: packed one after the other, found by a hash table of places.

use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

/// Any number; the same on every rank, since it decides which rank owns a state.
const SEED: u64 = 20;

/// States with the state that each was first reached from.
pub(crate) struct Store {
    state_bytes: usize,
    arena: Vec<u8>,
    table: HashTable<u32>,
    parents: Vec<Parent>,
    hasher: FixedState,
}

/// A state of any rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) rank: u32,
    pub(crate) place: u32,
}

impl Parent {
    /// Of the initial state.
    pub(crate) const NONE: Self = Self { rank: u32::MAX, place: u32::MAX };
}

/// Hash by which states are found, and by which they have their owner.
pub(crate) fn hasher() -> FixedState {
    FixedState::with_seed(SEED)
}

/// The rank that owns a state of this hash: its high bits, as the table uses the low ones.
pub(crate) fn owner(hash: u64, ranks: usize) -> usize {
    ((u128::from(hash) * ranks as u128) >> 64) as usize
}

impl Store {
    pub(crate) fn new(state_bytes: usize) -> Self {
        Self {
            state_bytes,
            arena: Vec::new(),
            table: HashTable::new(),
            parents: Vec::new(),
            hasher: hasher(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.parents.len()
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let table = self.table.capacity() * (size_of::<u32>() + 1);
        self.arena.capacity() + table + self.parents.capacity() * size_of::<Parent>()
    }

    pub(crate) fn state(&self, place: usize) -> &[u8] {
        &self.arena[place * self.state_bytes..][..self.state_bytes]
    }

    pub(crate) fn parent(&self, place: usize) -> Parent {
        self.parents[place]
    }

    /// Its place, where the state is known.
    pub(crate) fn find(&self, state: &[u8]) -> Option<usize> {
        let hash = self.hasher.hash_one(state);
        let found = self.table.find(hash, |place| self.state(*place as usize) == state);
        found.map(|place| *place as usize)
    }

    /// Adds a state; false when it is known.
    pub(crate) fn insert(&mut self, state: &[u8], hash: u64, parent: Parent) -> bool {
        let Self { state_bytes, arena, table, hasher, .. } = self;
        let at = |arena: &Vec<u8>, place: u32| {
            let from = place as usize * *state_bytes;
            from..(from + *state_bytes).min(arena.len())
        };
        let entry = table.entry(
            hash,
            |place| arena[at(arena, *place)] == *state,
            |place| hasher.hash_one(&arena[at(arena, *place)]),
        );
        let hashbrown::hash_table::Entry::Vacant(entry) = entry else { return false };
        entry.insert(self.parents.len() as u32);
        arena.extend_from_slice(state);
        self.parents.push(parent);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept_once_in_the_order_of_their_arrival() {
        let mut store = Store::new(3);
        let hash = |state: &[u8]| hasher().hash_one(state);
        for round in 0..2 {
            for number in 0..10_000_u32 {
                let state = &number.to_le_bytes()[..3];
                let parent = Parent { rank: 1, place: number };
                assert_eq!(store.insert(state, hash(state), parent), round == 0);
            }
        }
        assert_eq!(store.len(), 10_000);
        assert_eq!(store.state(4321), &4321_u32.to_le_bytes()[..3]);
        assert_eq!(store.find(&[0xff, 0, 0]), Some(255));
        assert_eq!(store.find(&[0xff, 0xff, 0xff]), None);
        assert_eq!(store.parent(17), Parent { rank: 1, place: 17 });
        assert!(store.bytes() > 10_000 * (3 + 8));
    }

    #[test]
    fn owners_are_ranks_and_all_of_them() {
        let hasher = hasher();
        let mut counts = [0; 7];
        for number in 0..7000_u32 {
            counts[owner(hasher.hash_one(&number.to_le_bytes()[..]), 7)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
