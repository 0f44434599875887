//! What the kernel says of changes of its own accord: links, addresses, nexthop objects, rules and neighbours. Of the IPv4
//! routes that go with an interface or an address it says nothing (net/ipv4/fib_frontend.c, `fib_disable_ip`); who has to
//! know them reads them again.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{NetlinkError, neighbour::NeighbourChange};

/// `RTNLGRP_LINK`, `RTNLGRP_NEIGH`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV4_RULE`, `RTNLGRP_IPV6_IFADDR`,
/// `RTNLGRP_IPV6_RULE`, `RTNLGRP_NEXTHOP` (linux/rtnetlink.h).
const GROUPS: [u32; 7] = [1, 3, 5, 8, 9, 19, 32];
/// `RTM_NEWNEIGH` and `RTM_DELNEIGH`.
const NEIGHBOURS: [u16; 2] = [28, 29];
/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// More than the longest message of these groups.
const DATAGRAM_BYTES: usize = 1 << 15;

/// A socket that becomes readable when one of them changes.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
    buffer: Vec<u8>,
}

/// What has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Entries of the neighbour table, as they are now.
    pub neighbours: Vec<NeighbourChange>,
    /// Something else, which is to be read.
    pub others: bool,
}

impl Changes {
    /// Opens it, in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no such socket.
    pub fn open() -> Result<Self, NetlinkError> {
        let fail = |step| move |source| NetlinkError::Socket { step, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(fail("open a socket"))?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(fail("bind"))?;
        socket.set_non_blocking(true).map_err(fail("set to not wait"))?;
        for group in GROUPS {
            socket.add_membership(group).map_err(fail("listen to changes"))?;
        }
        Ok(Self { socket, buffer: Vec::with_capacity(DATAGRAM_BYTES) })
    }

    /// What has changed since the last call.
    pub fn take(&mut self) -> Told {
        let mut told = Told::default();
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => told.read(&self.buffer),
                // Some were lost (ENOBUFS, netlink(7)): then there are some.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    told.others = true;
                }
                Err(_) => return told,
            }
        }
    }
}

impl Told {
    /// Adds the messages of a datagram.
    fn read(&mut self, datagram: &[u8]) {
        let mut rest = datagram;
        while let Ok(header) = NetlinkBuffer::new_checked(rest) {
            let length = header.length() as usize;
            let Some(message) = rest.get(..length).filter(|_| length >= HEADER_BYTES) else { return };
            // Messages are aligned to four bytes (netlink(7), NLMSG_ALIGN).
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            if !NEIGHBOURS.contains(&header.message_type()) {
                self.others = true;
                continue;
            }
            let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message);
            let change = match parsed.map(|parsed| parsed.payload) {
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message))) => {
                    NeighbourChange::read(&message, true)
                }
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(message))) => {
                    NeighbourChange::read(&message, false)
                }
                _ => None,
            };
            self.neighbours.extend(change);
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clearstream_sys::namespace::{Holder, NamespaceSet};

    use super::*;

    #[test]
    fn root_changes_of_links_addresses_objects_rules_and_neighbours_are_told() {
        let holder = Holder::start().unwrap();
        let set = NamespaceSet::of_process(holder.pid()).unwrap();
        set.run(|| {
            let ip = |arguments: &str| {
                let arguments: Vec<&str> = arguments.split_whitespace().collect();
                assert!(Command::new("ip").args(arguments).status().unwrap().success());
            };
            let mut changes = Changes::open().unwrap();
            assert_eq!(changes.take(), Told::default());
            for change in [
                "link add eth0 type veth peer name eth1",
                "addr add 10.9.0.1/24 dev eth0",
                "link set eth1 up",
                "link set eth0 up",
                "nexthop add id 7 via 10.9.0.2 dev eth0",
                "nexthop del id 7",
                "rule add pref 7 table 7",
                "-6 rule add pref 7 table 7",
            ] {
                ip(change);
                assert!(changes.take().others, "{change}");
            }
            for (change, link_address, is_fixed) in [
                (
                    "neigh add 10.9.0.2 lladdr 02:00:00:00:00:07 dev eth0 nud reachable",
                    Some("02:00:00:00:00:07"),
                    false,
                ),
                (
                    "neigh replace 10.9.0.2 lladdr 02:00:00:00:00:08 dev eth0 nud permanent",
                    Some("02:00:00:00:00:08"),
                    true,
                ),
                ("neigh del 10.9.0.2 dev eth0", None, false),
            ] {
                ip(change);
                let told = changes.take().neighbours;
                let last =
                    told.iter().rfind(|told| told.neighbour.address.to_string() == "10.9.0.2").unwrap();
                let neighbour = &last.neighbour;
                let found = neighbour.link_address.as_deref().filter(|_| last.is_there && !neighbour.failed);
                assert_eq!(
                    (found, neighbour.is_fixed && last.is_there),
                    (link_address, is_fixed),
                    "{change}"
                );
            }
        })
        .unwrap();
    }
}
