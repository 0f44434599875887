//! Where packets of a fabric go on a host, compared with where its plan leads them: the
//! packets worth asking about, the answer of the routing model, and the route or rule
//! that decides. `route verify` asks the kernel the same questions, `route lint` the
//! model of a captured host, and `route apply` the model of the host as it will be.

mod applied;
mod cause;
mod conditions;
mod decided;
mod obstacle;
mod questions;
mod shadow;
mod splits;

use std::{collections::BTreeSet, fmt, net::IpAddr};

use clearstream_netlink::LiveRoute;
use clearstream_routing::lookup::{Found, Kind, Lookup, Packet, Verdict};
use clearstream_schema::{
    prefix::Prefix,
    routing::{RouteAction, RouteEntry},
};

pub use self::{
    applied::{applied, protocol},
    cause::{Cause, Plan, altered_nexthop, owner},
    decided::{Buckets, Decided, decided},
    obstacle::obstacle,
    questions::{Population, questions, questions_of},
    shadow::shadowed,
};

/// A next hop: gateway, absent for a neighbour, and interface.
pub type NextHop = (Option<IpAddr>, Option<String>);

/// Where a packet goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By one of these.
    Hops(BTreeSet<NextHop>),
    /// To the host itself.
    Local,
    /// Nowhere, for this reason.
    Nowhere(String),
    /// Not known: a rule depends on this.
    Unknown(String),
}

/// Packets that no route or rule of the host or of its plan distinguishes.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Destination of the plan's route.
    pub network: Prefix,
    /// Source; absent before a socket has one.
    pub source: Option<IpAddr>,
    /// The first destination of a class.
    pub destination: IpAddr,
    /// Hosts' addresses in the class; 0 where no host of the fabric is.
    pub destination_count: usize,
    /// Interface of arrival of what the host forwards.
    pub input: Option<String>,
    /// Mark, 0 for none.
    pub mark: u32,
    /// User whose sockets send it.
    pub user: Option<u32>,
    /// Protocol and ports, where a rule selects by them; TCP from any port to that of NFS otherwise.
    pub ports: Option<(u8, u16, u16)>,
    /// Interface that its socket is bound to.
    pub output: Option<String>,
    /// What such packets depend on, if they are not certain to be sent.
    pub only_if: Option<OnlyIf>,
    /// Where the plan leads it.
    pub planned: Way,
    /// Smallest share of a gateway, 0 to 1.
    pub least_share: f64,
}

/// A property of packets that somebody has to give them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnlyIf {
    /// A mark.
    Marked,
    /// A socket bound to an interface (`SO_BINDTODEVICE`).
    Bound,
}

/// Source ports of what is asked about begin here; the destination port is that of NFS, which is
/// as good as any.
pub(crate) const PORTS: (u8, u16, u16) = (6, 20_000, 2049);
/// User of what is asked about: the kernel sends for mounts, and forwards, as this one.
pub(crate) const USER: u32 = 0;

impl Question {
    /// The packet, for the model.
    pub fn packet(&self) -> Packet<'_> {
        let input = self.input.as_deref();
        Packet { source: self.source, destination: self.destination, mark: self.mark, input }
    }

    /// What is known of it beyond the packet.
    pub fn kind(&self) -> Kind<'_> {
        let (protocol, source, destination) = self.ports.unwrap_or(PORTS);
        Kind {
            user: Some(self.user.unwrap_or(USER)),
            protocol: Some(protocol),
            ports: Some((source, destination)),
            output: self.output.as_deref(),
        }
    }

    /// The answer of a model.
    pub fn ask<'a>(&self, lookup: &Lookup<'a>) -> Found<'a> {
        lookup.find_of(&self.packet(), &self.kind())
    }
}

impl fmt::Display for Question {
    /// `packets to 10.10.0.201 from 10.100.0.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packets to {}", self.destination)?;
        if let Some(source) = self.source {
            write!(f, " from {source}")?;
        }
        if let Some(input) = &self.input {
            write!(f, " that arrive on {input}")?;
        }
        if self.mark != 0 {
            write!(f, " with mark {:#x}", self.mark)?;
        }
        if let Some(user) = self.user {
            write!(f, " of user {user}")?;
        }
        if let Some(output) = &self.output {
            write!(f, " of sockets bound to {output}")?;
        }
        match self.ports {
            Some((protocol, source, destination)) => {
                write!(f, " of protocol {protocol}, ports {source} to {destination}")
            }
            None => Ok(()),
        }
    }
}

impl Way {
    /// Of a verdict; interfaces that a route leaves to the kernel stay open.
    pub fn of(verdict: &Verdict<'_>) -> Self {
        match verdict {
            Verdict::Local => Self::Local,
            Verdict::Link(interface) => Self::Hops(BTreeSet::from([(None, Some((*interface).to_owned()))])),
            Verdict::Gateways(hops, _) => {
                Self::Hops(hops.iter().map(|hop| (Some(hop.via), hop.interface.map(str::to_owned))).collect())
            }
            Verdict::Refused(kind) => Self::Nowhere((*kind).to_owned()),
            Verdict::NoRoute => Self::Nowhere("no route".to_owned()),
            Verdict::Unknown(what) => Self::Unknown(what.clone()),
        }
    }

    /// Whether it is this one, all next hops of it.
    pub fn is_as(&self, planned: &Self) -> bool {
        match (self, planned) {
            (Self::Hops(mine), Self::Hops(wanted)) => {
                mine.len() == wanted.len() && wanted.iter().all(|hop| mine.iter().any(|it| fits(hop, it)))
            }
            (mine, wanted) => mine == wanted,
        }
    }

    /// Next hops of the plan that it lacks.
    pub fn lacking(&self, planned: &Self) -> Vec<NextHop> {
        let (Self::Hops(mine), Self::Hops(wanted)) = (self, planned) else { return Vec::new() };
        wanted.iter().filter(|hop| !mine.iter().any(|it| fits(hop, it))).cloned().collect()
    }
}

/// Whether the kernel's answer is certain to name the route that it took. Of IPv6 it keeps the
/// result of a lookup with the nexthop object, one for each processor (`rt6_get_pcpu_route`,
/// net/ipv6/route.c), so that it may name another route that has the same nexthop.
pub fn names_its_route(live: &LiveRoute, found: &Found<'_>) -> bool {
    let is_shared =
        live.entry.destination.address.is_ipv6() && matches!(live.entry.action, RouteAction::Nexthop(_));
    let key = |route: &RouteEntry| (route.table, route.destination.network(), route.metric);
    !is_shared || found.route.is_some_and(|route| key(route) == key(&live.entry))
}

/// Whether a next hop is the planned one, whose interface may be left to the kernel.
pub fn fits(planned: &NextHop, found: &NextHop) -> bool {
    planned.0 == found.0 && (planned.1.is_none() || found.1.is_none() || planned.1 == found.1)
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |(via, interface): &NextHop| match (via, interface) {
            (Some(via), Some(interface)) => format!("by {via} on {interface}"),
            (Some(via), None) => format!("by {via}"),
            (None, interface) => format!("on {}", interface.as_deref().unwrap_or("any interface")),
        };
        match self {
            Self::Hops(hops) => match (hops.first(), hops.last()) {
                (Some(first), Some(last)) if hops.len() > 2 => {
                    write!(f, "by one of {}, {} to {}", hops.len(), named(first), named(last))
                }
                _ => f.write_str(&hops.iter().map(named).collect::<Vec<_>>().join(" or ")),
            },
            Self::Local => f.write_str("to this host itself"),
            Self::Nowhere(reason) => write!(f, "nowhere ({reason})"),
            Self::Unknown(what) => write!(f, "not known (a rule depends on {what})"),
        }
    }
}
