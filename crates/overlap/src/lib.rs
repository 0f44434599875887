//! Overlap: how much of a core stays free for work while messages move, by the
//! two methods of COMB (W. Lawry, C. Wilson, A. Maccabe, R. Brightwell: "COMB: A
//! Portable Benchmark Suite for Assessing MPI Overlap", Cluster 2002).
//!
//! Work is a loop of counted iterations. Its time alone, divided by the time of
//! the same iterations beside messages, is the availability of the core.
//! - *polling*: the server starts a window of messages and returns each at once;
//!   the client works, and after each interval of work replies to the messages
//!   that arrived.
//! - *post-work-wait*: in each cycle the client posts a window of messages in each
//!   direction, works, and waits for all of them; the server does so without work.
//!
//! [`OverlapAgent`] is the agent part of both sides ([`calls`]), and [`run_on`] is
//! the controller that drives two of them; [`Overlap`] is the workload. Messages
//! go over a transport, TCP or software iWARP; a TCP connection of its own
//! carries the protocol between client and server. With transport MPI the
//! controller starts a job of two ranks instead (`mpi`).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
pub mod calls;
mod check;
mod connect;
mod controller;
mod engine;
mod mpi;
#[cfg(test)]
mod tests;
mod workload;

pub use agent::OverlapAgent;
pub use controller::{OverlapError, OverlapEvent, run_on};
pub use workload::Overlap;

use clearstream_schema::control::{Failure, FailureKind};

/// Creates a failure with its message.
fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}
