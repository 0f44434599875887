//! The generic netlink family `netdev` (Documentation/netlink/specs/netdev.yaml,
//! Linux 6.8): which NAPI instance serves which receive queue.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ethtool::message::{Reply, attributes, dump_request, dumped, number, put, reply, request};

/// Maximum wait for the kernel's reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY` and their attributes.
const CONTROL_FAMILY: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `NETDEV_CMD_QUEUE_GET` and `NETDEV_A_QUEUE_*`.
const QUEUE_GET: u8 = 10;
const QUEUE: u16 = 1;
const INTERFACE: u16 = 2;
const DIRECTION: u16 = 3;
const NAPI: u16 = 4;
/// `NETDEV_QUEUE_TYPE_RX`.
const RECEIVE: u32 = 0;

/// A netlink socket of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netdev {
    socket: Socket,
    family: u16,
}

impl Netdev {
    /// Opens the socket and resolves the family; `None` where the kernel has none.
    pub fn open() -> Option<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC).ok()?;
        // Without extended acknowledgements: an error is not reported here, what the kernel does not provide
        // is absent.
        socket.bind_auto().ok()?;
        socket.connect(&SocketAddr::new(0, 0)).ok()?;
        let mut netdev = Self { socket, family: CONTROL_FAMILY };
        let sequence = 1;
        let out = request(CONTROL_FAMILY, GET_FAMILY, sequence, |out| put(out, FAMILY_NAME, b"netdev\0"));
        netdev.socket.send(&out, 0).ok()?;
        let Reply::Data(body) = reply(&netdev.receive()?, &out) else { return None };
        let id =
            attributes(&body).find(|(kind, _)| *kind == FAMILY_ID).and_then(|(_, value)| number(value))?;
        netdev.family = u16::try_from(id).ok()?;
        Some(netdev)
    }

    /// NAPI instance of each receive queue that has one, of the interface with this index. Empty where the
    /// driver does not report it.
    pub fn receive_napi(&mut self, interface: u32) -> BTreeMap<u32, u32> {
        self.query(interface).unwrap_or_default()
    }

    fn query(&mut self, interface: u32) -> Option<BTreeMap<u32, u32>> {
        let sequence = interface.wrapping_add(2);
        let out = dump_request(self.family, QUEUE_GET, sequence, |out| {
            put(out, INTERFACE, &interface.to_ne_bytes());
        });
        self.socket.send(&out, 0).ok()?;
        let mut found = BTreeMap::new();
        loop {
            let datagram = self.receive()?;
            let (objects, last) = dumped(&datagram, sequence)?;
            for object in objects {
                let values: BTreeMap<u16, u32> =
                    attributes(object).filter_map(|(kind, value)| Some((kind, number(value)?))).collect();
                let ours =
                    values.get(&INTERFACE) == Some(&interface) && values.get(&DIRECTION) == Some(&RECEIVE);
                if let (true, Some(&queue), Some(&napi)) = (ours, values.get(&QUEUE), values.get(&NAPI)) {
                    found.insert(queue, napi);
                }
            }
            if last {
                return Some(found);
            }
        }
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout =
                Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return None,
                Ok(_) => return self.socket.recv_from_full().ok().map(|(datagram, _)| datagram),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instances have numbers above those of sockets' cores
    /// (`MIN_NAPI_ID`, include/net/busy_poll.h: above the number of CPUs), one
    /// per queue at most, and loopback has none.
    #[test]
    fn queues_have_distinct_instances() {
        let Some(mut netdev) = Netdev::open() else {
            panic!("this test needs the netdev family, which came with Linux 6.8")
        };
        for entry in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
            let Ok(index) = std::fs::read_to_string(entry.path().join("ifindex")) else { continue };
            let found = netdev.receive_napi(index.trim().parse().unwrap());
            let queues = std::fs::read_dir(entry.path().join("queues")).map_or(0, Iterator::count);
            assert!(found.len() <= queues, "{:?}: {found:?}", entry.file_name());
            assert!(found.values().all(|id| *id > 1), "{found:?}");
            assert!(entry.file_name() != "lo" || found.is_empty());
        }
        assert!(netdev.receive_napi(u32::MAX >> 1).is_empty(), "no such interface");
    }
}
