//! Tests of this crate as its users have it: one executable, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod agents;
mod hostile_peers;
mod immediate;
mod peer;
mod pings;
mod verbs_document;
