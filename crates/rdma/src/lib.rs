//! Bandwidth and latency of RDMA Send, Write and Read over software iWARP, and
//! rping.
//!
//! - [`measure`] is the client of a measurement and [`Server`] the server. They
//!   negotiate by messages on a control channel (modules `negotiation`,
//!   `control_channel`) and generate load on data queue pairs
//!   (`data_queue_pairs`, `generator`).
//! - [`RdmaAgent`] opens a server for the controller of an agent.
//! - [`perftest`] is the protocol of perftest's programs, both roles, around the
//!   same load generator.
//! - [`rping`] is the protocol of librdmacm's rping, both roles.
#![forbid(unsafe_code)]

mod agent;
mod blocking;
mod client;
mod control_channel;
mod data_queue_pairs;
mod error;
mod generator;
mod negotiation;
pub mod perftest;
pub mod rping;
mod samples;
mod server;
mod summary;

pub use agent::{Listening, RdmaAgent, Serve};
pub use client::{Event, measure};
pub use error::RdmaError;
pub use negotiation::{Cookie, validate};
pub use server::{BackgroundServer, ExpectedPeer, Served, Server, ServerEvent, ServerOptions};
