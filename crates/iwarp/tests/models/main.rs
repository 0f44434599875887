//! What threads of the RNIC tell each other without a mutex that both hold: the
//! sources themselves, over loom's threads, mutexes and atomics, in every order
//! in which threads can run and every value that a load may see. A wake-up that
//! is lost is a deadlock, which loom reports.
//!
//! Atomics of the RNIC that are not here, and why they need not be: a queue
//! pair's age and state, and a driver's number of connections, are written under
//! a mutex and are hints to who reads them without it; that a queue overran and
//! that an engine is to stop are said once and for all; numbers of engines, queue
//! pairs and looks are only counted. Words of registered memory are no flags:
//! `tests/memory` has threads at them, also under Miri.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

use clearstream_iwarp::{queue_pair, work};

mod doorbells;
mod gates;
mod rings;

#[path = "../../src/rnic/doorbell.rs"]
mod doorbell;
#[path = "../../src/memory/gate.rs"]
mod gate;
#[path = "../../src/rnic/inbox.rs"]
mod inbox;
#[path = "../../src/rnic/ring.rs"]
#[allow(unreachable_pub, reason = "public in the library")]
mod ring;

/// Stands for the module of that name.
mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use loom::sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };
}

/// Stands for the module of that name.
mod rnic {
    pub(crate) use clearstream_iwarp::verbs::raw::ListError;

    pub(crate) use crate::doorbell;

    #[derive(Debug, Default)]
    pub(crate) struct Apart<T>(pub(crate) T);

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

/// A descriptor that is readable from when it was rung until it is read.
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

    /// As poll(2) with no time limit.
    fn poll(&self) {
        let mut readable = self.readable.lock().unwrap();
        while !*readable {
            readable = self.rung.wait(readable).unwrap();
        }
    }
}

/// Goes through every order with at most so many switches of threads that have
/// not ended by themselves to wait: more find nothing more in practice, and cost
/// minutes.
fn in_every_order(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}
