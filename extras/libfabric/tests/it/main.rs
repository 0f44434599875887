//! Tests of this crate as its users have it: one executable, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;
mod endpoints;
mod fabtests;
#[path = "../../../verbs/tests/it/common/mod.rs"]
#[allow(dead_code, reason = "the tests of extras/verbs use all of it")]
mod hosts;
mod layout;
mod mpi;
