//! Every type that ClearStream publishes: configurations, measured facts,
//! documents and the messages between controller and agent.
//!
//! Rules: a *configuration* carries its unit in
//! the value (`"17ms"`, `"1MiB"`, `"19Gb/s"`), so that option, study key and
//! record have the same spelling; a *measured number* carries its unit in the key
//! (`_bps` bits/s, `_bytes`, `_ns`, `_ratio`, `_count`). An absent key means
//! "not measured"; zero means zero. This crate does no I/O.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod all_pairs;
pub mod config;
pub mod congestion;
pub mod connections;
pub mod control;
pub mod counters;
pub mod diagnosis;
pub mod dscp;
pub mod event;
pub mod exit;
pub mod fabric;
pub mod failure;
pub mod flow;
pub mod gateways;
pub mod host;
pub mod hosts;
pub mod human;
pub mod improvement;
pub mod indirection;
pub mod json;
pub mod lab;
pub mod line_rate;
pub mod live;
pub mod mpi;
pub mod notice;
pub mod outcome;
pub mod plan;
pub mod prefix;
pub mod probe;
pub mod provenance;
pub mod published;
pub mod rdma;
pub mod record;
pub mod route_plan;
pub mod routing;
pub mod scope;
pub mod semantics;
pub mod storage;
pub mod study;
pub mod tcp_info;
pub mod tune;
pub mod units;
pub mod watch;

/// Derives the JSON schema of a type. Only tests need it, and half of this crate's code would be schemas: without debug
/// assertions nothing is derived.
#[cfg(not(debug_assertions))]
pub use clearstream_schema_derive::JsonSchema;
/// What has a JSON schema, in builds that make schemas.
#[cfg(debug_assertions)]
pub trait WithSchema: schemars::JsonSchema {}
#[cfg(debug_assertions)]
impl<T: schemars::JsonSchema> WithSchema for T {}
/// What has a JSON schema, in builds that make schemas: this one does not.
#[cfg(not(debug_assertions))]
pub trait WithSchema {}
#[cfg(not(debug_assertions))]
impl<T> WithSchema for T {}

pub use dscp::Dscp;
pub use exit::ExitCode;
#[cfg(debug_assertions)]
pub use schemars::JsonSchema;
pub use units::{BitRate, ByteCount, CoreList, CountRange, DataKind, SizeRange, TimeSpan};
