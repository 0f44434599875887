//! Addresses of interfaces.

use std::net::{IpAddr, Ipv4Addr};

use clearstream_schema::prefix::Prefix;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
};

use crate::{NetlinkError, RouteSocket, names::Names};

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAddress {
    /// Interface.
    pub interface: String,
    /// The address and its prefix length.
    pub prefix: Prefix,
    /// Protocol number of its owner (`IFA_PROTO`); 0 when unknown.
    pub protocol: u8,
    /// The kernel created no route to its network (`noprefixroute`).
    pub makes_no_route: bool,
    /// It is removed together with the primary address of its network (IPv4, `secondary`).
    pub is_secondary: bool,
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

impl RouteSocket {
    /// Adds an address to an interface. IPv6 addresses are usable at once: duplicate address detection is
    /// skipped (`IFA_F_NODAD`).
    pub fn add_address(&mut self, interface: &str, prefix: Prefix) -> Result<(), NetlinkError> {
        self.add_owned_address(interface, prefix, 0)
    }

    /// Adds an address to an interface and records its owner (`IFA_PROTO`, Linux 5.18; older kernels ignore
    /// the attribute).
    pub fn add_owned_address(
        &mut self,
        interface: &str,
        prefix: Prefix,
        protocol: u8,
    ) -> Result<(), NetlinkError> {
        let message = self.address_message(interface, prefix, protocol)?;
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add the address {prefix} to {interface}")
        })
    }

    /// Removes an address.
    pub fn remove_address(&mut self, interface: &str, prefix: Prefix) -> Result<(), NetlinkError> {
        let message = self.address_message(interface, prefix, 0)?;
        self.change(RouteNetlinkMessage::DelAddress(message), 0, || {
            format!("remove the address {prefix} from {interface}")
        })
    }

    fn address_message(
        &mut self,
        interface: &str,
        prefix: Prefix,
        protocol: u8,
    ) -> Result<AddressMessage, NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = self.interface(interface)?.index;
        message.header.family = family(prefix.address);
        message.header.prefix_len = prefix.length;
        message.attributes =
            vec![AddressAttribute::Address(prefix.address), AddressAttribute::Local(prefix.address)];
        if prefix.address.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        if protocol != 0 {
            message.attributes.push(AddressAttribute::Protocol(protocol.into()));
        }
        Ok(message)
    }

    /// Addresses of all interfaces.
    pub fn all_addresses(&mut self) -> Result<Vec<LiveAddress>, NetlinkError> {
        let names = self.names()?;
        let query = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let replies = self.dump(query, || "list addresses".to_owned())?;
        let read = |reply| match reply {
            RouteNetlinkMessage::NewAddress(message) => read(&message, &names),
            _ => None,
        };
        Ok(replies.into_iter().filter_map(read).collect())
    }

    /// Addresses of an interface.
    pub fn addresses(&mut self, interface: &str) -> Result<Vec<Prefix>, NetlinkError> {
        self.interface(interface)?;
        let all = self.all_addresses()?;
        Ok(all.into_iter().filter(|found| found.interface == interface).map(|found| found.prefix).collect())
    }
}

fn read(message: &AddressMessage, names: &Names) -> Option<LiveAddress> {
    // Local is the local end; Address is the peer's on point-to-point links (IPv4).
    let (mut local, mut other) = (None, None);
    let mut found = LiveAddress {
        interface: names.of(message.header.index),
        prefix: Prefix { address: Ipv4Addr::UNSPECIFIED.into(), length: message.header.prefix_len },
        protocol: 0,
        makes_no_route: false,
        is_secondary: false,
    };
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            AddressAttribute::Protocol(protocol) => found.protocol = u8::from(*protocol),
            AddressAttribute::Flags(flags) => {
                found.makes_no_route = flags.contains(AddressFlags::Noprefixroute);
                found.is_secondary = flags.contains(AddressFlags::Secondary);
            }
            _ => {}
        }
    }
    found.prefix.address = local.or(other)?;
    Some(found)
}
