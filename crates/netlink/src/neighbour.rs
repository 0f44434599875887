//! Neighbours: link addresses of those on the same link.

use std::net::IpAddr;

use netlink_packet_route::{
    RouteNetlinkMessage,
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
};

use crate::{NetlinkError, RouteSocket, link::link_address, names::Names};

/// An entry of the neighbour table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface.
    pub interface: String,
    /// Address.
    pub address: IpAddr,
    /// Link address, `02:00:00:00:00:01`; absent while it is not known.
    pub link_address: Option<String>,
    /// It was asked for and did not answer.
    pub failed: bool,
}

impl RouteSocket {
    /// Neighbours of all interfaces that were spoken to, both families.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let names = self.names()?;
        let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.dump(question, || "list neighbours".to_owned())?;
        let read = |answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => read(&message, &names),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(read).collect())
    }
}

fn read(message: &NeighbourMessage, names: &Names) -> Option<Neighbour> {
    // Those without an address resolution are no neighbours: loopback, multicast.
    if message.header.state == NeighbourState::Noarp {
        return None;
    }
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
        interface: names.of(message.header.ifindex),
        address: address?,
        link_address: octets,
        failed: message.header.state == NeighbourState::Failed,
    })
}
