//! Sessions at a time of those that need no proof: a bounded number, of which one source has half at most.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{Source, strangers::descriptors};

/// Places that sessions take until their guard is dropped.
#[derive(Debug, Clone)]
pub struct Places {
    most: usize,
    taken: Arc<Mutex<Vec<Source>>>,
}

/// A taken place.
#[derive(Debug)]
#[must_use]
pub struct Place {
    source: Source,
    places: Places,
}

impl Places {
    /// So many places, or fewer where the process may not have this many times as many descriptors (RLIMIT_NOFILE,
    /// getrlimit(2)).
    pub fn new(most: usize, descriptors_of_one: u64) -> Self {
        let share = usize::try_from(descriptors() / descriptors_of_one.max(1)).unwrap_or(usize::MAX);
        Self { most: most.min(share).max(2), taken: Arc::default() }
    }

    /// Takes one; `None` when all, or those of one source, are taken.
    pub fn take(&self, address: IpAddr) -> Option<Place> {
        let source = Source::from(address);
        let mut taken = self.locked();
        let own = taken.iter().filter(|one| **one == source).count();
        if taken.len() >= self.most || own >= self.most / 2 {
            return None;
        }
        taken.push(source);
        Some(Place { source, places: self.clone() })
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Source>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.locked();
        if let Some(at) = taken.iter().position(|one| *one == self.source) {
            taken.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_has_half_and_what_ends_is_given_back() {
        let places = Places::new(8, 1);
        let from = |last: u8| places.take(IpAddr::from([192, 0, 2, last]));
        let mut one: Vec<Place> = (0..4).map(|_| from(1).unwrap()).collect();
        assert!(from(1).is_none());
        let other: Vec<Place> = (2..6).map(|last| from(last).unwrap()).collect();
        assert!(from(9).is_none(), "all are taken");
        one.pop();
        assert!(from(9).is_some());
        drop((one, other));
        assert!(places.locked().is_empty());
        assert_eq!(Places::new(64, u64::MAX).most, 2, "descriptors are few");
    }
}
