//! Peers that are connected and send nothing: stopped, or silent by intent. TCP's keepalive does not see them, since
//! their kernel responds.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::{data_queue_pairs::DataQueuePairs, error::RdmaError};

/// Longest silence of a client that has the only place of a server.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for a client's first message.
pub(crate) const FIRST_MESSAGE_LIMIT: Duration = Duration::from_secs(5);
/// Longest time between two pings, or timed calls, of a client: others have places beside it.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// How long nothing has moved on the data connections.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    moved_bytes: u64,
    since: Instant,
}

impl Silence {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, moved_bytes: 0, since: Instant::now() }
    }

    /// The control connection has brought a message.
    pub(crate) fn broken(&mut self) {
        self.since = Instant::now();
    }

    /// Called while there is nothing to do.
    ///
    /// # Errors
    /// Nothing has moved for too long.
    pub(crate) fn check(&mut self, pairs: &DataQueuePairs) -> Result<(), RdmaError> {
        let moved_bytes = pairs.moved_bytes();
        if moved_bytes != self.moved_bytes {
            self.moved_bytes = moved_bytes;
            self.since = Instant::now();
        }
        self.judge(pairs.peer())
    }

    fn judge(&self, peer: SocketAddr) -> Result<(), RdmaError> {
        if self.since.elapsed() < self.limit {
            return Ok(());
        }
        Err(RdmaError::Silent { peer, after: self.limit })
    }
}
