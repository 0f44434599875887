//! The contract of a workload: a name, a configuration, the hosts it needs by role, and a run that returns
//! metrics. A study knows workloads by this contract only; the command registers them, one line each.
//!
//! - [`Workload`] is implemented by a crate; [`AnyWorkload`] is its object-safe form, and [`Registry`] holds
//!   those of a program.
//! - [`Verb`] is what makes it a verb of the command line.
//! - [`HostSet`] are the hosts of a run: name, role, agent and address each.
//! - [`two_sided`] is what measurements between two agents have in common, below the contract.
//! - [`Context`] are the inputs of a run: hosts, a stop flag and the event callback.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod context;
mod environment;
mod hosts;
mod inspect;
mod link_factors;
mod options;
mod registry;
pub mod two_sided;
mod verb;
mod workload;

pub use context::{Context, Event, Sample, Samples, TrialError};
pub use environment::{EnvironmentFactor, Guard};
pub use hosts::{CLIENT, Host, HostSet, PairAddresses, SERVER};
pub use inspect::Inspect;
pub use link_factors::{LinkDelay, LinkRate};
pub use registry::Registry;
pub use verb::Verb;
pub use workload::{AnyWorkload, Placement, Workload, run};
