//! Test support for several crates. A dev-dependency only: nothing here is linked into a program.
//!
//! It depends on `schema` and `sys` alone, so that every crate above them can use it in its tests without a
//! second copy of its own types.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

pub mod again;
pub mod fabric;
pub mod flow;
pub mod lab;
pub mod listening;
pub mod namespace;
pub mod pcap;
