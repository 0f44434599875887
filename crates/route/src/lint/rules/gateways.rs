//! Next hops: unreachable, missing and duplicate ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::{MAIN_TABLE, NexthopTarget, Place, RouteAction, RouteEntry, files::Loader},
    tune::{Finding, FindingClass, Severity},
};

use super::super::{Facts, View, With, finding, ip_syntax, view::ResolvedHop};

const GATEWAY: &str = "gateway";

/// A gateway that is no neighbour.
pub(super) fn outside_every_subnet(facts: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    for (route, hop) in host.all_hops() {
        let Some((severity, reason)) = outside(facts, host, route, &hop) else { continue };
        if !reported.insert((hop.via, hop.place.cloned())) {
            continue;
        }
        let consequence = match host.loader(route.place.as_ref()) {
            Loader::Kernel => {
                "the kernel took it, by \"onlink\" or before an address went; whether anybody replies there is unknown"
            }
            Loader::NetworkManager => {
                "NetworkManager makes it a neighbour by a route of its own, and asks for it on a link that its network \
                 is not on: what this route was to carry is lost, unless somebody replies there"
            }
            Loader::NetworkScripts => {
                "the kernel refuses the route to the network scripts (\"Nexthop has invalid gateway\"), and \
                 NetworkManager asks for the gateway on a link that its network is not on"
            }
            _ => {
                "the kernel refuses a route over a gateway that is no neighbour (\"Nexthop has invalid gateway\"), so \
                 what this route was to carry takes another path or none"
            }
        };
        let message = format!("{reason}: {consequence}");
        let severity = if host.is_whole() { Severity::Note } else { severity };
        let mut finding =
            finding(host, GATEWAY, FindingClass::Range, "outside-every-subnet", severity, message)
                .of(ip_syntax::route(route))
                .at(hop.place.or(route.place.as_ref()))
                .advise("write the gateway's address on this side: the one in a network that this host is on")
                .sourced("ip-route(8); net/ipv4/fib_semantics.c, fib_check_nh");
        finding.interface = hop.interface.map(str::to_owned);
        found.push(finding);
    }
}

/// Why a gateway is considered outside, and how certain that is.
pub(super) fn outside(
    facts: &Facts<'_>,
    host: &View<'_>,
    route: &RouteEntry,
    hop: &ResolvedHop<'_>,
) -> Option<(Severity, String)> {
    let via = hop.via;
    if matches!(via, IpAddr::V6(via) if via.is_unicast_link_local()) || is_on_link(host, route, hop) {
        return None;
    }
    let on = hop.interface.map_or_else(String::new, |interface| format!(" on {interface}"));
    let certain = match host.loader(route.place.as_ref()) {
        Loader::Kernel => Severity::Note,
        Loader::NetworkManager | Loader::NetworkScripts => Severity::Warning,
        // Router advertisements make more networks neighbours.
        _ if via.is_ipv6() && !host.routing.files.complete.is_empty() => Severity::Warning,
        _ => Severity::Error,
    };
    // NetworkManager makes the gateway of a single address a neighbour, which is meant then.
    if let Some(interface) =
        hop.interface.filter(|it| certain == Severity::Error && host.is_on_no_network(it, via))
    {
        let reason =
            format!("{interface} has single addresses alone (/32), so that {via} is no neighbour of it");
        return Some((Severity::Error, reason));
    }
    if host.knows_addresses(hop.interface, via) {
        if host.is_attached(via, hop.interface) {
            return None;
        }
        let mine = host.attached.iter().filter(|(name, network)| {
            hop.interface.is_none_or(|interface| interface == *name)
                && network.address.is_ipv4() == via.is_ipv4()
        });
        let mine = list(mine.map(|(_, network)| network));
        return Some((certain, format!("{via} is in none of this host's networks{on} ({mine})")));
    }
    if !facts.fabric.networks.is_empty() {
        let is_in_one = facts.fabric.networks.iter().any(|network| network.prefix.contains(via));
        // Whatever the tool makes of it, nobody of the fabric is there.
        let certain = if certain == Severity::Note { certain } else { Severity::Error };
        return (!is_in_one).then(|| (certain, format!("{via} is in none of the fabric's networks")));
    }
    let (network, count) = others_network(host, hop.interface, via)?;
    let reason = format!(
        "no address of this host{on} was given, but its {count} other gateways there are in {network} and \
         {via} is not"
    );
    (!network.contains(via)).then_some((certain.min(Severity::Warning), reason))
}

/// Whether a route without gateway makes `via` a neighbour.
fn is_on_link(host: &View<'_>, route: &RouteEntry, hop: &ResolvedHop<'_>) -> bool {
    let files = &host.routing.files;
    let is_hop = |interface: &Option<String>| {
        interface.as_deref().is_none_or(|name| hop.interface.is_none_or(|hop| hop == name))
    };
    // By "onlink", or by a route that is not known.
    if files.on_link.iter().any(|(via, interface)| *via == hop.via && is_hop(interface))
        || files
            .unknown_routes
            .iter()
            .any(|it| it.may_lead_to(hop.via) && it.destination.is_none_or(|it| it.length > 0))
    {
        return true;
    }
    host.routing.routes.iter().any(|other| {
        let RouteAction::Link { interface } = &other.action else { return false };
        let is_searched = other.table == MAIN_TABLE || other.table == route.table;
        is_searched
            && other.destination.contains(hop.via)
            && hop.interface.is_none_or(|name| name == interface)
    })
}

/// The network (of 24 or 64 bits, the usual ones) in which all gateways of the
/// multipath routes over an interface are, where they are in one.
fn others_network(host: &View<'_>, interface: Option<&str>, like: IpAddr) -> Option<(Prefix, usize)> {
    let mut networks = BTreeSet::new();
    let mut gateways = BTreeSet::new();
    for (_, hops) in host.multipaths() {
        for hop in hops.iter().filter(|hop| hop.via.is_ipv4() == like.is_ipv4()) {
            if interface.is_none() || hop.interface.is_none() || interface == hop.interface {
                networks.insert(usual_network(hop.via));
                gateways.insert(hop.via);
            }
        }
    }
    let network = networks.first().filter(|_| networks.len() == 1)?;
    Some((*network, gateways.len()))
}

fn usual_network(address: IpAddr) -> Prefix {
    Prefix { address, length: if address.is_ipv4() { 24 } else { 64 } }.network()
}

/// A gateway that other routes or rules of the host name and a multipath route
/// omits.
pub(super) struct Missing<'a> {
    pub(super) address: IpAddr,
    /// Gateways that are in it.
    pub(super) others: Vec<IpAddr>,
    route: &'a RouteEntry,
    /// Source of its address.
    known_by: String,
    place: Option<&'a Place>,
}

/// Gateways that a multipath route lacks: of the gateways with a table each, or
/// of the addresses with a rule each, some are in the route and others are not.
pub(super) fn missing_ones<'v, 'a>(host: &'v View<'a>) -> impl Iterator<Item = Missing<'a>> + use<'v, 'a> {
    host.multipaths().filter(|(route, _)| route.table == MAIN_TABLE).flat_map(move |(route, hops)| {
        let members: Vec<IpAddr> = hops.iter().map(|hop| hop.via).collect();
        let place = hops.first().and_then(|hop| route.place.as_ref().or(hop.place));
        [by_tables(host, &hops), by_rules(host, &hops)].into_iter().flat_map(move |known| {
            let shared = known.keys().filter(|address| members.contains(address)).count();
            let members = members.clone();
            let lacking =
                known.into_iter().filter(move |(address, _)| shared > 1 && !members.contains(address));
            let others: Vec<IpAddr> = hops.iter().map(|hop| hop.via).collect();
            let missing = move |(address, known_by)| Missing {
                address,
                others: others.clone(),
                route,
                known_by,
                place,
            };
            lacking.map(missing).collect::<Vec<_>>()
        })
    })
}

/// Single gateways of own tables, near the members.
fn by_tables(host: &View<'_>, members: &[ResolvedHop<'_>]) -> BTreeMap<IpAddr, String> {
    let mut known = BTreeMap::new();
    for route in host.routing.routes.iter().filter(|route| route.table != MAIN_TABLE) {
        if let [hop] = &host.hops(route)[..]
            && is_near(host, hop.via, members)
        {
            known.insert(hop.via, format!("table {} goes by it", route.table));
        }
    }
    known
}

/// Source addresses of rules, near the members.
fn by_rules(host: &View<'_>, members: &[ResolvedHop<'_>]) -> BTreeMap<IpAddr, String> {
    let mut known = BTreeMap::new();
    for rule in &host.routing.rules {
        let from = rule.selector.from.filter(|from| *from == Prefix::host(from.address));
        if let Some(from) = from
            && !host.own.contains(&from.address)
            && is_near(host, from.address, members)
        {
            known.insert(from.address, format!("the rule \"{}\" is for it", ip_syntax::rule(rule)));
        }
    }
    known
}

fn is_near(host: &View<'_>, address: IpAddr, members: &[ResolvedHop<'_>]) -> bool {
    members.iter().any(|member| {
        let mut attached =
            host.attached.iter().filter(|(_, network)| network.contains(member.via)).peekable();
        match attached.peek() {
            Some(_) => attached.any(|(_, network)| network.contains(address)),
            None => usual_network(member.via).contains(address),
        }
    })
}

pub(super) fn missing_from_multipath(facts: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    for missing in missing_ones(host) {
        reported.insert((missing.address, missing.route.destination));
        found.push(missing_finding(host, &missing));
    }
    for (route, hops) in host.multipaths() {
        let members: Vec<IpAddr> = hops.iter().map(|hop| hop.via).collect();
        for lacking in facts.fabric.lacking(route.destination, &members) {
            if reported.insert((lacking, route.destination)) {
                let missing = Missing {
                    address: lacking,
                    others: members.clone(),
                    route,
                    known_by: "the fabric has it".to_owned(),
                    place: route.place.as_ref(),
                };
                found.push(missing_finding(host, &missing));
            }
        }
    }
}

fn missing_finding(host: &View<'_>, missing: &Missing<'_>) -> Finding {
    let message = format!(
        "{} is not among the gateways of this route ({}), though {}: it carries nothing from here, and the \
         others carry its share",
        missing.address,
        list(&missing.others),
        missing.known_by,
    );
    finding(host, GATEWAY, FindingClass::Routing, "missing-from-multipath", Severity::Warning, message)
        .of(ip_syntax::route(missing.route))
        .at(missing.place)
        .advise(format!("add \"nexthop via {}\"", missing.address))
        .sourced("ip-route(8)")
}

/// The same gateway twice in a route or group.
pub(super) fn listed_twice(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    for (route, hops) in host.multipaths() {
        for (at, hop) in hops.iter().enumerate() {
            let same = |other: &&ResolvedHop<'_>| other.via == hop.via && other.interface == hop.interface;
            let count = hops.iter().filter(same).count();
            let is_first = hops[..at].iter().all(|other| !same(&other));
            if count < 2 || !is_first || !reported.insert((hop.via, hop.place.cloned())) {
                continue;
            }
            let weight: u32 = hops.iter().filter(same).map(|hop| u32::from(hop.weight)).sum();
            let all: u32 = hops.iter().map(|hop| u32::from(hop.weight)).sum();
            let last = hops.iter().rfind(same).and_then(|hop| hop.place);
            let message = format!(
                "{} is there {count} times, which the kernel accepts silently: it gets {weight} of {all} \
                 shares of the flows",
                hop.via
            );
            found.push(
                finding(host, GATEWAY, FindingClass::Wasteful, "listed-twice", Severity::Warning, message)
                    .of(ip_syntax::route(route))
                    .at(last.or(route.place.as_ref()))
                    .advise("name each gateway once; a larger share is a weight")
                    .sourced("ip-route(8); measured: accepted, halves the balance"),
            );
        }
    }
}

/// A next hop without an interface, on a host with several.
pub(super) fn no_interface(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let interfaces: BTreeSet<&str> = host.routing.interfaces.iter().map(|it| it.name.as_str()).collect();
    let files = &host.routing.files;
    if !files.nameless.is_empty() || files.dynamic.iter().any(|(_, ipv6)| !ipv6) {
        return;
    }
    if interfaces.iter().filter(|name| **name != "lo").count() < 2 {
        return;
    }
    let mut reported = BTreeSet::new();
    for (route, hop) in host.all_hops().filter(|(_, hop)| hop.interface.is_none()) {
        let on: BTreeSet<&str> = host
            .attached
            .iter()
            .filter_map(|(name, network)| network.contains(hop.via).then_some(*name))
            .collect();
        // The kernel takes the one interface that is on the gateway's network.
        if on.len() == 1 || !reported.insert((hop.via, hop.place.cloned())) {
            continue;
        }
        let message = match on.len() {
            0 => format!(
                "no interface is given for {}, and none of {} is known to be on its network: which one the \
                 kernel takes depends on the other routes of that moment",
                hop.via,
                list(&interfaces)
            ),
            _ => format!(
                "no interface is given for {}, and {} are on its network: the kernel takes the one whose \
                 route came first",
                hop.via,
                list(&on)
            ),
        };
        found.push(
            finding(host, GATEWAY, FindingClass::Routing, "no-interface", Severity::Warning, message)
                .of(ip_syntax::route(route))
                .at(hop.place.or(route.place.as_ref()))
                .advise(format!("write \"via {} dev INTERFACE\"", hop.via))
                .sourced("ip-route(8)"),
        );
    }
}

/// A route or group that names a nexthop object which is not there.
pub(super) fn unknown_object(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let ids: BTreeSet<u32> = host.routing.nexthops.iter().map(|nexthop| nexthop.id).collect();
    let by_routes = host.routing.routes.iter().filter_map(|route| match route.action {
        RouteAction::Nexthop(id) => Some((id, ip_syntax::route(route), route.place.as_ref())),
        _ => None,
    });
    let by_groups = host.routing.nexthops.iter().flat_map(|nexthop| {
        let members = match &nexthop.target {
            NexthopTarget::Group { members, .. } => members.as_slice(),
            _ => &[],
        };
        members.iter().map(move |member| (member.id, format!("group {}", nexthop.id), nexthop.place.as_ref()))
    });
    let unknown = &host.routing.files.unknown_nexthops;
    for (id, what, place) in
        by_routes.chain(by_groups).filter(|(id, ..)| !ids.contains(id) && !unknown.contains(id))
    {
        // What a kernel printed it had; the list of nexthops is not complete then.
        if !host.is_whole() && host.loader(place) == Loader::Kernel {
            continue;
        }
        let message = format!(
            "there is no nexthop {id}: the kernel refuses what names it (\"Nexthop id does not exist\"), and \
             everything that was to use it"
        );
        found.push(
            finding(host, GATEWAY, FindingClass::Range, "unknown-nexthop", Severity::Error, message)
                .of(what)
                .at(place)
                .advise(format!("add nexthop {id} before it is named"))
                .sourced("ip-nexthop(8)"),
        );
    }
}
