//! The kernel's own answer to where a packet would go (`ip route get`).

use std::net::IpAddr;

use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteVia},
};

use crate::{NetlinkError, RouteSocket, address::family, names::Names};

/// A packet whose way is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
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
}

impl Question {
    /// A packet of this host to `to`.
    pub fn to(to: IpAddr) -> Self {
        Self { to, from: None, mark: 0, output: None, input: None, ports: None }
    }

    /// The same from a source address.
    #[must_use]
    pub fn from(self, from: IpAddr) -> Self {
        Self { from: Some(from), ..self }
    }
}

/// Where the packet would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Gateway; absent for a neighbour.
    pub via: Option<IpAddr>,
    /// Interface.
    pub interface: Option<String>,
    /// Source address that the kernel would choose.
    pub source: Option<IpAddr>,
    /// Table of the route.
    pub table: u32,
}

impl RouteSocket {
    /// Asks where a packet would go. Refused with `ENETUNREACH` where there is
    /// no route, with `EHOSTUNREACH`, `EACCES` or `EINVAL` where a route says
    /// unreachable, prohibit or blackhole.
    pub fn lookup(&mut self, question: &Question) -> Result<Found, NetlinkError> {
        let names = self.names()?;
        let mut message = RouteMessage::default();
        let bits = if question.to.is_ipv4() { 32 } else { 128 };
        message.header.address_family = family(question.to);
        message.header.destination_prefix_length = bits;
        message.header.flags = RouteFlags::LookupTable;
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(question.to)));
        if let Some(from) = question.from {
            message.header.source_prefix_length = bits;
            message.attributes.push(RouteAttribute::Source(RouteAddress::from(from)));
        }
        if question.mark != 0 {
            message.attributes.push(RouteAttribute::Mark(question.mark));
        }
        if let Some(name) = &question.output {
            message.attributes.push(RouteAttribute::Oif(names.index(name)?));
        }
        if let Some(name) = &question.input {
            message.attributes.push(RouteAttribute::Iif(names.index(name)?));
        }
        if let Some((protocol, source, destination)) = question.ports {
            message.attributes.extend([
                RouteAttribute::IpProto(protocol),
                RouteAttribute::Sport(source),
                RouteAttribute::Dport(destination),
            ]);
        }
        let action = || format!("find the way to {}", question.to);
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), 0, action)?;
        let found = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => Some(read(&message, &names)),
            _ => None,
        });
        found.ok_or_else(|| NetlinkError::Garbled("no route in the answer to a lookup".to_owned()))
    }
}

fn read(message: &RouteMessage, names: &Names) -> Found {
    let mut found =
        Found { via: None, interface: None, source: None, table: u32::from(message.header.table) };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Gateway(address) => found.via = ip(address),
            RouteAttribute::Via(RouteVia::Inet6(address)) => found.via = Some((*address).into()),
            RouteAttribute::Oif(index) => found.interface = Some(names.of(*index)),
            RouteAttribute::PrefSource(address) => found.source = ip(address),
            RouteAttribute::Table(table) => found.table = *table,
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
