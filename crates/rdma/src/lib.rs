//! Bandwidth and latency of RDMA Send, Write and Read over software iWARP, and
//! rping.
//!
//! - [`measure`] is the client of a measurement and [`Server`] the server. They
//!   negotiate by messages on a control channel (modules `negotiation`,
//!   `control_channel`) and generate load on data queue pairs
//!   (`data_queue_pairs`, `generator`).
//! - [`RdmaAgent`] is both sides inside agents ([`calls`]), and [`Agents`]
//!   drives two of them. [`Rdma`] is the workload.
//! - [`VerbsCalls`] is the workload that times single verbs calls (module `verbs`).
//! - [`perftest`] is the protocol of perftest's programs, both roles, around the
//!   same load generator.
//! - [`rping`] is the protocol of librdmacm's rping, both roles.
#![forbid(unsafe_code)]

mod agent;
mod blocking;
pub mod calls;
mod client;
mod control_channel;
mod controller;
mod data_queue_pairs;
mod error;
mod generator;
pub mod negotiation;
pub mod perftest;
pub mod rping;
mod sampler;
mod samples;
mod server;
mod silence;
mod summary;
mod verbs;
mod workload;

pub use agent::RdmaAgent;
pub use client::{Event, measure};
pub use controller::Agents;
pub use error::{AgentError, RdmaError};
pub use negotiation::{Cookie, validate};
pub use server::{BackgroundServer, ExpectedPeer, Served, Server, ServerEvent, ServerOptions, SessionKind};
pub use silence::SILENCE_LIMIT;
pub use verbs::{VERBS_SUMMARY_SCHEMA, VerbsCall, VerbsConfig, VerbsSample, VerbsSummary};
pub use workload::{Rdma, VerbsCalls};
