//! Documents of the workloads as their users have them.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod message;
mod message_facts;
mod overlap;
mod overlap_facts;
