//! Relations between hosts, computed once for all rules: the senders to each
//! gateway, and the hosts worth comparing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    net::IpAddr,
};

use clearstream_schema::{
    prefix::Prefix,
    routing::{RouteEntry, RuleAction},
};

use super::view::{View, is_of_the_link, overlap};

/// Number of hosts to compare with, of those equal in everything but their
/// addresses.
const ALIKE: usize = 2;
/// Senders that are kept of one address: a host does not count for itself.
const SENDERS: usize = 2;
/// Hosts on other networks that one is compared with at most: without a bound
/// the work would grow with the square of the hosts that differ.
pub(super) const MOST_COMPARED: usize = 32;

/// A host that sends packets for others to an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    /// Number of the host.
    pub(super) host: usize,
    /// The route by which it does.
    pub(super) route: &'a RouteEntry,
    /// Address of the gateway.
    pub(super) via: IpAddr,
    /// Which of the host's next hops it is.
    pub(super) hop: usize,
}

/// The first hosts that send to each gateway.
pub(super) fn senders<'a>(hosts: &[View<'a>]) -> HashMap<IpAddr, Vec<Sender<'a>>> {
    let mut senders: HashMap<IpAddr, Vec<Sender<'a>>> = HashMap::new();
    for (host, view) in hosts.iter().enumerate() {
        for (hop, (route, resolved)) in view.all_hops().enumerate() {
            let via = resolved.via;
            let known = senders.entry(via).or_default();
            if known.len() < SENDERS && known.iter().all(|other| other.host != host) {
                known.push(Sender { host, route, via, hop });
            }
        }
    }
    senders
}

/// Hosts to compare with each other.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Numbers of two hosts on different networks, the lower first, in order.
    pub(super) pairs: Vec<(usize, usize)>,
    /// There are so many kinds that some pairs were left out.
    pub(super) is_cut: bool,
}

/// Hosts that differ only in their addresses and in the places of their settings:
/// the first of them, and their number.
#[derive(Debug, Default)]
struct Kind {
    first: Vec<usize>,
    count: usize,
}

/// Hosts on the same networks.
#[derive(Debug, Default)]
struct Side {
    members: Vec<usize>,
    /// Few of each kind: the first of every kind before the second of any, and
    /// common kinds before rare ones.
    few: Vec<usize>,
}

/// The pairs of hosts on different networks: each host with few of each kind on
/// every other network.
pub(super) fn compared(hosts: &[View<'_>]) -> Compared {
    let sides = sides(hosts);
    let networks: Vec<&BTreeSet<Prefix>> = sides.keys().collect();
    // By rank within their side, so that each side has its commonest kinds first.
    let mut ranked: Vec<(usize, usize, usize)> = Vec::new();
    for (at, side) in sides.values().enumerate() {
        ranked.extend(side.few.iter().enumerate().map(|(rank, host)| (rank, at, *host)));
    }
    ranked.sort_unstable();
    let mut compared = Compared::default();
    for (at, side) in sides.values().enumerate() {
        let apart = |(_, other, _): &&(usize, usize, usize)| !share_a_network(networks[at], networks[*other]);
        let mut others = ranked.iter().filter(apart).map(|(_, _, host)| *host);
        let partners: Vec<usize> = others.by_ref().take(MOST_COMPARED).collect();
        compared.is_cut |= others.next().is_some();
        for host in &side.members {
            let others = partners.iter().filter(|partner| *partner != host);
            compared.pairs.extend(others.map(|partner| (*host.min(partner), *host.max(partner))));
        }
    }
    compared.pairs.sort_unstable();
    compared.pairs.dedup();
    compared
}

/// Hosts by the networks that they are on.
fn sides(hosts: &[View<'_>]) -> BTreeMap<BTreeSet<Prefix>, Side> {
    let mut sides: BTreeMap<BTreeSet<Prefix>, Side> = BTreeMap::new();
    let mut kinds: HashMap<u64, Kind> = HashMap::new();
    for (at, host) in hosts.iter().enumerate() {
        sides.entry(networks(host)).or_default().members.push(at);
        let kind = kinds.entry(kind(host)).or_default();
        kind.count += 1;
        if kind.first.len() < ALIKE {
            kind.first.push(at);
        }
    }
    let mut few: Vec<(usize, Reverse<usize>, usize)> = Vec::new();
    for kind in kinds.values() {
        few.extend(kind.first.iter().enumerate().map(|(nth, host)| (nth, Reverse(kind.count), *host)));
    }
    few.sort_unstable();
    for (_, _, host) in few {
        sides.entry(networks(&hosts[host])).or_default().few.push(host);
    }
    sides
}

fn networks(host: &View<'_>) -> BTreeSet<Prefix> {
    let networks = host.attached.iter().map(|(_, network)| *network);
    networks.filter(|network| !is_of_the_link(*network)).collect()
}

/// A hash of the properties that make two hosts equal: not its addresses, nor which
/// of them its rules are for, nor the files it was read from.
pub(super) fn kind(host: &View<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    host.attached.hash(&mut hasher);
    for interface in &host.routing.interfaces {
        let mtu = interface.mtu.as_ref().map(|mtu| mtu.value);
        (&interface.name, mtu, interface.addresses.len()).hash(&mut hasher);
    }
    for route in &host.routing.routes {
        let hops = host.hops(route);
        let hops: Vec<_> = hops.iter().map(|hop| (hop.via, hop.interface, hop.weight)).collect();
        let key = (route.table, route.destination, route.metric, route.mtu);
        (key, mem::discriminant(&route.action), hops).hash(&mut hasher);
    }
    for special in &host.routing.special_routes {
        let route = &special.route;
        let key = (route.table, route.destination, route.metric, mem::discriminant(&route.action));
        (key, special.from, special.type_of_service, special.is_local).hash(&mut hasher);
    }
    for rule in &host.routing.rules {
        let mut selector = rule.selector.clone();
        let own = selector.from.take_if(|from| host.own.contains(&from.address)).map(|from| from.length);
        let action = match &rule.action {
            RuleAction::Table(table) => Ok(*table),
            RuleAction::Other(other) => Err(other),
        };
        (rule.ipv6, rule.priority, own, selector, action).hash(&mut hasher);
    }
    for mark in &host.routing.connection_marks {
        (&mark.interface, &mark.link_address, mark.mark).hash(&mut hasher);
    }
    host.source_translations().hash(&mut hasher);
    host.hash_seed().hash(&mut hasher);
    hasher.finish()
}

fn share_a_network(left: &BTreeSet<Prefix>, right: &BTreeSet<Prefix>) -> bool {
    left.iter().any(|network| right.iter().any(|other| overlap(*network, *other)))
}
