//! Counters of what an agent served: calls, and bytes of its tests. A daemon has them as metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Counters over all sessions that share it; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Usage(Arc<Mutex<Counts>>);

/// Sums since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that reached a service, by name and whether it served them.
    pub calls: BTreeMap<(String, bool), u64>,
    /// Bytes by kind of test.
    pub transfers: BTreeMap<&'static str, Transferred>,
}

/// Bytes that this host moved in tests of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Sent.
    pub sent_bytes: u64,
    /// Received.
    pub received_bytes: u64,
}

impl Usage {
    /// Counts a call. Names that no service registered do not come here: a controller could make any number of them.
    pub(crate) fn called(&self, name: &str, is_served: bool) {
        *self.lock().calls.entry((name.to_owned(), is_served)).or_default() += 1;
    }

    /// Counts bytes of a test.
    pub(crate) fn transferred(&self, test: &'static str, sent_bytes: u64, received_bytes: u64) {
        let mut counts = self.lock();
        let sums = counts.transfers.entry(test).or_default();
        sums.sent_bytes = sums.sent_bytes.saturating_add(sent_bytes);
        sums.received_bytes = sums.received_bytes.saturating_add(received_bytes);
    }

    /// The sums of now.
    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
