//! What threads wait and tell each other by, in the parts that are checked in
//! every order in which threads can run: there (`tests/models`) the same names
//! are loom's.

pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
