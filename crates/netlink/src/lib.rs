//! The only user of netlink: what the kernel tells and takes about interfaces,
//! addresses, routes, queueing disciplines and drivers. Blocking; a socket
//! belongs to the network namespace of the thread that opened it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod discipline;
pub mod ethtool;
mod link;
pub mod netdev;
mod qdisc;
mod route;
mod route_socket;

pub use clearstream_schema::prefix::{ParsePrefixError, Prefix};
pub use discipline::{Discipline, ParseDisciplineError, Root};
pub use link::Interface;
pub use qdisc::Netem;
pub use route::Route;
pub use route_socket::{NetlinkError, RouteSocket};
