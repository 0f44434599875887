//! Support for neighbour probes: interfaces with carrier, and neighbour resolution by the kernel.

use std::{collections::BTreeMap, net::IpAddr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
};

use rustix::io::Errno;

use crate::{NetlinkError, RouteSocket, address::family};

/// An interface from a sender's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carrier {
    /// Index of the interface.
    pub index: u32,
    /// Interface and link are up (`IFF_RUNNING`, netdevice(7)).
    pub running: bool,
    /// MTU in bytes.
    pub mtu_bytes: u32,
}

impl RouteSocket {
    /// Every interface by name. Until the next call this socket knows interfaces by these names: whoever asks for them
    /// again and again has them listed once each time.
    pub fn carriers(&mut self) -> Result<BTreeMap<String, Carrier>, NetlinkError> {
        let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let replies = self.dump(query, || "list interfaces".to_owned())?;
        let read = |reply| match reply {
            RouteNetlinkMessage::NewLink(message) => Some(message),
            _ => None,
        };
        let found: BTreeMap<String, Carrier> =
            replies.into_iter().filter_map(read).filter_map(carrier).collect();
        self.names = Some(found.iter().map(|(name, carrier)| (carrier.index, name.clone())).collect());
        Ok(found)
    }

    /// Makes the kernel resolve a neighbour, or confirm a known one, as if a packet were to be sent to it (`NTF_USE`);
    /// `is_known` says whether the table has an entry, which stays the same one. Not for an entry that is
    /// [fixed](crate::Neighbour::is_fixed): `NTF_USE` takes `NUD_PERMANENT` from it (`__neigh_update`).
    pub fn resolve_neighbour(
        &mut self,
        interface_index: u32,
        address: IpAddr,
        is_known: bool,
    ) -> Result<(), NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = interface_index;
        message.header.state = NeighbourState::None;
        message.header.flags = NeighbourFlags::Use;
        let destination = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        message.attributes.push(NeighbourAttribute::Destination(destination));
        // Whoever made or removed one since it was looked for is right.
        let (flags, raced) =
            if is_known { (0, Errno::NOENT) } else { (NLM_F_CREATE | NLM_F_EXCL, Errno::EXIST) };
        let done = self.change(RouteNetlinkMessage::NewNeighbour(message), flags, || {
            format!("resolve the neighbour {address}")
        });
        match done {
            Err(error) if error.refused_with() == Some(raced.raw_os_error()) => Ok(()),
            done => done,
        }
    }
}

fn carrier(message: LinkMessage) -> Option<(String, Carrier)> {
    let running = message.header.flags.contains(LinkFlags::Up | LinkFlags::Running);
    let index = message.header.index;
    let (mut name, mut mtu_bytes) = (None, 0);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name = Some(found),
            LinkAttribute::Mtu(found) => mtu_bytes = found,
            _ => {}
        }
    }
    Some((name?, Carrier { index, running, mtu_bytes }))
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread::sleep, time::Duration};

    use clearstream_sys::namespace::{Holder, NamespaceSet};

    use super::*;

    /// Compared with `ip`.
    #[test]
    fn root_neighbours_are_resolved_and_carriers_reported() {
        let (here, there) = (Holder::start().unwrap(), Holder::start().unwrap());
        let set = NamespaceSet::of_process(here.pid()).unwrap();
        let peer = NamespaceSet::of_process(there.pid()).unwrap();
        let ip = |set: &NamespaceSet, arguments: &str| {
            let arguments: Vec<&str> = arguments.split_whitespace().collect();
            let output = set.run(|| Command::new("ip").args(arguments).output().unwrap()).unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        set.run(|| RouteSocket::open().unwrap().add_veth("eth0", "eth0", peer.net()).unwrap()).unwrap();
        for (set, address) in [(&set, "10.9.0.1/24"), (&peer, "10.9.0.2/24")] {
            ip(set, &format!("addr add {address} dev eth0"));
            ip(set, "link set eth0 up");
        }
        let mac = ip(&peer, "-brief link show eth0").split_whitespace().nth(2).unwrap().to_owned();
        set.run(|| {
            let mut socket = RouteSocket::open().unwrap();
            let address = "10.9.0.2".parse().unwrap();
            for _ in 0..100 {
                let carrier = socket.carriers().unwrap()["eth0"];
                let is_known = socket.neighbours().unwrap().iter().any(|found| found.address == address);
                socket.resolve_neighbour(carrier.index, address, is_known).unwrap();
                let found = socket.neighbours().unwrap();
                let found = found.iter().find(|found| found.address == address);
                if found.is_some_and(|found| found.link_address.as_ref() == Some(&mac)) && carrier.running {
                    return;
                }
                sleep(Duration::from_millis(50));
            }
            panic!("the neighbour was not found in 5 s");
        })
        .unwrap();
        ip(&peer, "link set eth0 down");
        // The kernel updates a lost carrier from another thread.
        set.run(|| {
            let mut socket = RouteSocket::open().unwrap();
            assert!((0..100).any(|_| {
                sleep(Duration::from_millis(50));
                !socket.carriers().unwrap()["eth0"].running
            }));
        })
        .unwrap();
    }
}
