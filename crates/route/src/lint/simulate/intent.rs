//! Networks that are meant to reach each other, by the fabric or by a route of a
//! host. Without either nothing is reported.

use std::collections::BTreeSet;

use clearstream_schema::{
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteEntry},
};

use super::{
    super::view::{ResolvedHop, covers, overlap},
    classes::Classes,
    site::Site,
};
use crate::walk::{Hosts, Next};

/// Hosts on one network are meant to reach addresses of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Intent {
    pub(super) from: Prefix,
    pub(super) to: Prefix,
    /// The addresses that are meant: the whole network, or one.
    pub(super) within: Prefix,
}

/// All intents, in both directions.
pub(super) fn intents(site: &Site<'_, '_>, classes: &Classes) -> BTreeSet<Intent> {
    let mut intents = BTreeSet::new();
    by_fabric(site, &mut intents);
    for members in &classes.members {
        by_routes(site, members[0], &mut intents);
    }
    let back: Vec<Intent> = intents
        .iter()
        .filter(|intent| intent.within == intent.to)
        .map(|intent| Intent { from: intent.to, to: intent.from, within: intent.from })
        .collect();
    intents.extend(back);
    intents
}

fn by_fabric(site: &Site<'_, '_>, intents: &mut BTreeSet<Intent>) {
    for [left, right] in site.facts.fabric.joined() {
        let on = |prefix: Prefix| site.networks.keys().copied().filter(move |it| overlap(*it, prefix));
        for from in on(left) {
            for to in on(right).filter(|to| !overlap(from, *to)) {
                intents.insert(Intent { from, to, within: to });
            }
        }
    }
}

fn by_routes(site: &Site<'_, '_>, host: usize, intents: &mut BTreeSet<Intent>) {
    let view = site.view(host);
    let used_tables = view.tables_of_rules();
    for route in &view.routing.routes {
        let ipv6 = route.destination.address.is_ipv6();
        let is_used = route.table == MAIN_TABLE || used_tables.contains(&route.table);
        let hops = view.hops(route);
        if !is_used || hops.is_empty() || site.is_gateway(host, ipv6) {
            continue;
        }
        let near: BTreeSet<Prefix> = hops.iter().flat_map(|hop| near(site, host, hop)).collect();
        for to in site.networks.keys().copied() {
            if site.is_on(host, to) {
                continue;
            }
            let Some(within) = meant(site, host, route, &hops, to) else { continue };
            let from = near.iter().filter(|from| !overlap(**from, to));
            intents.extend(from.map(|from| Intent { from: *from, to, within }));
        }
    }
}

/// Networks of the host from which a next hop is reached.
fn near(site: &Site<'_, '_>, host: usize, hop: &ResolvedHop<'_>) -> Vec<Prefix> {
    let of_family = || site.networks_of(host).filter(|it| it.address.is_ipv6() == hop.via.is_ipv6());
    let containing: Vec<Prefix> = of_family().filter(|network| network.contains(hop.via)).collect();
    if !containing.is_empty() {
        return containing;
    }
    let view = site.view(host);
    let on_it = |network: &Prefix| hop.interface.is_none_or(|name| view.attached.contains(&(name, *network)));
    of_family().filter(on_it).collect()
}

/// The part of a network that a route covers; none where the route is wider than
/// the network and its gateways are not known to lead there.
fn meant(
    site: &Site<'_, '_>,
    host: usize,
    route: &RouteEntry,
    hops: &[ResolvedHop<'_>],
    to: Prefix,
) -> Option<Prefix> {
    let destination = route.destination.network();
    if covers(to, destination) {
        let is_address = destination == Prefix::host(destination.address);
        return Some(if is_address { destination } else { to });
    }
    if !covers(destination, to) {
        return None;
    }
    let leads = |hop: &ResolvedHop<'_>| {
        let Some(interface) = site.view(host).interface_of(hop) else { return false };
        matches!(site.next(host, interface, hop.via), Next::Host(next, _) if site.view(next).may_lead(hop.via, to))
    };
    hops.iter().any(leads).then_some(to)
}
