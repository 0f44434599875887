//! Unicast routes of the main table.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType},
};

use crate::{NetlinkError, Prefix, RouteSocket, address::family};

/// A route: where to, and by whom or on which interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Destination network; `0.0.0.0/0` or `::/0` is the default route.
    pub to: Prefix,
    /// Gateway; absent for a network on the link.
    pub via: Option<IpAddr>,
    /// Interface number.
    pub interface_index: Option<u32>,
}

impl RouteSocket {
    /// Adds a route over a gateway to the main table.
    pub fn add_route(&mut self, to: Prefix, via: IpAddr) -> Result<(), NetlinkError> {
        let to = to.network();
        let mut message = RouteMessage::default();
        message.header.address_family = family(to.address);
        message.header.destination_prefix_length = to.length;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Gateway(RouteAddress::from(via))];
        if to.length > 0 {
            message.attributes.push(RouteAttribute::Destination(RouteAddress::from(to.address)));
        }
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add the route {to} via {via}")
        })
    }

    /// Unicast routes of the main table, both families.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let question = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.dump(question, || "list routes".to_owned())?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(message) => read(&message),
                _ => None,
            })
            .collect())
    }
}

fn read(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return None;
    }
    let any: IpAddr = match u8::from(header.address_family) {
        2 => std::net::Ipv4Addr::UNSPECIFIED.into(),
        10 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = Route {
        to: Prefix { address: any, length: header.destination_prefix_length },
        via: None,
        interface_index: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => route.to.address = ip(address)?,
            RouteAttribute::Gateway(address) => route.via = ip(address),
            RouteAttribute::Oif(index) => route.interface_index = Some(*index),
            _ => {}
        }
    }
    Some(route)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
