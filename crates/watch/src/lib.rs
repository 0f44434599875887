//! Health monitoring of gateways: the watch probes each of them end to end, withdraws
//! those that do not forward from the next hops, and restores them when they recover.
//!
//! - [`network_path`] is the state machine, without I/O and clock. Its inputs are
//!   replies, links, neighbours, sessions and drains with their times; its outputs are
//!   probes and members.
//! - Probes differ in transport, size and port ([`probe_kind`]), and the losses of each kind are counted apart
//!   ([`streaks`]). [`search`] prefers remote hosts that have a watch ([`target`]).
//! - A probe is sent to the link address of its gateway, bypassing the routing tables,
//!   and names the gateway's address on the remote network. The remote watch replies
//!   through that address, also bypassing its tables ([`packet`], [`sockets`]). A round
//!   trip thus verifies one gateway in both directions, and leaves no state behind.
//! - [`desired`] computes the next hops without the withdrawn gateways, and [`kernel`]
//!   applies them: a group is replaced in one step.
//! - [`control`] is the lock and the control socket; [`unit`] is for operation; [`bfd`] reads the sessions of routing daemons.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bfd;
mod control;
mod desired;
mod drained;
mod error;
mod gateway;
mod kernel;
mod loss;
mod neighbours;
mod network_path;
pub mod packet;
mod ports;
mod probe_kind;
mod run;
mod search;
mod setup;
mod sockets;
mod streaks;
mod target;
mod tcp;
#[cfg(test)]
mod tests;
mod unit;

pub use bfd::BfdSource;
pub use control::query;
pub use error::WatchError;
pub use kernel::AddedAddress;
pub use run::{Standing, WatchConfig, empty_status, run};
pub use setup::{WatchedGateway, WatchedPath, watched_paths};
pub use unit::{command_line, unit};
