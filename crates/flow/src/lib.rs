//! Bulk goodput over TCP, UDP and MPTCP.
//!
//! - [`FlowAgent`] is the agent's side, which serves [`calls`]: it makes the data
//!   sockets, runs one thread per flow and direction (module `data`) and one
//!   sampler beside them (module `agent`). Data threads do nothing but transfers
//!   and relaxed stores; everything else is the sampler's.
//! - [`run`] is the controller's side: it drives two agents, merges their
//!   intervals and computes the summary (module `controller`).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
pub mod calls;
mod check;
mod controller;
mod data;
mod preamble;
mod schedule;
mod workload;

pub use agent::FlowAgent;
pub use controller::{FlowError, FlowEvent, run};
pub use workload::Flow;

use clearstream_schema::control::{Failure, FailureKind};

/// A failure with its message.
fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}
