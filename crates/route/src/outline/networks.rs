//! Networks that hosts share, and the gateways between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{
    fabric::InfinibandMode,
    prefix::Prefix,
    routing::{HostRouting, NexthopTarget, RouteAction, RoutingInterface},
};

/// A network: prefixes that are on the same interfaces.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) prefixes: BTreeSet<Prefix>,
    /// Hosts and their interfaces on it, by their numbers.
    pub(super) members: BTreeSet<(usize, usize)>,
    /// Gateways' addresses on it, in the order of the routes that name them.
    pub(super) gateways: Vec<IpAddr>,
    /// MTUs seen on it.
    pub(super) mtus: BTreeSet<u32>,
    pub(super) is_infiniband: bool,
    pub(super) connected: Option<bool>,
}

impl Network {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }
}

/// Gateways of a route as it names them, with their weights.
pub(super) fn hops(host: &HostRouting, action: &RouteAction) -> Vec<(IpAddr, u16)> {
    let object = |id: u32| host.nexthops.iter().find(|nexthop| nexthop.id == id).map(|it| &it.target);
    let via = |id: u32| match object(id) {
        Some(NexthopTarget::Gateway { via, .. }) => Some(*via),
        _ => None,
    };
    match action {
        RouteAction::Gateways(hops) => hops.iter().map(|hop| (hop.via, hop.weight)).collect(),
        RouteAction::Nexthop(id) => match object(*id) {
            Some(NexthopTarget::Group { members, .. }) => {
                members.iter().filter_map(|member| Some((via(member.id)?, member.weight))).collect()
            }
            _ => via(*id).map(|via| (via, 1)).into_iter().collect(),
        },
        _ => Vec::new(),
    }
}

/// Addresses of an interface that make it part of a network.
pub(super) fn addresses(interface: &RoutingInterface) -> impl Iterator<Item = Prefix> {
    interface.addresses.iter().map(|address| address.value).filter(|prefix| {
        let is_plain = match prefix.address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        };
        is_plain && *prefix != Prefix::host(prefix.address)
    })
}

/// Networks with gateways on them; absent when there are not two.
pub(super) fn find(hosts: &[HostRouting]) -> Option<Vec<Network>> {
    let mut networks = attached(hosts);
    for network in &mut networks {
        network.gateways = gateways(hosts, network);
    }
    networks.retain(|network| !network.gateways.is_empty());
    name_them(hosts, &mut networks);
    (networks.len() > 1).then_some(networks)
}

/// Prefixes by the interfaces that are on them, those of one interface joined.
fn attached(hosts: &[HostRouting]) -> Vec<Network> {
    let mut by_prefix: BTreeMap<Prefix, BTreeSet<(usize, usize)>> = BTreeMap::new();
    for (at, host) in hosts.iter().enumerate() {
        for (number, interface) in host.interfaces.iter().enumerate() {
            for prefix in addresses(interface) {
                by_prefix.entry(prefix.network()).or_default().insert((at, number));
            }
        }
    }
    let mut networks: Vec<Network> = Vec::new();
    for (prefix, members) in by_prefix {
        let joins = |network: &Network| {
            let has_same_family =
                network.prefixes.iter().any(|other| other.address.is_ipv4() == prefix.address.is_ipv4());
            !has_same_family && !network.members.is_disjoint(&members)
        };
        let at = networks.iter().position(joins).unwrap_or_else(|| {
            networks.push(Network::default());
            networks.len() - 1
        });
        networks[at].prefixes.insert(prefix);
        networks[at].members.extend(members);
    }
    for network in &mut networks {
        for (host, interface) in &network.members {
            let interface = &hosts[*host].interfaces[*interface];
            network.mtus.extend(interface.mtu.as_ref().map(|mtu| mtu.value));
            // RFC 4391: 20 octets.
            let is_long = interface.link_address.as_ref().is_some_and(|link| link.len() == 59);
            network.is_infiniband |= is_long || interface.infiniband_mode.is_some();
            if let Some(mode) = &interface.infiniband_mode {
                let is_connected = mode.value == InfinibandMode::Connected;
                network.connected = Some(network.connected.unwrap_or(true) && is_connected);
            }
        }
    }
    networks
}

/// Addresses on a network that hosts send to as gateways, in the order of the
/// longest route; without routes those of hosts that forward between networks.
fn gateways(hosts: &[HostRouting], network: &Network) -> Vec<IpAddr> {
    let on_it = |hops: Vec<(IpAddr, u16)>| {
        hops.into_iter().map(|(via, _)| via).filter(|via| network.contains(*via)).collect::<Vec<_>>()
    };
    // Of the members' routes only: a gateway is a neighbour.
    let members: BTreeSet<usize> = network.members.iter().map(|(host, _)| *host).collect();
    let mut routes: Vec<Vec<IpAddr>> = members
        .iter()
        .flat_map(|host| hosts[*host].routes.iter().map(|route| (*host, route)))
        .filter(|(_, route)| route.destination.length > 0)
        .map(|(host, route)| on_it(hops(&hosts[host], &route.action)))
        .collect();
    routes.sort_by_key(|hops| std::cmp::Reverse(hops.len()));
    let mut found: Vec<IpAddr> = Vec::new();
    for via in routes.into_iter().flatten() {
        if !found.contains(&via) {
            found.push(via);
        }
    }
    if found.is_empty() {
        for (host, interface) in network.members.iter().filter(|(host, _)| forwards(&hosts[*host])) {
            let first = addresses(&hosts[*host].interfaces[*interface]).next();
            found.extend(first.map(|prefix| prefix.address));
        }
    }
    // IPv4 first, as the file has its prefixes; the order is kept otherwise.
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// Set to forward, with interfaces on two networks.
fn forwards(host: &HostRouting) -> bool {
    let keys = ["net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding", "net.ipv6.conf.all.forwarding"];
    let is_on = |key: &&str| host.sysctls.get(*key).is_some_and(|value| value.value.trim() == "1");
    let networks: BTreeSet<Prefix> =
        host.interfaces.iter().flat_map(|it| addresses(it).map(Prefix::network)).collect();
    keys.iter().any(is_on) && networks.iter().filter(|it| it.address.is_ipv4()).count() > 1
}

/// Names networks by the interfaces on them, without their numbers, where all hosts
/// use one name; else by their number.
fn name_them(hosts: &[HostRouting], networks: &mut [Network]) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (number, network) in networks.iter_mut().enumerate() {
        let names: BTreeSet<String> = network
            .members
            .iter()
            .map(|(host, interface)| {
                let name = &hosts[*host].interfaces[*interface].name;
                name.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase()
            })
            .collect();
        let is_fit =
            |name: &&String| name.len() > 1 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let common = names.first().filter(|_| names.len() == 1).filter(is_fit);
        let name = common.filter(|name| !taken.contains(*name)).cloned();
        network.name = name.unwrap_or_else(|| format!("network-{}", number + 1));
        taken.insert(network.name.clone());
    }
}
