//! Agents and their control: one session protocol, carried over standard
//! streams (local, lab, ssh) or over TLS 1.3 between paired hosts (daemon).
//!
//! - [`session`] is the protocol as a state machine without I/O or clock, [`frame`] its framing.
//! - [`Peer`] is a controller's handle on an agent, made by [`spawn`] (also for [`ssh_command`]),
//!   [`tls::connect`] and [`memory_pair`].
//! - [`Call`] is what a controller may call on an agent, with its reply, and [`CallEvent`] what an agent
//!   sends unsolicited; engines define theirs and register them as a [`Service`].
//! - [`Services`] are what an agent serves, by [`agent::serve_stdio`] or a [`tls::Server`].
//! - [`pairing`] decides which hosts may connect over TLS.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
mod call;
mod child;
pub mod encoding;
mod error;
mod event;
pub mod frame;
mod link;
pub mod message;
pub mod pairing;
mod peer;
pub mod rate;
mod run;
mod service;
pub mod session;
mod ssh;
mod startup;
#[cfg(test)]
mod test_calls;
pub mod tls;
mod usage;

pub use call::{
    CHANGE_WITHIN, CONNECT_WITHIN, Call, CallEvent, Delivery, Done, MARGIN, READ_WITHIN, Shutdown,
};
pub use child::AGENT_LOG;
pub use error::{PeerError, StartCause};
pub use event::EventSender;
pub use peer::{OnWait, Peer, PeerEvent, memory_pair, spawn, spawn_watched};
pub use run::run_by_ssh;
pub use service::{CallContext, Controller, Registration, Service, Services};
pub use ssh::{quote, ssh, ssh_command};
pub use startup::{OnStart, StartDelay, StartStep};
pub use usage::{Counts, Transferred, Usage};
