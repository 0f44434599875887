//! Routes over several gateways: from the description of a fabric to the routing of
//! each host, and a linter for routing.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod difference;
pub mod effective;
pub mod fabric;
pub mod guard;
pub mod lint;
pub mod outline;
pub mod planner;
pub mod probe_kernel;
mod walk;
pub mod ways;

pub use clearstream_routing::live;
