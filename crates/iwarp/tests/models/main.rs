//! Lock-free synchronisation between threads of the RNIC: the original sources
//! over loom's threads, mutexes and atomics, in every interleaving and with
//! every value that a load may return. A lost wake-up is a deadlock, which loom
//! reports.
//!
//! Atomics of the RNIC that are not covered, with the reason: a queue pair's
//! phase and state, and a driver's number of connections, are written under a
//! mutex and are hints to lock-free readers; the overrun flag of a queue and
//! the stop flags of an engine and a helper are set once; numbers of engines, queue pairs and
//! polls of a filled ring are counters only, as are statistics; a helper's number
//! of requests is read again after each of its wake-ups. Words of registered memory synchronise nothing:
//! `tests/it/memory` accesses them from several threads, also under Miri.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

use clearstream_iwarp::{queue_pair, work};

mod attended;
mod doorbells;
mod gates;
mod holds;
mod rings;

#[path = "../../src/rnic/attendance.rs"]
mod attendance;
#[path = "../../src/rnic/doorbell.rs"]
mod doorbell;
#[path = "../../src/memory/gate.rs"]
mod gate;
#[path = "../../src/rnic/inbox.rs"]
mod inbox;
#[path = "../../src/rnic/ring.rs"]
#[allow(unreachable_pub, reason = "public in the library")]
mod ring;
#[path = "../../src/rnic/ticks.rs"]
mod ticks;

/// Replaces the module of that name.
mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use loom::sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };
}

/// Replaces the module of that name.
mod rnic {
    pub(crate) use clearstream_iwarp::verbs::raw::ListError;

    pub(crate) use crate::doorbell;

    #[derive(Debug, Default)]
    pub(crate) struct CachePadded<T>(pub(crate) T);

    pub(crate) mod shared_receive_queue {
        use clearstream_iwarp::verbs::{PostError, raw::ListError};

        pub(crate) fn post_each<T>(
            requests: impl IntoIterator<Item = T>,
            mut post: impl FnMut(T) -> Result<(), PostError>,
        ) -> Result<(), ListError> {
            for (posted, request) in requests.into_iter().enumerate() {
                post(request).map_err(|error| ListError { posted, error })?;
            }
            Ok(())
        }
    }
}

/// Model of a descriptor: readable from a write until it is read.
struct Descriptor {
    readable: sync::Mutex<bool>,
    rung: sync::Condvar,
}

impl Descriptor {
    fn new() -> Self {
        Self { readable: sync::Mutex::new(false), rung: sync::Condvar::new() }
    }

    fn ring(&self) {
        *self.readable.lock().unwrap() = true;
        self.rung.notify_all();
    }

    fn read(&self) {
        *self.readable.lock().unwrap() = false;
    }

    /// Like poll(2) without a timeout.
    fn poll(&self) {
        let mut readable = self.readable.lock().unwrap();
        while !*readable {
            readable = self.rung.wait(readable).unwrap();
        }
    }
}

/// Explores every interleaving with at most this many preemptions: more find
/// nothing more in practice, and take minutes.
fn explore(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}
