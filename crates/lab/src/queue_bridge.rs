//! Queue bridge of a delay line: a namespace with a bridge between the two
//! hosts' interfaces, and netfilter rules that queue the packets that it
//! forwards (`net.bridge.bridge-nf-call-iptables`, Documentation/networking/
//! bridge.rst; linux/netfilter/nfnetlink_queue.h).

use std::{io, path::Path};

use clearstream_netlink::packet_queue::{PacketQueue, queue_forwarded};
use clearstream_schema::lab::LabLink;
use clearstream_sys::{
    document,
    segment_mark::{SECOND_MARK, SegmentMark},
    timestamp::ArrivalStamps,
};

use crate::{LabError, links, node::Node};

const BRIDGE: &str = "bridge";
/// Maximum MTU of a veth interface: the hosts' own ends limit it.
const MTU: u32 = 65_535;
/// Maximum number of queued packets: the BDP of the papers' path in packets of
/// 200 bytes.
const QUEUED_MAX: u32 = 1 << 19;

/// Queue bridge; dropping it removes the namespace.
#[derive(Debug)]
pub(crate) struct QueueBridge {
    node: Node,
    marks: Vec<SegmentMark>,
    _stamps: ArrivalStamps,
}

impl QueueBridge {
    /// Process that holds its namespaces.
    pub(crate) fn pid(&self) -> u32 {
        self.node.pid()
    }

    /// Creates the namespace with its queues; `None` where this kernel lacks
    /// one of the facilities (br_netfilter, nfnetlink_queue, tcx).
    pub(crate) fn start(
        index: usize,
        hosts_file: &Path,
    ) -> Result<Option<(Self, [PacketQueue; 2])>, LabError> {
        let mut node = Node::start(&format!("line{index}"), hosts_file)?;
        // It is no host: IPv6 is disabled so that it sends nothing itself.
        let disable_ipv6 = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"];
        node.write_known_sysctls(&disable_ipv6.map(|key| (key, "1")))?;
        node.network(|netlink| netlink.add_bridge(BRIDGE))?;
        let Ok((queues, stamps)) = node.run(open_queues)? else { return Ok(None) };
        Ok(Some((Self { node, marks: Vec::new(), _stamps: stamps }, queues)))
    }

    /// Creates the hosts' interfaces; they are still down.
    pub(crate) fn connect(&mut self, link: &LabLink, nodes: &mut [Node]) -> Result<(), LabError> {
        let own = self.node.namespaces.net().try_clone();
        let own = own.map_err(LabError::system(format!("keep the namespace of {} open", self.node.name)))?;
        for (number, end) in link.ends.iter().enumerate() {
            let (port, numbers) = (port_name(number), links::interface_numbers());
            links::node_of(nodes, end)?
                .network(|netlink| netlink.add_veth_numbered(&end.interface, &port, &own, numbers))?;
            self.node.network(|netlink| netlink.set_mtu(&port, MTU))?;
            self.node.network(|netlink| netlink.set_bridge(&port, Some(BRIDGE)))?;
            self.node.network(|netlink| netlink.set_up(&port, true))?;
            let mark = self.node.run(|| SegmentMark::attach(numbers[1], number == 1))?;
            self.marks.push(mark.map_err(LabError::system(format!("mark segments on {port}")))?);
        }
        self.node.network(|netlink| netlink.set_mtu(BRIDGE, MTU))?;
        self.node.network(|netlink| netlink.set_up(BRIDGE, true))
    }

    /// Waits until both ports forward.
    pub(crate) fn wait_until_forwarding(&self) -> Result<(), LabError> {
        (0..2).try_for_each(|number| self.node.wait_for(&port_name(number), "brport/state", "3"))
    }

    /// Returns the packets of each direction that the kernel dropped in front
    /// of the line: its queue or the socket of the line was full, or a port's
    /// backlog (`net.core.netdev_max_backlog`).
    pub(crate) fn front_dropped(&self) -> Result<[u64; 2], LabError> {
        let path = Path::new("/proc/thread-self/net/netfilter/nfnetlink_queue");
        let read = || (document::read_text(path, document::DOCUMENT_BYTES), [0, 1].map(backlog_dropped));
        let (queues, [one, two]) = self.node.run(read)?;
        let [forth, back] = dropped(&queues.map_err(LabError::file("read", path))?);
        Ok([forth + one, back + two])
    }
}

fn backlog_dropped(number: usize) -> u64 {
    let path = format!("/sys/class/net/{}/statistics/rx_dropped", port_name(number));
    document::read_text(Path::new(&path), document::DOCUMENT_BYTES)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn port_name(number: usize) -> String {
    format!("port{}", number + 1)
}

/// Opens the queues of the calling thread's namespace, and verifies all other
/// facilities.
fn open_queues() -> io::Result<([PacketQueue; 2], ArrivalStamps)> {
    for family in ["ip", "ip6"] {
        std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{family}tables"), "1")?;
    }
    queue_forwarded(SECOND_MARK)?;
    let queues = [PacketQueue::open(0, QUEUED_MAX)?, PacketQueue::open(1, QUEUED_MAX)?];
    // Loopback has index 1 in every namespace.
    drop(SegmentMark::attach(1, false)?);
    Ok((queues, ArrivalStamps::on()?))
}

/// Parses a line for each queue: number, port, waiting, mode, range, dropped
/// because the queue was full, dropped because the socket was, ...
/// (nfnetlink_queue.c, seq_show).
fn dropped(text: &str) -> [u64; 2] {
    let mut dropped = [0; 2];
    for line in text.lines() {
        let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        if let [number @ 0..=1, _, _, _, _, queue, user, ..] = fields[..] {
            dropped[number as usize] = queue + user;
        }
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_of_the_queue_and_of_the_socket() {
        let text = "    0  12345     3 2    96     4     5       99  1\n    1  12345     0 2    96     0     7        9  1\n";
        assert_eq!(dropped(text), [9, 7]);
        assert_eq!(dropped(""), [0, 0]);
        assert_eq!(dropped("7 1 2 3 4 5 6 7 1\nrubbish\n"), [0, 0]);
    }
}
