//! Labs: network namespaces and links on one machine that emulate hosts and a
//! wide-area network.
//!
//! The *keeper* of a lab is a process of its own that outlives the shell it was
//! started from. It owns one holder process per host (whose namespaces are the
//! host) and per switch, the TUN devices and the threads of the delay lines.
//! When the keeper exits, for any reason, all of them end: `kill -9` leaves
//! only its state folder, which the next start removes.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod faults;
pub mod file;
pub mod keeper;
pub mod line;
mod links;
mod mounts;
mod node;
mod protocol;
mod queue_bridge;
mod running;
mod services;
mod state;
mod switches;
mod sysctl;

pub use error::LabError;
pub use line::limit;
pub use running::{OwnedLab, RunningLab, down, list, open, up, up_owned};
pub use state::INSTANCE_VARIABLE;
