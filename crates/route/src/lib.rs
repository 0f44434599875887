//! Routes over several gateways: from the description of a fabric to what each
//! host routes by, and its mistakes.
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

pub use clearstream_routing::live;
