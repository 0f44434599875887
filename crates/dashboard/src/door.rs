//! Connections that are open, and who of them may stay: those that have shown the token, up to a number, and for a
//! short time those that have not.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use clearstream_admission::{Accepting, Limits, Proof, Strangers};
use tokio::task::AbortHandle;

/// Connections without the token; of these one address has no more than half.
const STRANGERS_MAX: usize = 64;
/// Connections with the token.
const KNOWN_MAX: usize = 16;
/// For a request and its response without the token, and for `/metrics`, which needs none.
const STRANGER_TIME: Duration = Duration::from_secs(5);

/// The connections of one server.
#[derive(Debug, Clone)]
pub(crate) struct Door(Arc<Mutex<Inside>>);

#[derive(Debug)]
struct Inside {
    strangers: Strangers,
    connections: HashMap<u64, AbortHandle>,
    last: u64,
}

/// A connection; it has left when this is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    door: Door,
    number: u64,
}

impl Door {
    pub(crate) fn new() -> Self {
        let strangers = Strangers::new(Limits::of_service(STRANGERS_MAX, KNOWN_MAX, STRANGER_TIME));
        Self(Arc::new(Mutex::new(Inside { strangers, connections: HashMap::new(), last: 0 })))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection was accepted; `serve` starts the task that serves it.
    pub(crate) fn enter(&self, peer: SocketAddr, serve: impl FnOnce(Guest) -> AbortHandle) {
        let mut inside = self.inside();
        inside.last += 1;
        let number = inside.last;
        if let Some(displaced) = inside.strangers.enter(number, peer.ip(), Instant::now()) {
            inside.close(displaced);
        }
        // There is one thread: the task begins, and ends, after this.
        let task = serve(Guest { door: self.clone(), number });
        inside.connections.insert(number, task);
    }

    /// accept(2) failed: closes one connection, or pauses.
    pub(crate) fn refused(&self, error: &std::io::Error) {
        let mut inside = self.inside();
        if let Accepting::Close(number) = inside.strangers.refused(error, Instant::now()) {
            inside.close(number);
        }
    }

    /// Whether connections are to be accepted.
    pub(crate) fn is_accepting(&self) -> bool {
        self.inside().strangers.is_accepting(Instant::now())
    }

    /// Closes those whose time is over; when to do that again.
    pub(crate) fn close_overdue(&self) -> Option<Instant> {
        let mut inside = self.inside();
        while let Some(number) = inside.strangers.overdue(Instant::now()) {
            inside.close(number);
        }
        inside.strangers.deadline()
    }
}

impl Inside {
    fn close(&mut self, number: u64) {
        if let Some(task) = self.connections.remove(&number) {
            task.abort();
        }
    }
}

impl Guest {
    /// It has shown the token. False when as many have as may be at a time.
    pub(crate) fn is_admitted(&self) -> bool {
        self.door.inside().strangers.prove(self.number) == Proof::Known
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut inside = self.door.inside();
        inside.strangers.leave(self.number);
        inside.connections.remove(&self.number);
    }
}
