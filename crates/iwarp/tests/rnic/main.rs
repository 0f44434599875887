//! The software RNIC over loopback: every operation end to end in both ways of
//! progress, set-up with well-behaved and other peers, faults, many queue
//! pairs, and what the safe tier promises of buffers.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod capture;
mod channels;
mod closing;
mod faults;
mod many;
mod older_peers;
mod operations;
mod processes;
mod settling;
mod setup;
mod sides;
mod taken_back;
mod threads;
mod waiting;
