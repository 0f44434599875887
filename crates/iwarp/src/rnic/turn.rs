//! Turn of a driver: the connections that it polls, and what one pass over them
//! found.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use crate::{
    rnic::{
        link::{Link, Workspace},
        transport::{STAGING_BYTES, Visit},
    },
    stag::QueuePairId,
};

/// State of a turn, owned by the thread that holds the lock.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) workspace: Workspace,
    pub(super) links: Vec<Arc<Link>>,
    /// Indices into `links`, by epoll identifier.
    pub(super) places: HashMap<u64, usize>,
    /// Buffer for connections whose doorbell was rung.
    pub(super) rung: Vec<Arc<Link>>,
    /// Connections with exhausted budget.
    pub(super) backlog: VecDeque<Arc<Link>>,
    /// Deadline of each connection.
    pub(super) deadlines: HashMap<QueuePairId, Instant>,
    pub(super) ready: Vec<u64>,
    /// Whether the limit for many connections is set.
    pub(super) crowded: bool,
    /// Whether the epoll holds the sockets.
    pub(super) holds_sockets: bool,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnOutcome {
    /// Whether there was progress.
    pub(crate) progress: bool,
    /// Whether more can be done without waiting.
    pub(crate) more: bool,
    /// Latest time of the next turn.
    pub(crate) deadline: Option<Instant>,
}

impl Turn {
    /// Allocates the staging buffer, one per driver that has connections.
    pub(super) fn allocate_staging(&mut self) {
        if self.workspace.staging.is_empty() && !self.links.is_empty() {
            self.workspace.staging.resize(STAGING_BYTES, 0);
        }
    }

    /// Records the result of a visit.
    pub(super) fn record_visit(&mut self, id: QueuePairId, visit: Visit, turned: &mut TurnOutcome) {
        turned.progress |= visit.progress;
        turned.more |= visit.more;
        if visit.over {
            self.remove(id);
        }
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, id: QueuePairId) {
        self.deadlines.remove(&id);
        self.backlog.retain(|link| link.id != id);
        let Some(place) = self.places.remove(&u64::from(id.0)) else { return };
        self.links.swap_remove(place);
        if let Some(moved) = self.links.get(place) {
            self.places.insert(u64::from(moved.id.0), place);
        }
    }
}
