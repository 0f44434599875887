//! Tests of this crate as its users have it: one executable, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod beside;
mod browser;
mod common;
mod effects;
mod figures;
mod gateways;
mod golden;
mod improvement;
mod labels;
mod machines;
mod metrics;
mod overhead;
mod pairs;
mod relation;
mod report;
mod semantics;
mod sentences;
