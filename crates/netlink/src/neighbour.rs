//! Neighbours: link-layer addresses of hosts on the same link.

use std::net::IpAddr;

use netlink_packet_route::{
    RouteNetlinkMessage,
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
};

use crate::{NetlinkError, RouteSocket, link::link_address};

/// An entry of the neighbour table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface.
    pub interface: String,
    /// Address.
    pub address: IpAddr,
    /// Link-layer address, `02:00:00:00:00:01`; absent while unresolved.
    pub link_address: Option<String>,
    /// Address resolution failed (`NUD_FAILED`).
    pub failed: bool,
    /// Never resolved: an operator has set it, or its interface has no address resolution (`NUD_PERMANENT`,
    /// `NUD_NOARP`).
    pub is_fixed: bool,
}

/// An entry of the neighbour table that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeighbourChange {
    /// Index of its interface.
    pub interface_index: u32,
    /// The entry, as it is now or was; its interface has no name here.
    pub neighbour: Neighbour,
    /// It is there.
    pub is_there: bool,
}

impl NeighbourChange {
    pub(crate) fn read(message: &NeighbourMessage, is_there: bool) -> Option<Self> {
        let neighbour = read(message, String::new())?;
        Some(Self { interface_index: message.header.ifindex, neighbour, is_there })
    }
}

impl RouteSocket {
    /// Neighbour entries of all interfaces, both families.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let names = self.names()?;
        let query = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let replies = self.dump(query, || "list neighbours".to_owned())?;
        let read = |reply| match reply {
            RouteNetlinkMessage::NewNeighbour(message) => read(&message, names.of(message.header.ifindex)),
            _ => None,
        };
        Ok(replies.into_iter().filter_map(read).collect())
    }
}

fn read(message: &NeighbourMessage, interface: String) -> Option<Neighbour> {
    let (mut address, mut octets) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(found)) => {
                address = Some(IpAddr::V4(*found));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => {
                address = Some(IpAddr::V6(*found));
            }
            NeighbourAttribute::LinkLayerAddress(found) => octets = link_address(found),
            _ => {}
        }
    }
    Some(Neighbour {
        interface,
        address: address?,
        link_address: octets,
        failed: message.header.state == NeighbourState::Failed,
        is_fixed: matches!(message.header.state, NeighbourState::Permanent | NeighbourState::Noarp),
    })
}
