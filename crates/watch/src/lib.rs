//! The watch over gateways: it probes each of them from end to end, takes out
//! what forwards nothing and puts it back when it does again.
//!
//! - [`way`] decides, without I/O and clock: what comes in are answers, links,
//!   neighbours, sessions and drainings with their times, what comes out are
//!   probes and members.
//! - A probe leaves by the link address of its gateway, past the routing tables,
//!   and names the gateway's address on the remote side; the watch over there
//!   answers by that, likewise past its tables ([`packet`], [`sockets`]). So a
//!   round trip proves one gateway in both directions, and nothing that the
//!   watch does for it outlives the process.
//! - [`desired`] says what routes become without some gateways, and [`kernel`]
//!   has them so: a group is replaced in one step.
//! - [`control`] is the lock and the way to ask; [`metrics`] and [`unit`] are for
//!   those who run it; [`bfd`] reads what routing daemons know.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bfd;
mod control;
mod desired;
mod drained;
mod error;
mod gateway;
mod kernel;
mod loss;
mod metrics;
mod neighbours;
mod network_path;
mod packet;
mod run;
mod setup;
mod sockets;
mod target;
mod tcp;
#[cfg(test)]
mod tests;
mod unit;

pub use bfd::BfdSource;
pub use control::ask;
pub use error::WatchError;
pub use run::{WatchConfig, run};
pub use setup::{WatchedGateway, WatchedWay, ways};
pub use unit::{command_line, unit};
