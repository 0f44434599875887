//! Labs: network namespaces and links on one machine that stand in for hosts
//! and a wide-area network.
//!
//! A lab is held by its *keeper*, a process of its own that outlives the shell
//! it was started from. The keeper owns one holder process per host (whose
//! namespaces are the host) and per switch, the TUN devices and the threads of
//! the delay lines. Whatever ends the keeper ends all of them: `kill -9` leaves nothing
//! but its state folder, which the next start clears away.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod faults;
pub mod file;
pub mod keeper;
pub mod line;
mod links;
mod middle;
mod node;
mod running;
mod state;
mod switches;
mod sysctl;
mod wire;

pub use error::{LabError, LabErrorKind};
pub use line::limit;
pub use running::{OwnedLab, RunningLab, down, list, open, up, up_owned};
pub use state::INSTANCE_VARIABLE;
