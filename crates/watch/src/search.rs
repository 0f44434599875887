//! Search for remote hosts with a watch: those alone show TCP and large packets, and prove a gateway in both directions.

use std::{collections::VecDeque, time::Duration};

/// Interval of the search after every candidate was asked once.
const SLOW: Duration = Duration::from_secs(1);

/// The candidates that are no targets, and the search among them.
#[derive(Debug, Clone)]
pub(super) struct Search {
    /// Candidates, those asked longest ago first.
    spare: VecDeque<usize>,
    /// How many are asked in consecutive rounds before the search is slow.
    quick_left: usize,
    slow_at: Duration,
}

impl Search {
    pub(super) fn among(spare: impl IntoIterator<Item = usize>) -> Self {
        Self { spare: spare.into_iter().collect(), quick_left: 0, slow_at: Duration::ZERO }
    }

    /// A target without a watch was found: every candidate is asked soon.
    pub(super) fn begin(&mut self) {
        self.quick_left = self.spare.len();
    }

    /// The candidate to be asked now, if it is time for one.
    pub(super) fn next(&mut self, now: Duration) -> Option<usize> {
        if self.quick_left == 0 && now < self.slow_at {
            return None;
        }
        self.quick_left = self.quick_left.saturating_sub(1);
        self.slow_at = now + SLOW;
        let candidate = self.spare.pop_front()?;
        self.spare.push_back(candidate);
        Some(candidate)
    }

    /// Takes the next candidate for a target that does not respond.
    pub(super) fn replace(&mut self, silent: usize) -> Option<usize> {
        let found = self.spare.pop_front()?;
        self.spare.push_back(silent);
        Some(found)
    }

    /// Takes one that has a watch for a target that has none; whether it was still there.
    pub(super) fn take(&mut self, found: usize, without: usize) -> bool {
        let place = self.spare.iter().position(|candidate| *candidate == found);
        if let Some(place) = place {
            self.spare[place] = without;
        }
        place.is_some()
    }
}
