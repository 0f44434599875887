//! What the kernel says of changes of its own accord: links, addresses and nexthop objects. Of the IPv4 routes that go
//! with an interface or an address it says nothing (net/ipv4/fib_frontend.c, `fib_disable_ip`); who has to know them
//! reads them again.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::NetlinkError;

/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`, `RTNLGRP_NEXTHOP` (linux/rtnetlink.h).
const GROUPS: [u32; 4] = [1, 5, 9, 32];

/// A socket that becomes readable when one of them changes.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
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
        Ok(Self { socket })
    }

    /// Whether something has changed since the last call.
    pub fn take(&mut self) -> bool {
        let mut has_changed = false;
        loop {
            let mut buffer = Vec::with_capacity(1 << 15);
            match self.socket.recv(&mut buffer, 0) {
                Ok(_) => has_changed = true,
                // Some were lost (ENOBUFS, netlink(7)): then there are some.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    has_changed = true;
                }
                Err(_) => return has_changed,
            }
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
    fn root_changes_of_links_addresses_and_nexthops_are_told() {
        let holder = Holder::start().unwrap();
        let set = NamespaceSet::of_process(holder.pid()).unwrap();
        set.run(|| {
            let ip = |arguments: &str| {
                let arguments: Vec<&str> = arguments.split_whitespace().collect();
                assert!(Command::new("ip").args(arguments).status().unwrap().success());
            };
            let mut changes = Changes::open().unwrap();
            assert!(!changes.take());
            for change in [
                "link add eth0 type veth peer name eth1",
                "addr add 10.9.0.1/24 dev eth0",
                "link set eth1 up",
                "link set eth0 up",
                "nexthop add id 7 via 10.9.0.2 dev eth0",
                "nexthop del id 7",
            ] {
                ip(change);
                assert!(changes.take(), "{change}");
            }
        })
        .unwrap();
    }
}
