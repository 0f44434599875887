//! Messages over plain TCP, or between MPI ranks: latency and bandwidth by message size.
//!
//! [`MessageAgent`] is the agent part of both sides ([`calls`]), and [`run_on`] is
//! the controller that drives two of them; [`Message`] is the workload.
//!
//! With transport MPI the controller starts a job of two ranks instead (`mpi`).
//!
//! Measurement kinds, on one connection with one thread per side:
//! - *ping-pong*: the client sends a message and waits until it has come back.
//!   Every round trip is timed by the client's monotonic clock; a one-way
//!   latency is half of it. Throughput is size / mean one-way latency, as
//!   NetPIPE computes it.
//! - *stream*: the client sends a window of messages, one system call each, and
//!   waits for an acknowledgement of 4 bytes, which the server sends when its
//!   application has received all of them (as the OSU micro-benchmarks do).
//! - *bidirectional*: both sides concurrently send and receive a window, and
//!   both acknowledge.
//!
//! Number of iterations: the warm-up of each size doubles its iterations until
//! its time is up; the last of them determines how many fit into the duration.
//! Slow paths get at least ten, unless these would take ten times the duration.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
pub mod calls;
mod check;
pub mod connection;
mod controller;
mod engine;
mod mpi;
mod workload;

pub use agent::MessageAgent;
pub use controller::{MessageError, MessageEvent, run_on};
pub use engine::{Damage, Traffic};
pub use workload::Message;

use clearstream_schema::control::{Failure, FailureKind};

/// Creates a failure with its message.
fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}
