//! Tests over RDMA: rping's exchange, and bandwidth and latency of Send, Write
//! and Read. The verb's options are in `verbs::rdma`, what people see is in
//! `output::rdma`.
//!
//! - [`ping_client`] and [`ping_server`] are the two roles of rping's exchange
//!   ([`rping`]).
//! - [`near`] and [`far`] are the two ends of a test. They agree by messages
//!   ([`agreement`], [`channel`]) on a connection of their own, and then
//!   exchange ([`workload`]) over the queue pairs that carry data ([`lanes`]): as
//!   many messages as pass ([`traffic`]), or one after the other ([`latency`]).
//! - [`perftest`] is the exchange of perftest's programs, both roles.
//! - [`server`] listens, and gives each peer who it wants; [`agent`] opens one for a
//!   controller.

pub mod agent;
pub mod agreement;
pub mod channel;
pub mod error;
pub mod far;
pub mod lanes;
pub mod latency;
pub mod near;
pub mod perftest;
pub mod ping_client;
pub mod ping_server;
pub mod rping;
pub mod samples;
pub mod server;
pub mod traffic;
pub mod wire;
pub mod workload;

pub use error::RdmaError;
