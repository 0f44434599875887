//! Agents and their control: one session protocol, carried over standard
//! streams (local, lab, ssh) or over TLS 1.3 between paired hosts (daemon).
//!
//! - [`session`] is the protocol as a state machine without I/O or clock,
//!   [`frame`] its framing.
//! - [`Peer`] is a controller's handle on an agent, made by [`spawn`] (also
//!   for [`ssh_command`]), [`tls::connect`] and [`memory_pair`].
//! - [`Handler`] is what an agent can do; [`agent::serve_stdio`] or a
//!   [`tls::Server`] serve it.
//! - [`pairing`] decides which hosts may talk over TLS.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
mod child;
pub mod encoding;
mod error;
mod event;
pub mod frame;
mod link;
pub mod pairing;
mod peer;
#[cfg(test)]
mod peer_tests;
pub mod rate;
pub mod session;
mod ssh;
pub mod tls;

pub use agent::Handler;
pub use error::{PeerError, StartCause};
pub use event::{EventSender, QUEUE_BYTES};
pub use peer::{OnWait, Peer, memory_pair, spawn};
pub use ssh::ssh_command;
