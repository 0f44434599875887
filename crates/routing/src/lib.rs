//! What a host does with a packet, by what it routes by alone: the lookup of
//! its route, forwarding, source validation, and the choice among several next
//! hops. The planner's simulation, the linter's and the choice of source ports
//! share it.
//!
//! The model itself is published:
//! [`HostRouting`](clearstream_schema::routing::HostRouting). [`live`] reads it
//! from the running host or a captured one.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod live;
pub mod lookup;
pub mod marks;
pub mod multipath;
pub mod node;
