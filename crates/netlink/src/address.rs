//! Addresses of interfaces.

use std::net::IpAddr;

use clearstream_schema::prefix::Prefix;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
};

use crate::{NetlinkError, RouteSocket};

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

impl RouteSocket {
    /// Gives an interface an address. IPv6 addresses are usable at once: there
    /// is no duplicate to wait for (`IFA_F_NODAD`).
    pub fn add_address(&mut self, interface: &str, prefix: Prefix) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = self.interface(interface)?.index;
        message.header.family = family(prefix.address);
        message.header.prefix_len = prefix.length;
        message.attributes =
            vec![AddressAttribute::Address(prefix.address), AddressAttribute::Local(prefix.address)];
        if prefix.address.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("give {interface} the address {prefix}")
        })
    }

    /// Addresses of an interface.
    pub fn addresses(&mut self, interface: &str) -> Result<Vec<Prefix>, NetlinkError> {
        let index = self.interface(interface)?.index;
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.dump(question, || "list addresses".to_owned())?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
                    // Local is our end; Address is the peer's on point-to-point links (IPv4).
                    let mut found = None;
                    for attribute in &message.attributes {
                        match attribute {
                            AddressAttribute::Local(address) => found = Some(*address),
                            AddressAttribute::Address(address) => found = found.or(Some(*address)),
                            _ => {}
                        }
                    }
                    found.map(|address| Prefix { address, length: message.header.prefix_len })
                }
                _ => None,
            })
            .collect())
    }
}
