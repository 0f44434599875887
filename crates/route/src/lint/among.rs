//! What hosts are to each other, found once for all rules: whose packets a
//! gateway gets, and which hosts are worth comparing.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
};

use clearstream_schema::routing::RouteEntry;

use super::view::{View, overlap};

/// Hosts alike in everything but their addresses are compared once.
const ALIKE: usize = 2;
/// Senders that are kept of one address: a host does not count for itself.
const SENDERS: usize = 2;

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

/// Numbers of hosts on different networks, few of each kind.
pub(super) fn pairs(hosts: &[View<'_>]) -> Vec<(usize, usize)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut few = Vec::new();
    for (at, host) in hosts.iter().enumerate() {
        match seen.entry(kind(host)) {
            Entry::Occupied(count) if *count.get() >= ALIKE => continue,
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(none) => {
                none.insert(1);
            }
        }
        few.push(at);
    }
    let mut pairs = Vec::new();
    for (at, left) in few.iter().enumerate() {
        let others = few[at + 1..].iter().filter(|right| !share_a_network(&hosts[*left], &hosts[**right]));
        pairs.extend(others.map(|right| (*left, *right)));
    }
    pairs
}

/// What makes a host like another: everything but where it is said and which
/// addresses it has.
fn kind(host: &View<'_>) -> String {
    let routes: Vec<_> = host
        .routing
        .routes
        .iter()
        .map(|route| {
            let hops = host.hops(route);
            let hops: Vec<_> = hops.iter().map(|hop| (hop.via, hop.interface, hop.weight)).collect();
            (route.table, route.destination, route.metric, hops)
        })
        .collect();
    let rules: Vec<_> = host.routing.rules.iter().map(|rule| (rule.priority, &rule.action)).collect();
    let interfaces: Vec<_> = host.routing.interfaces.iter().map(|it| (&it.name, &it.mtu)).collect();
    format!("{:?}", (&host.attached, routes, rules, &host.routing.connection_marks, interfaces))
}

fn share_a_network(left: &View<'_>, right: &View<'_>) -> bool {
    left.attached.iter().any(|(_, network)| {
        right.attached.iter().any(|(_, other)| !network.address.is_loopback() && overlap(*network, *other))
    })
}
