//! Read-only discovery of a Linux host: the report of `inspect`, host descriptions in records and the
//! counters of a flow's sampler.
//!
//! Every reader goes through a [`HostRoot`], so the running machine and a captured tree give the same report.
//! Nothing here changes the host, prints, or fails as a whole: a part that cannot be read is listed, with the
//! reason, in the report's `missing`. [`calls`] are the corresponding calls to an agent.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attribute;
pub mod calls;
pub mod capture;
pub mod counters;
pub mod driver_counters;
mod drivers;
mod inspect;
mod interrupt;
mod kernel;
mod limits;
pub mod memory;
mod missing;
mod nic;
pub mod parse;
mod pci;
pub mod pcie;
pub mod processes;
pub mod queue_counters;
pub mod room;
mod root;
pub mod socket_owners;
pub mod tcp_state;
pub mod terminal;
pub mod thread;
pub mod throttling;
mod topology;

pub use inspect::inspect;
pub use root::{HostRoot, ReadError};
