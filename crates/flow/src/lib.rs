//! Bulk goodput over TCP, UDP and MPTCP.
//!
//! - [`FlowAgent`] is the agent's side, which serves [`calls`]: it opens the data sockets, runs one thread
//!   per flow and direction (module `data`) and one sampler (module `agent`). Data threads perform only
//!   transfers and relaxed stores; everything else is done by the sampler.
//! - [`run`] is the controller's side: it drives two agents, merges their intervals and computes the summary
//!   (module `controller`); [`run_on`] does that with the client and the server of a set of hosts.
//! - Module `adapt` says what the warm-up tries while data flows; `agent::adapter` does it, `controller::adaptation` decides.
//! - [`engine`] is one end of a test for another protocol (`iperf3`): that protocol's sockets and handshakes
//!   with these threads and this sampler.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adapt;
mod agent;
mod all_pairs;
pub mod calls;
mod check;
mod controller;
mod data;
pub mod preamble;
mod schedule;
mod workload;

pub use adapt::Open;
pub use agent::{FlowAgent, engine};
pub use all_pairs::{AllPairs, AllPairsConfig};
pub use controller::{FlowError, FlowEvent, run};
pub use workload::{Flow, run_adapting, run_on};
