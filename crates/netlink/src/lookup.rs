//! The kernel's route lookup (`ip route get`).

use std::net::IpAddr;

use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType, RouteVia},
};

use crate::{LiveRoute, NetlinkError, RouteSocket, address::family, names::Names, routes};

/// A packet whose route is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteQuery {
    /// Destination.
    pub to: IpAddr,
    /// Source; the kernel chooses one when absent.
    pub from: Option<IpAddr>,
    /// Mark; 0 for none.
    pub mark: u32,
    /// Interface that the socket is bound to.
    pub output: Option<String>,
    /// Interface of arrival: the packet is forwarded.
    pub input: Option<String>,
    /// Protocol and its ports (source, destination), which choose among several
    /// next hops: 6 for TCP.
    pub ports: Option<(u8, u16, u16)>,
    /// User whose socket sends; that of the caller when absent.
    pub user: Option<u32>,
}

impl RouteQuery {
    /// A local packet to `to`.
    pub fn to(to: IpAddr) -> Self {
        Self { to, from: None, mark: 0, output: None, input: None, ports: None, user: None }
    }

    /// Sets the source address.
    #[must_use]
    pub fn from(self, from: IpAddr) -> Self {
        Self { from: Some(from), ..self }
    }
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Gateway; absent for an on-link destination.
    pub via: Option<IpAddr>,
    /// Interface.
    pub interface: Option<String>,
    /// It is delivered to the host itself.
    pub is_local: bool,
    /// Source address that the kernel would choose.
    pub source: Option<IpAddr>,
    /// Table of the route.
    pub table: u32,
    /// Congestion control that the route names (`congctl`, `RTAX_CC_ALGO`): TCP connections over it start with that one
    /// instead of the default.
    pub congestion_control: Option<String>,
}

/// Many lookups, for which the names of interfaces are read once.
#[derive(Debug)]
pub struct Lookups<'s> {
    socket: &'s mut RouteSocket,
    names: Names,
}

impl Lookups<'_> {
    /// As [`RouteSocket::lookup`].
    pub fn find(&mut self, query: &RouteQuery) -> Result<Found, NetlinkError> {
        let reply = self.socket.route_of(query, RouteFlags::LookupTable, &self.names)?;
        Ok(read(&reply, &self.names))
    }
}

impl RouteSocket {
    /// For lookups one after the other.
    pub fn lookups(&mut self) -> Result<Lookups<'_>, NetlinkError> {
        let names = self.names()?;
        Ok(Lookups { socket: self, names })
    }

    /// Looks up the route of a packet. Fails with `ENETUNREACH` where there is no route, with `EHOSTUNREACH`,
    /// `EACCES` or `EINVAL` for a route of type unreachable, prohibit or blackhole.
    pub fn lookup(&mut self, query: &RouteQuery) -> Result<Found, NetlinkError> {
        self.lookups()?.find(query)
    }

    /// The route of the tables by which a packet goes (`ip route get fibmatch`, Linux 4.13), where it is one
    /// that leads somewhere. Fails as [`lookup`](Self::lookup) does.
    pub fn route_in_effect(&mut self, query: &RouteQuery) -> Result<Option<LiveRoute>, NetlinkError> {
        let names = self.names()?;
        let reply = self.route_of(query, RouteFlags::LookupTable | RouteFlags::FibMatch, &names)?;
        Ok(routes::read(&reply, &names))
    }

    fn route_of(
        &mut self,
        query: &RouteQuery,
        flags: RouteFlags,
        names: &Names,
    ) -> Result<RouteMessage, NetlinkError> {
        let mut message = RouteMessage::default();
        let bits = if query.to.is_ipv4() { 32 } else { 128 };
        message.header.address_family = family(query.to);
        message.header.destination_prefix_length = bits;
        message.header.flags = flags;
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(query.to)));
        if let Some(from) = query.from {
            message.header.source_prefix_length = bits;
            message.attributes.push(RouteAttribute::Source(RouteAddress::from(from)));
        }
        if query.mark != 0 {
            message.attributes.push(RouteAttribute::Mark(query.mark));
        }
        if let Some(name) = &query.output {
            message.attributes.push(RouteAttribute::Oif(names.index(name)?));
        }
        if let Some(name) = &query.input {
            message.attributes.push(RouteAttribute::Iif(names.index(name)?));
        }
        message.attributes.extend(query.user.map(RouteAttribute::Uid));
        if let Some((protocol, source, destination)) = query.ports {
            message.attributes.extend([
                RouteAttribute::IpProto(protocol),
                RouteAttribute::Sport(source),
                RouteAttribute::Dport(destination),
            ]);
        }
        let action = || format!("find the path to {}", query.to);
        let replies = self.query(RouteNetlinkMessage::GetRoute(message), 0, action)?;
        let found = replies.into_iter().find_map(|reply| match reply {
            RouteNetlinkMessage::NewRoute(message) => Some(message),
            _ => None,
        });
        found.ok_or_else(|| NetlinkError::Garbled("no route in the reply to a lookup".to_owned()))
    }
}

fn read(message: &RouteMessage, names: &Names) -> Found {
    let mut found = Found {
        via: None,
        interface: None,
        is_local: message.header.kind == RouteType::Local,
        source: None,
        table: u32::from(message.header.table),
        congestion_control: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => found.via = ip(address),
            RouteAttribute::Via(RouteVia::Inet6(address)) => found.via = Some((*address).into()),
            RouteAttribute::Oif(index) => found.interface = Some(names.of(*index)),
            RouteAttribute::PrefSource(address) => found.source = ip(address),
            RouteAttribute::Table(table) => found.table = *table,
            RouteAttribute::Metrics(metrics) => {
                found.congestion_control = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::CcAlgo(name) => Some(name.clone()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    found
}

pub(crate) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
