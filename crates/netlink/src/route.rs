//! Unicast routes of the main table.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
        RouteType,
    },
};

use crate::{NetlinkError, Prefix, RouteSocket, address::family, lookup::ip};

/// A route: destination, and gateway or interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Destination network; `0.0.0.0/0` or `::/0` is the default route.
    pub to: Prefix,
    /// Gateway; absent for an on-link network.
    pub via: Option<IpAddr>,
    /// Interface number.
    pub interface_index: Option<u32>,
}

impl RouteSocket {
    /// Adds a route through a gateway to the main table, with a congestion control where one is given.
    pub fn add_route(
        &mut self,
        to: Prefix,
        via: IpAddr,
        congestion_control: Option<&str>,
    ) -> Result<(), NetlinkError> {
        let to = to.network();
        let mut message = unicast(to);
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(via)));
        if let Some(name) = congestion_control {
            message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::CcAlgo(name.to_owned())]));
        }
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add the route {to} via {via}")
        })
    }

    /// Sets the congestion control (`RTAX_CC_ALGO`) of the connected route of an interface's address:
    /// connections over it start with that one. Unlike the sysctl of a namespace, a route may name one that
    /// is not in the machine's `tcp_allowed_congestion_control`.
    pub fn set_link_congestion_control(
        &mut self,
        interface: &str,
        address: Prefix,
        name: &str,
    ) -> Result<(), NetlinkError> {
        let network = address.network();
        let mut message = unicast(network);
        message.header.protocol = RouteProtocol::Kernel;
        message.header.scope = RouteScope::Link;
        message.attributes.extend([
            RouteAttribute::Oif(self.interface(interface)?.index),
            RouteAttribute::Metrics(vec![RouteMetric::CcAlgo(name.to_owned())]),
        ]);
        if network.address.is_ipv4() {
            message.attributes.push(RouteAttribute::PrefSource(RouteAddress::from(address.address)));
        } else {
            // IP6_RT_PRIO_ADDRCONF: the route created with the address.
            message.header.scope = RouteScope::Universe;
            message.attributes.push(RouteAttribute::Priority(256));
        }
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(RouteNetlinkMessage::NewRoute(message), flags, || {
            format!("set congestion control {name} for {network} on {interface}")
        })
    }

    /// Unicast routes of the main table, both families.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let query = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let replies = self.dump(query, || "list routes".to_owned())?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewRoute(message) => read(&message),
                _ => None,
            })
            .collect())
    }
}

fn unicast(to: Prefix) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to.address);
    message.header.destination_prefix_length = to.length;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    if to.length > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(to.address)));
    }
    message
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
