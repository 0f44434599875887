//! MTU and IPoIB mode: equal on one link, and configured where they differ along a
//! path.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{
    fabric::InfinibandMode,
    prefix::Prefix,
    routing::{Located, Place, RoutingInterface},
    tune::{Finding, FindingClass, Severity},
};

use super::super::{
    Facts, View, With, finding,
    view::{is_of_the_link, is_private},
};

/// An interface on a network.
pub(super) struct On<'v, 'a> {
    /// Number of the host.
    pub(super) number: usize,
    pub(super) host: &'v View<'a>,
    pub(super) address: IpAddr,
    pub(super) interface: &'a RoutingInterface,
}

/// Interfaces by network, without those that each host has for itself.
pub(super) fn by_network<'v, 'a>(facts: &'v Facts<'a>) -> BTreeMap<Prefix, Vec<On<'v, 'a>>> {
    let mut networks: BTreeMap<Prefix, Vec<On<'_, '_>>> = BTreeMap::new();
    for (number, host) in facts.hosts.iter().enumerate() {
        for interface in host.routing.interfaces.iter().filter(|interface| interface.name != "lo") {
            for own in interface.addresses.iter().map(|own| own.value) {
                let (network, address) = (own.network(), own.address);
                if own == Prefix::host(address) || is_of_the_link(network) {
                    continue;
                }
                networks.entry(network).or_default().push(On { number, host, address, interface });
            }
        }
    }
    networks.retain(|_, members| !is_private(members.iter().map(|on| (on.number, on.address))));
    networks
}

/// Interfaces of one network that do not agree.
pub(super) fn on_one_link(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let networks = by_network(facts);
    let mut reported = BTreeSet::new();
    for (network, members) in &networks {
        let described = facts.fabric.network_of(*network);
        let mtu = |on: &On<'_, '_>| on.interface.mtu.as_ref().map(|mtu| mtu.value);
        // An interface with several addresses in a network counts once.
        let mut names = BTreeSet::new();
        let once: Vec<&On<'_, '_>> =
            members.iter().filter(|on| names.insert((on.number, on.interface.name.as_str()))).collect();
        let expected =
            described.and_then(|network| network.mtu).or_else(|| most(once.iter().filter_map(|on| mtu(on))));
        let mode = |on: &On<'_, '_>| on.interface.infiniband_mode.as_ref().map(|mode| mode.value);
        let expected_mode = described
            .and_then(|network| network.infiniband_mode)
            .or_else(|| most(once.iter().filter_map(|on| mode(on)).map(ByRank)).map(|ByRank(mode)| mode));
        for on in members {
            let name = (on.host.subject.name.as_str(), on.interface.name.as_str());
            if let (Some(expected), Some(mtu)) = (expected, &on.interface.mtu)
                && mtu.value != expected
                && reported.insert((name, "mtu"))
            {
                found.push(mtu_differs(on, mtu, expected, *network, described.is_some()));
            }
            if let (Some(expected), Some(mode)) = (expected_mode, &on.interface.infiniband_mode)
                && mode.value != expected
                && reported.insert((name, "mode"))
            {
                found.push(mode_differs(on, mode, expected, *network));
            }
        }
    }
}

/// The value that most have; of equally many the largest.
fn most<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by_key(|(value, count)| (*count, *value)).map(|(value, _)| value)
}

/// Modes in an order, so that they can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByRank(InfinibandMode);

impl ByRank {
    fn rank(self) -> u8 {
        u8::from(self.0 == InfinibandMode::Connected)
    }
}

impl Ord for ByRank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for ByRank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn mtu_differs(
    on: &On<'_, '_>,
    mtu: &Located<u32>,
    expected: u32,
    network: Prefix,
    by_fabric: bool,
) -> Finding {
    let others = if by_fabric { "the fabric gives it" } else { "the other interfaces on it have" };
    let message = format!(
        "{} bytes on {network}, where {others} {expected}: packets larger than the smaller of the two are \
         lost on the link without any message, so that connections open and then stand still",
        mtu.value
    );
    finding(on.host, "link.mtu", FindingClass::Path, "differs-on-the-link", Severity::Error, message)
        .of(mtu.value.to_string())
        .at(mtu.place.as_ref())
        .on(&on.interface.name)
        .advise(format!("set it to {expected}"))
        .sourced("RFC 4821, section 1; RFC 4755 for IPoIB")
}

fn mode_name(mode: InfinibandMode) -> &'static str {
    match mode {
        InfinibandMode::Connected => "connected",
        InfinibandMode::Datagram => "datagram",
    }
}

fn mode_differs(
    on: &On<'_, '_>,
    mode: &Located<InfinibandMode>,
    expected: InfinibandMode,
    network: Prefix,
) -> Finding {
    let message = format!(
        "{} on {network}, where the others are in {} mode: between the two only datagrams pass, of at most \
         4092 bytes, whatever MTU the connected side has",
        mode_name(mode.value),
        mode_name(expected),
    );
    let class = FindingClass::Contradiction;
    finding(on.host, "link.infiniband-mode", class, "differs-on-the-link", Severity::Error, message)
        .of(mode_name(mode.value))
        .at(mode.place.as_ref())
        .on(&on.interface.name)
        .advise(format!("set it to {}", mode_name(expected)))
        .sourced("Documentation/infiniband/ipoib.rst; RFC 4755")
}

/// An end whose packets are larger than the path MTU, and whose route has no MTU.
pub(super) fn along_the_path(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    for (host, other) in facts.pairs().flat_map(|(left, right)| [(left, right), (right, left)]) {
        for at in other.reachable() {
            let Some(end) = End::of(facts, host, other, at) else { continue };
            if end.mtu.value > end.path && reported.insert((host.subject.name.clone(), end.interface)) {
                found.push(end.finding(host, other));
            }
        }
    }
}

/// One end of a path.
struct End<'a> {
    interface: &'a str,
    mtu: &'a Located<u32>,
    /// Smallest MTU on the path to the peer, and its place.
    path: u32,
    narrowest: String,
    /// A link between gateways and neither end's own is the narrowest, so that
    /// TCP, which knows the ends' MTU, runs into it.
    is_in_between: bool,
}

impl<'a> End<'a> {
    fn of(facts: &Facts<'a>, host: &View<'a>, other: &View<'a>, at: IpAddr) -> Option<Self> {
        let route = host.sends_by(None, at)?;
        if route.mtu.is_some() {
            return None;
        }
        let hops = host.hops(route);
        let interface = hops.first().and_then(|hop| host.interface_of(hop))?;
        let mtu = mtu_of(host, interface)?;
        let far = other.attached.iter().find(|(_, network)| network.contains(at))?.0;
        let far = mtu_of(other, far)?.value;
        let mut path = (far, format!("{} on {}", far, other.subject.name));
        let mut is_in_between = false;
        for gateway in hops.iter().filter_map(|hop| facts.owner(hop.via)) {
            for (name, _) in &gateway.attached {
                let Some(mtu) = mtu_of(gateway, name).filter(|mtu| mtu.value < path.0) else { continue };
                path = (mtu.value, format!("{} on {name} of {}", mtu.value, gateway.subject.name));
                is_in_between = true;
            }
        }
        let is_in_between = is_in_between && path.0 < mtu.value.min(far);
        Some(Self { interface, mtu, path: path.0, narrowest: path.1, is_in_between })
    }

    fn finding(&self, host: &View<'_>, other: &View<'_>) -> Finding {
        let (severity, who) = if self.is_in_between {
            (Severity::Warning, "TCP and UDP")
        } else {
            // TCP peers announce their segment size to each other (RFC 9293,
            // 3.7.1).
            (Severity::Note, "UDP")
        };
        let message = format!(
            "{} bytes here and {} on the path to {}: {who} finds that out by the gateways' ICMP messages, and \
             stands still where those are filtered",
            self.mtu.value, self.narrowest, other.subject.name
        );
        let place: Option<&Place> = self.mtu.place.as_ref();
        finding(host, "link.mtu", FindingClass::Path, "differs-along-the-path", severity, message)
            .of(self.mtu.value.to_string())
            .at(place)
            .on(self.interface)
            .advise(format!("write \"mtu {}\" into the route", self.path))
            .sourced("RFC 1191; RFC 2923, section 2.1")
    }
}

fn mtu_of<'a>(host: &View<'a>, interface: &str) -> Option<&'a Located<u32>> {
    host.routing.interfaces.iter().find(|it| it.name == interface)?.mtu.as_ref()
}
