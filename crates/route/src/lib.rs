//! Routes over several gateways: from the description of a fabric to what each
//! host routes by, its proof, its files, its mistakes and its health.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod difference;
pub mod effective;
pub mod fabric;
pub mod forwarding;
pub mod guard;
pub mod lint;
pub mod live;
mod marks;
pub mod outline;
pub mod planner;
pub mod probe_kernel;
pub mod read;
pub mod render;
pub mod watch;
pub mod wire;
