//! Synchronisation primitives of the modules that are model-checked:
//! `tests/models` replaces these names by loom's and explores every
//! interleaving.

pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
