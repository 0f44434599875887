//! Tests of this crate as its users have it: one executable, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;
mod connections;
mod fabtests;
mod immediate;
mod layout;
mod memory;
mod mpi;
mod programs;
mod semantics;
mod sockets;
mod suites;
