//! Plans on directories, on models and on the kernel in namespaces of their own.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;
mod confirm;
mod crash;
mod duty;
mod gone;
mod guard;
mod input;
mod kernel;
mod managers;
mod model;
mod races;
mod rendered;
mod routing;
mod table;

/// The child of tests that end a process: see `common::run_child`.
#[test]
fn child() {
    common::child();
}
