//! What a host does now: counters, queues, TCP, connections with their limits, and gateways, once per interval.
//!
//! A [`Collector`] reads the host it runs on; [`ReadLive`] is the call by which a controller reads another one. Each
//! sample has the differences since the one before, by the host's monotonic clock: a late sample has a longer
//! interval, and nothing is counted twice or left out. Nothing here prints or draws.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod calls;
mod collector;
mod connections;
mod totals;
mod watched;

pub use calls::{LiveAgent, ReadLive};
pub use collector::{Collector, CollectorOptions};
pub use totals::Totals;
