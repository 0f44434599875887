//! What every workload, present and future, is to the rest of the program: a
//! name, a configuration, the hosts it needs by role, and a run that gives
//! metrics. A study knows workloads by this contract only; the command
//! registers them, one line each.
//!
//! - [`Workload`] is what a crate implements; [`AnyWorkload`] is the same behind
//!   an object-safe face, and [`Registry`] holds those of a program.
//! - [`HostSet`] is the hosts of a run: name, role, agent and address each.
//! - [`Context`] is what a run is given: hosts, a stop flag, and where events go.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod context;
mod environment;
mod hosts;
mod inspect;
mod options;
mod registry;
mod workload;

pub use context::{Context, Event, Sample, TrialError};
pub use environment::{EnvironmentFactor, Guard};
pub use hosts::{CLIENT, Host, HostSet, Lanes, SERVER};
pub use inspect::Inspect;
pub use registry::Registry;
pub use workload::{AnyWorkload, Placement, Workload};
