//! Bandwidth and latency of RDMA Send, Write and Read over software iWARP.
//!
//! - [`client`] measures against a [`server`] of this crate. Both negotiate by
//!   messages ([`negotiation`], [`control_channel`]) on a connection of their own
//!   and then exchange data over other queue pairs ([`data_queue_pairs`]): as many
//!   messages as pass, or one after the other ([`generator`]).
//! - [`perftest`] is the protocol of perftest's programs, both roles.
//! - [`rping`] is the protocol of librdmacm's rping, both roles.
#![forbid(unsafe_code)]

pub mod blocking;
pub mod client;
pub mod control_channel;
pub mod data_queue_pairs;
pub mod error;
pub mod generator;
pub mod negotiation;
pub mod perftest;
pub mod rping;
pub mod samples;
pub mod server;

pub use error::RdmaError;
