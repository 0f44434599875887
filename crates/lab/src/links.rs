//! Links between hosts: veth pairs, delay lines, and veth pairs with netem.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use clearstream_netlink::{Netem, NetlinkError, Prefix, ethtool::Ethtool};
use clearstream_schema::lab::{DelayLineStats, LabHost, LabLink, LinkBackend, LinkEnd};
use clearstream_sys::{document, tun::Tun};

use crate::{
    LabError,
    line::{
        model::{DEFAULT_QUEUE_NS, LinkModel},
        relay::Relay,
    },
    node::Node,
    queue_bridge::QueueBridge,
};

/// Queue length of a TUN device. A delay line empties it in each turn; the
/// length covers a thread without a core, which then drops packets that waited
/// for too long.
const TUN_QUEUE_COUNT: u32 = 10_000;

/// Creates a link. The interfaces are up and have their addresses afterwards.
/// Returns the delay line, if it is one.
pub(crate) fn make(
    index: usize,
    link: &LabLink,
    hosts_file: &Path,
    nodes: &mut [Node],
) -> Result<Option<Line>, LabError> {
    let line = match link.effective_backend() {
        LinkBackend::DelayLine => Some(make_delay_line(index, link, hosts_file, nodes)?),
        LinkBackend::Netem => {
            make_veth(link, nodes)?;
            add_netem(index, link, nodes)?;
            None
        }
        LinkBackend::Veth | LinkBackend::Auto => {
            make_veth(link, nodes)?;
            None
        }
    };
    Ok(line)
}

/// Gives an existing link another delay or rate.
pub(crate) fn change(
    index: usize,
    link: &LabLink,
    line: Option<&Line>,
    nodes: &mut [Node],
) -> Result<(), LabError> {
    match (line, link.backend) {
        (Some(line), _) => {
            line.relay.change(LinkModel::from(link));
            Ok(())
        }
        (None, LinkBackend::Netem) => add_netem(index, link, nodes),
        (None, _) => Err(LabError::Unsupported {
            what: format!("link[{index}] is a veth pair, which has neither delay nor rate"),
            remedy: "use a lab whose links have a delay or a rate, or backend = \"delay-line\"".to_owned(),
        }),
    }
}

/// A delay line and the drop counters of its interfaces at its last reset.
#[derive(Debug)]
pub(crate) struct Line {
    relay: Relay,
    /// Bridge with netfilter queues; absent where packets are copied.
    bridge: Option<QueueBridge>,
    front_before: [u64; 2],
}

impl Line {
    /// Process that holds its namespaces, where it has any.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.bridge.as_ref().map(QueueBridge::pid)
    }

    /// Resets the counters.
    pub(crate) fn reset(&mut self, link: &LabLink, nodes: &mut [Node]) -> Result<(), LabError> {
        self.front_before = self.front_dropped(link, nodes)?;
        self.relay.reset();
        Ok(())
    }

    /// Returns the statistics of both directions.
    fn stats(
        &self,
        index: usize,
        link: &LabLink,
        nodes: &mut [Node],
    ) -> Result<[DelayLineStats; 2], LabError> {
        let [one, two] = [&link.ends[0].host, &link.ends[1].host].map(String::as_str);
        let ([forth, back], load) = (self.relay.counters(), self.relay.load());
        let now = self.front_dropped(link, nodes)?;
        let front = |end: usize| now[end].saturating_sub(self.front_before[end]);
        Ok([forth.stats(index, [one, two], load, front(0)), back.stats(index, [two, one], load, front(1))])
    }

    fn front_dropped(&self, link: &LabLink, nodes: &mut [Node]) -> Result<[u64; 2], LabError> {
        match &self.bridge {
            Some(bridge) => bridge.front_dropped(),
            None => interface_dropped(link, nodes),
        }
    }

    /// Waits until the line forwards packets. A TUN device does at once.
    pub(crate) fn wait_until_up(&self, link: &LabLink, nodes: &mut [Node]) -> Result<(), LabError> {
        let Some(bridge) = &self.bridge else { return Ok(()) };
        wait_until_up(&link.ends, nodes)?;
        bridge.wait_until_forwarding()
    }
}

/// Returns the packets dropped by the interfaces in front of a delay line, of
/// each direction: a TUN device whose queue is full counts `tx_dropped`.
fn interface_dropped(link: &LabLink, nodes: &mut [Node]) -> Result<[u64; 2], LabError> {
    let mut of = |end: &LinkEnd| {
        let path = Path::new("/sys/class/net").join(&end.interface).join("statistics/tx_dropped");
        let text = node_of(nodes, end)?.run(|| document::read_text(&path, document::DOCUMENT_BYTES))?;
        // A removed interface drops nothing more.
        Ok::<u64, LabError>(text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    };
    Ok([of(&link.ends[0])?, of(&link.ends[1])?])
}

/// Sets MTU, addresses and steering of the ends, and brings them up.
pub(crate) fn bring_up(
    ends: &[LinkEnd],
    mtu: u32,
    hosts: &[LabHost],
    nodes: &mut [Node],
) -> Result<(), LabError> {
    for end in ends {
        let node = node_of(nodes, end)?;
        node.network(|netlink| netlink.set_mtu(&end.interface, mtu))?;
        node.network(|netlink| netlink.set_up(&end.interface, true))?;
        let host = hosts.iter().find(|host| host.name == end.host);
        let control = host.and_then(|host| host.congestion_control.as_deref());
        // Validated with the file.
        for prefix in end.addresses.iter().filter_map(|text| text.parse::<Prefix>().ok()) {
            node.network(|netlink| netlink.add_address(&end.interface, prefix))?;
            if let Some(name) = control {
                node.network(|netlink| netlink.set_link_congestion_control(&end.interface, prefix, name))?;
            }
        }
        if end.receive_cores.is_some() {
            node.set_receive_cores(&end.interface, end.receive_cores.as_ref())?;
        }
    }
    Ok(())
}

/// Waits until veth ends are operational (`operstate`, RFC 2863's
/// ifOperStatus).
pub(crate) fn wait_until_up(ends: &[LinkEnd], nodes: &mut [Node]) -> Result<(), LabError> {
    ends.iter().try_for_each(|end| node_of(nodes, end)?.wait_for(&end.interface, "operstate", "up"))
}

/// Returns the statistics of the delay lines, both directions, in the order of
/// the links.
pub(crate) fn stats(
    links: &[LabLink],
    lines: &[Option<Line>],
    nodes: &mut [Node],
) -> Result<Vec<DelayLineStats>, LabError> {
    let mut stats = Vec::new();
    for (index, (link, line)) in links.iter().zip(lines).enumerate() {
        if let Some(line) = line {
            stats.extend(line.stats(index, link, nodes)?);
        }
    }
    Ok(stats)
}

/// Returns the host of an end.
pub(crate) fn node_of<'a>(nodes: &'a mut [Node], end: &LinkEnd) -> Result<&'a mut Node, LabError> {
    nodes.iter_mut().find(|node| node.name == end.host).ok_or_else(|| no_host(end))
}

fn no_host(end: &LinkEnd) -> LabError {
    LabError::NoHost { lab: String::new(), host: end.host.clone(), known: String::new() }
}

fn make_veth(link: &LabLink, nodes: &mut [Node]) -> Result<(), LabError> {
    let [one, two] = &link.ends;
    let peer = node_of(nodes, two)?.namespaces.net().try_clone();
    let peer = peer.map_err(LabError::system(format!("keep the namespace of {} open", two.host)))?;
    let node = node_of(nodes, one)?;
    let numbers = interface_numbers();
    node.network(|netlink| netlink.add_veth_numbered(&one.interface, &two.interface, &peer, numbers))?;
    link.ends.iter().try_for_each(|end| set_gro(end, link.gro, nodes))
}

/// Returns interface indices for both ends of a veth pair: different ones, or
/// their carrier would be detected up to a second late ([`add_veth_numbered`]).
/// Unique in a lab, so that they are free everywhere in it.
///
/// [`add_veth_numbered`]: clearstream_netlink::RouteSocket::add_veth_numbered
pub(crate) fn interface_numbers() -> [u32; 2] {
    // The kernel allocates indices from 1 in each namespace.
    static NEXT: AtomicU32 = AtomicU32::new(100);
    let number = NEXT.fetch_add(2, Ordering::Relaxed);
    [number, number + 1]
}

/// Enables or disables GRO of a veth interface.
pub(crate) fn set_gro(end: &LinkEnd, gro: bool, nodes: &mut [Node]) -> Result<(), LabError> {
    let interface = end.interface.as_str();
    let set = || Ethtool::open().and_then(|mut ethtool| ethtool.set_feature(interface, "rx-gro", gro));
    node_of(nodes, end)?.run(set)?.map_err(|error| LabError::Unsupported {
        what: format!("host {}: cannot set gro = {gro} on {interface}: {error}", end.host),
        remedy: "leave gro out of the file, or write the value that it has".to_owned(),
    })
}

/// Creates a line with netfilter queues, where the kernel supports it and no
/// losses within GSO packets are needed; else one that copies packets.
fn make_delay_line(
    index: usize,
    link: &LabLink,
    hosts_file: &Path,
    nodes: &mut [Node],
) -> Result<Line, LabError> {
    let failed = LabError::system("start the thread of a delay line");
    let held = if link.loss_ratio == 0.0 { QueueBridge::start(index, hosts_file)? } else { None };
    if let Some((mut bridge, queues)) = held {
        bridge.connect(link, nodes)?;
        let relay = Relay::start_held(queues, LinkModel::from(link), link.seed).map_err(failed)?;
        return Ok(Line { relay, bridge: Some(bridge), front_before: [0, 0] });
    }
    let mut open = |end: &LinkEnd| {
        let node = node_of(nodes, end)?;
        let tun = node.run(|| Tun::open(&end.interface))?.map_err(|error| tun_error(end, error))?;
        node.network(|netlink| netlink.set_transmit_queue(&end.interface, TUN_QUEUE_COUNT))?;
        Ok::<Tun, LabError>(tun)
    };
    let ends = [open(&link.ends[0])?, open(&link.ends[1])?];
    let relay = Relay::start(ends, LinkModel::from(link), link.seed).map_err(failed)?;
    Ok(Line { relay, bridge: None, front_before: [0, 0] })
}

fn tun_error(end: &LinkEnd, error: std::io::Error) -> LabError {
    // ENOENT: no such file; ENODEV, ENXIO: a file without a driver.
    match error.raw_os_error() {
        Some(2 | 6 | 19) => LabError::Unsupported {
            what: "a link with delay, rate or loss needs /dev/net/tun, which is missing".to_owned(),
            remedy: "load the module (modprobe tun), or give the container this device".to_owned(),
        },
        _ => LabError::system(format!("create the TUN device {} on {}", end.interface, end.host))(error),
    }
}

/// Adds netem to both ends. Jitter must not reorder, so a link without a rate
/// gets one that is never reached: with a rate, netem sends packets in order
/// (sch_netem.c, netem_enqueue).
fn add_netem(index: usize, link: &LabLink, nodes: &mut [Node]) -> Result<(), LabError> {
    const NEVER_REACHED_BPS: u64 = 8_000_000_000_000;
    let rate_bps = link.rate.map(|rate| rate.0).or((link.jitter.0 > 0).then_some(NEVER_REACHED_BPS));
    let netem = Netem {
        delay_ns: link.delay.0,
        jitter_ns: link.jitter.0,
        loss_ratio: link.loss_ratio,
        rate_bps,
        limit_count: netem_limit(link),
    };
    for end in &link.ends {
        let outcome = node_of(nodes, end)?.netlink.set_netem(&end.interface, &netem);
        outcome.map_err(|error| netem_error(index, end, error))?;
    }
    Ok(())
}

/// Returns netem's queue limit in packets, which includes those in flight: the
/// queueing time at the rate in packets of the MTU; without a rate as many as
/// 100 Gb/s need.
fn netem_limit(link: &LabLink) -> u32 {
    let rate_bps = u128::from(link.rate.map_or(100_000_000_000, |rate| rate.0));
    let queue_ns = link.queue.map_or(DEFAULT_QUEUE_NS, |queue| queue.0);
    let time_ns = u128::from(link.delay.0 + link.jitter.0 + queue_ns);
    let packets = rate_bps * time_ns / (8_000_000_000 * u128::from(link.mtu.max(1)));
    u32::try_from(packets).unwrap_or(u32::MAX).max(1000)
}

fn netem_error(index: usize, end: &LinkEnd, error: NetlinkError) -> LabError {
    const ENOENT: i32 = 2;
    if error.refused_with() != Some(ENOENT) {
        return LabError::network(&end.host)(error);
    }
    LabError::Unsupported {
        what: format!("link[{index}].backend is \"netem\", and this kernel has no netem"),
        remedy: "write \"delay-line\", or load the module (modprobe sch_netem)".to_owned(),
    }
}
