//! Interfaces: veth pairs, state, MTU, transmit queue.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVeth, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};

use crate::{NetlinkError, RouteSocket};

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Index in its namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// MTU in bytes.
    pub mtu_bytes: u32,
    /// Administratively up.
    pub up: bool,
    /// Transmit queue in packets.
    pub transmit_queue_count: u32,
    /// Link-layer address, `02:00:00:00:00:01`; absent where the link has none.
    pub link_address: Option<String>,
    /// Index of the bridge, bond or VRF that it belongs to.
    pub master: Option<u32>,
    /// It is a VRF, with this table.
    pub vrf_table: Option<u32>,
}

/// Formats a link-layer address.
pub(crate) fn link_address(octets: &[u8]) -> Option<String> {
    let is_set = octets.iter().any(|&octet| octet != 0);
    let parts: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    is_set.then(|| parts.join(":"))
}

impl RouteSocket {
    /// Every interface of the namespace.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, NetlinkError> {
        let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let replies = self.dump(query, || "list interfaces".to_owned())?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewLink(message) => Some(read(message)),
                _ => None,
            })
            .collect())
    }

    /// The interface called `name`.
    pub fn interface(&mut self, name: &str) -> Result<Interface, NetlinkError> {
        let found = self.interfaces()?.into_iter().find(|interface| interface.name == name);
        found.ok_or_else(|| NetlinkError::NoInterface { name: name.to_owned() })
    }

    /// Creates a veth pair: one end in this namespace, the other in `peer_net`. Neither end is ever visible
    /// anywhere else.
    pub fn add_veth(&mut self, name: &str, peer_name: &str, peer_net: impl AsFd) -> Result<(), NetlinkError> {
        // 0: the kernel chooses.
        self.add_veth_numbered(name, peer_name, peer_net, [0, 0])
    }

    /// As [`Self::add_veth`], with the interface indexes of both ends; each must be free in its namespace.
    ///
    /// The kernel treats a change of carrier as urgent only where an interface's index differs from its
    /// peer's (`linkwatch_urgent_event`, net/core/link_watch.c). Both ends often get the same index when they
    /// are created in two namespaces, and are then shown as up after up to a second.
    pub fn add_veth_numbered(
        &mut self,
        name: &str,
        peer_name: &str,
        peer_net: impl AsFd,
        [number, peer_number]: [u32; 2],
    ) -> Result<(), NetlinkError> {
        let mut peer = LinkMessage::default();
        peer.header.index = peer_number;
        peer.attributes = vec![
            LinkAttribute::IfName(peer_name.to_owned()),
            LinkAttribute::NetNsFd(peer_net.as_fd().as_raw_fd()),
        ];
        let mut message = LinkMessage::default();
        message.header.index = number;
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("create the veth pair {name}, {peer_name}")
        })
    }

    /// Sets an interface up or down.
    pub fn set_up(&mut self, name: &str, up: bool) -> Result<(), NetlinkError> {
        let state = if up { "up" } else { "down" };
        self.set_link(name, Some(up), Vec::new(), || format!("set {name} {state}"))
    }

    /// Sets the MTU in bytes.
    pub fn set_mtu(&mut self, name: &str, mtu_bytes: u32) -> Result<(), NetlinkError> {
        let attributes = vec![LinkAttribute::Mtu(mtu_bytes)];
        self.set_link(name, None, attributes, || format!("set the MTU of {name} to {mtu_bytes}"))
    }

    /// Sets the length of the transmit queue in packets.
    pub fn set_transmit_queue(&mut self, name: &str, count: u32) -> Result<(), NetlinkError> {
        let attributes = vec![LinkAttribute::TxQueueLen(count)];
        self.set_link(name, None, attributes, || format!("set the transmit queue of {name} to {count}"))
    }

    pub(crate) fn set_link(
        &mut self,
        name: &str,
        up: Option<bool>,
        attributes: Vec<LinkAttribute>,
        action: impl FnOnce() -> String,
    ) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = self.interface(name)?.index;
        if let Some(up) = up {
            message.header.change_mask = LinkFlags::Up;
            message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        }
        message.attributes = attributes;
        self.change(RouteNetlinkMessage::SetLink(message), 0, action)
    }
}

fn read(message: LinkMessage) -> Interface {
    let mut interface = Interface {
        index: message.header.index,
        name: String::new(),
        mtu_bytes: 0,
        up: message.header.flags.contains(LinkFlags::Up),
        transmit_queue_count: 0,
        link_address: None,
        master: None,
        vrf_table: None,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu_bytes = mtu,
            LinkAttribute::Address(octets) => interface.link_address = link_address(&octets),
            LinkAttribute::TxQueueLen(count) => interface.transmit_queue_count = count,
            LinkAttribute::Controller(index) => interface.master = (index != 0).then_some(index),
            LinkAttribute::LinkInfo(parts) => interface.vrf_table = parts.iter().find_map(vrf_table),
            _ => {}
        }
    }
    interface
}

/// The table of a VRF (`IFLA_VRF_TABLE`).
fn vrf_table(info: &LinkInfo) -> Option<u32> {
    let LinkInfo::Data(InfoData::Vrf(attributes)) = info else { return None };
    attributes.iter().find_map(|attribute| match attribute {
        InfoVrf::TableId(table) => Some(*table),
        _ => None,
    })
}
