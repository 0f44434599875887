//! Paths and gateways of a watch (`clearstream route watch`) in this network namespace.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use clearstream_schema::watch::{PathStatus, WatchRequest};

const INTERVAL: Duration = Duration::from_secs(1);

/// The latest status; empty without a watch, and where only root may query it.
#[derive(Debug)]
pub(crate) struct Watched(Arc<Mutex<Vec<PathStatus>>>);

impl Watched {
    /// Queries on a thread of its own, which ends with this: a watch that does not answer delays no sample, not even the
    /// first.
    pub(crate) fn start() -> Self {
        let latest = Arc::new(Mutex::new(Vec::new()));
        let weak = Arc::downgrade(&latest);
        // Without the thread there is no status.
        let _ = thread::Builder::new().name("live-watch".to_owned()).spawn(move || follow(&weak));
        Self(latest)
    }

    pub(crate) fn paths(&self) -> Vec<PathStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn follow(latest: &Weak<Mutex<Vec<PathStatus>>>) {
    while latest.strong_count() > 0 {
        let now = paths_now();
        let Some(latest) = latest.upgrade() else { return };
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = now;
        drop(latest);
        thread::sleep(INTERVAL);
    }
}

fn paths_now() -> Vec<PathStatus> {
    clearstream_watch::query(&WatchRequest::Status).map_or_else(|_| Vec::new(), |status| status.paths)
}
