//! The only user of netlink: reads and changes interfaces, addresses, routes, queueing disciplines and
//! drivers. Blocking; a socket belongs to the network namespace of the thread that opened it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod bridge;
mod changes;
pub mod ethtool;
mod generation;
mod hosts_routing;
mod link;
mod link_blackhole;
mod lookup;
mod names;
mod neighbour;
pub mod netdev;
mod netem;
mod nexthop;
pub mod packet_queue;
mod qdisc;
mod reach;
mod refusal;
mod route;
mod route_socket;
mod routes;
mod rule;
mod source_translation;
mod tcp_sockets;

pub use address::LiveAddress;
pub use changes::{Changes, Told};
pub use clearstream_schema::prefix::{ParsePrefixError, Prefix};
pub use link::Interface;
pub use lookup::{Found, Lookups, RouteQuery};
pub use neighbour::{Neighbour, NeighbourChange};
pub use netem::Netem;
pub use nexthop::LiveNexthop;
pub use qdisc::{Discipline, ParseDisciplineError, Root};
pub use reach::Carrier;
pub use refusal::Refusal;
pub use route::Route;
pub use route_socket::{NetlinkError, RouteSocket};
pub use routes::{LiveRoute, Preference};
pub use rule::LiveRule;
pub use source_translation::{marks_are_set, source_translations};
pub use tcp_sockets::TcpSockets;
