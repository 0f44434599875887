//! Several interfaces of one host: what its own packets and its replies leave by.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_routing::lookup::DEFAULT_TABLE;
use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteAction, RouteEntry, RuleAction, RuleEntry},
    tune::{Finding, FindingClass, Severity},
};

use super::super::{
    Facts, View, With, finding, ip_syntax,
    view::{covers, overlap},
};

/// Two interfaces on one network, of which the kernel uses the first alone.
pub(super) fn same_network_twice(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let files = &host.routing.files;
    let mut by_network: BTreeMap<Prefix, Vec<&str>> = BTreeMap::new();
    for (name, network) in &host.attached {
        let is_in_main = files.connected_table(name, false) == MAIN_TABLE;
        let is_single = network.address.is_loopback() || network.length > 30;
        if network.address.is_ipv4()
            && is_in_main
            && !is_single
            && *name != "lo"
            && !files.nameless.contains(*name)
        {
            let names = by_network.entry(network.network()).or_default();
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    for (network, names) in by_network.iter().filter(|(_, names)| names.len() > 1) {
        if names.iter().all(|name| keeps_arp_apart(host, name)) {
            continue;
        }
        let unruled: Vec<&str> = names.iter().copied().filter(|name| !leaves_by_rule(host, name)).collect();
        // One of them may do without: what the others do not take is its own.
        let [first, second, ..] = &unruled[..] else { continue };
        let addresses = host.routing.interfaces.iter().filter(|it| it.name == **second);
        let place = addresses
            .flat_map(|it| &it.addresses)
            .find_map(|address| network.contains(address.value.address).then_some(address.place.as_ref()));
        let message = format!(
            "{} are on {network}: what this host sends there leaves by one of them, whatever its source address, and \
             each replies to ARP for the addresses of all, so that {second} carries what arrives at best, and with a \
             strict reverse path filter nothing",
            list(names),
        );
        found.push(
            finding(host, "link", FindingClass::Routing, "same-network-twice", Severity::Warning, message)
                .of(network.to_string())
                .at(place.flatten())
                .on(second)
                .advise(format!(
                    "make one link of them (bond), give them networks of their own, or give {second} a rule by its \
                     address and a table as {first} has the main one, with arp_ignore = 1 and arp_announce = 2"
                ))
                .sourced("ip-sysctl.rst, arp_filter, arp_ignore; RFC 1122, section 3.3.4.2"),
        );
    }
}

/// Set where several interfaces on one network are meant. By the larger value of `all` and the interface (ip-sysctl.rst).
fn keeps_arp_apart(host: &View<'_>, interface: &str) -> bool {
    let of = |part: &str, key: &str| host.number(&format!("net.ipv4.conf.{part}.{key}")).unwrap_or(0);
    let escaped = interface.replace('.', "/");
    let own = |key: &str| {
        let own = host.number(&format!("net.ipv4.conf.{escaped}.{key}"));
        own.or_else(|| host.number(&format!("net.ipv4.conf.default.{key}"))).unwrap_or(0)
    };
    ["arp_filter", "arp_ignore"].iter().any(|key| of("all", key).max(own(key)) > 0)
}

/// Whether a rule by an address of an interface, or by the interface, leads to a table that leaves by it.
fn leaves_by_rule(host: &View<'_>, name: &str) -> bool {
    let own: BTreeSet<_> = host
        .routing
        .interfaces
        .iter()
        .filter(|interface| interface.name == name)
        .flat_map(|interface| &interface.addresses)
        .map(|address| address.value.address)
        .collect();
    host.routing.rules.iter().any(|rule| {
        let is_for_it = rule.selector.from.is_some_and(|from| own.iter().any(|own| from.contains(*own)))
            || rule.selector.output.as_deref() == Some(name)
            || !rule.selector.other.is_empty();
        let RuleAction::Table(table) = rule.action else { return is_for_it };
        let leaves =
            |route: &RouteEntry| outputs(host, route).iter().any(|output| output.is_none_or(|it| it == name));
        let has = host.tables.get(&table).is_some_and(|routes| routes.iter().any(|route| leaves(route)));
        is_for_it && (has || host.routing.files.unknown_in(table).next().is_some())
    })
}

/// Interfaces that a route leaves by; absent ones are not known.
fn outputs<'a>(host: &View<'a>, route: &RouteEntry) -> Vec<Option<&'a str>> {
    let mut routes = host.routing.routes.iter();
    let Some(route) = routes.find(|known| std::ptr::eq(*known, route)) else { return vec![None] };
    match &route.action {
        RouteAction::Link { interface } => vec![Some(interface)],
        _ => host.hops(route).iter().map(|hop| host.interface_of(hop)).collect(),
    }
}

/// Rules by source address of a family with the tables that they lead to.
fn by_source<'v>(host: &'v View<'_>, ipv6: bool) -> impl Iterator<Item = (&'v RuleEntry, u32)> {
    host.routing.rules.iter().filter_map(move |rule| {
        let RuleAction::Table(table) = rule.action else { return None };
        let is_it = rule.ipv6 == ipv6 && rule.selector.from.is_some() && !rule.selector.inverted;
        is_it.then_some((rule, table))
    })
}

fn is_default(route: &RouteEntry, ipv6: bool) -> bool {
    route.destination.length == 0 && route.destination.address.is_ipv6() == ipv6
}

/// Tables by source have default routes, and the main table leads nowhere.
pub(super) fn no_default_in_main(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for ipv6 in [false, true] {
        let own = host.own.iter().filter(|own| own.is_ipv6() == ipv6 && !own.is_loopback());
        // Only where its addresses were given, its routes were.
        if own.count() == 0 || may_lead_elsewhere(host, ipv6) {
            continue;
        }
        let leads = |(_, table): &(&RuleEntry, u32)| {
            let routes = host.tables.get(table).map_or(&[][..], Vec::as_slice);
            routes.iter().any(|route| is_default(route, ipv6) && !host.hops(route).is_empty())
        };
        let is_own = |(_, table): &(&RuleEntry, u32)| {
            *table != MAIN_TABLE && !host.routing.files.vrf_tables.contains(table)
        };
        let Some((rule, table)) = by_source(host, ipv6).filter(is_own).find(leads) else {
            continue;
        };
        let message = format!(
            "table {table} has a default route, and the main table has no route over a gateway: what is sent before a \
             source address is chosen matches no rule by source, so that connections that this host opens fail with \
             \"Network is unreachable\"",
        );
        found.push(
            finding(host, "route", FindingClass::Routing, "no-default-in-main", Severity::Warning, message)
                .of(ip_syntax::rule(rule))
                .at(rule.place.as_ref())
                .advise("add a default route to the main table too, by the interface that is to be preferred")
                .sourced("ip-rule(8); net/ipv4/route.c, ip_route_output_key_hash_rcu"),
        );
    }
}

/// Whether the main table, or a rule for every packet, leads beyond the own networks, or may do so.
fn may_lead_elsewhere(host: &View<'_>, ipv6: bool) -> bool {
    let files = &host.routing.files;
    let over_gateway = |route: &&&RouteEntry| {
        route.destination.address.is_ipv6() == ipv6
            && (!host.hops(route).is_empty()
                || route.destination.length == 0
                || matches!(route.action, RouteAction::Nexthop(_)))
    };
    let is_plain = |rule: &RuleEntry| {
        rule.ipv6 == ipv6
            && rule.selector.from.is_none()
            && matches!(rule.action, RuleAction::Table(table) if table != MAIN_TABLE)
    };
    host.main().iter().any(|route| over_gateway(&route))
        || host.tables.contains_key(&DEFAULT_TABLE)
        || files.unknown_in(MAIN_TABLE).next().is_some()
        || files.dynamic.iter().any(|(_, six)| *six == ipv6)
        || host.routing.rules.iter().any(is_plain)
}

/// A table by source that leads to the own network alone, so that replies to everybody else leave by the main table.
pub(super) fn own_network_only(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    for ipv6 in [false, true] {
        for (rule, table) in by_source(host, ipv6) {
            let routes = host.tables.get(&table).map_or(&[][..], Vec::as_slice);
            let is_of_own = |route: &&RouteEntry| {
                host.attached.iter().any(|(_, network)| covers(*network, route.destination))
            };
            let of_family: Vec<&RouteEntry> =
                routes.iter().copied().filter(|route| route.destination.address.is_ipv6() == ipv6).collect();
            let [first, ..] = &of_family[..] else { continue };
            let has_gateway = of_family.iter().any(|route| matches!(route.action, RouteAction::Gateways(_)));
            if table == MAIN_TABLE
                || !has_gateway
                || !of_family.iter().all(is_of_own)
                || host.routing.files.unknown_in(table).next().is_some()
            {
                continue;
            }
            let mine: BTreeSet<&str> =
                of_family.iter().flat_map(|route| outputs(host, route)).flatten().collect();
            let default = host.main().iter().copied().find(|route| is_default(route, ipv6));
            let others: Vec<&str> =
                default.into_iter().flat_map(|route| outputs(host, route)).flatten().collect();
            let leaves_elsewhere = others.iter().any(|other| !mine.contains(other));
            if !leaves_elsewhere || !reported.insert((table, ipv6)) {
                continue;
            }
            let message = format!(
                "table {table} leads to {} alone, which is a network of this host itself: replies to everybody else \
                 go on to the main table and leave by {}, not by {}",
                first.destination,
                list(&others),
                list(&mine),
            );
            found.push(
                finding(host, "table", FindingClass::Routing, "own-network-only", Severity::Warning, message)
                    .of(ip_syntax::rule(rule))
                    .at(first.place.as_ref())
                    .advise(format!("write the default route over that gateway into table {table}"))
                    .sourced("ip-rule(8)"),
            );
        }
    }
}

/// A table that took the network of its interface out of the main table.
pub(super) fn network_left_main(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let files = &host.routing.files;
    for ((name, ipv6), table) in &files.connected {
        if *table == MAIN_TABLE || files.vrf_members.contains_key(name) {
            continue;
        }
        for (_, network) in
            host.attached.iter().filter(|(it, network)| it == name && network.address.is_ipv6() == *ipv6)
        {
            let is_led = host.routing.rules.iter().any(|rule| {
                let leads = matches!(rule.action, RuleAction::Table(to) if to == *table);
                leads
                    && rule.ipv6 == *ipv6
                    && rule.selector.to.map_or(rule.selector.from.is_none(), |to| overlap(to, *network))
            });
            let in_main = host
                .main()
                .iter()
                .any(|route| route.destination.length > 0 && covers(route.destination, *network));
            let others = host.attached.iter().any(|(other, it)| {
                other != name && covers(*it, *network) && files.connected_table(other, *ipv6) == MAIN_TABLE
            });
            if is_led || in_main || others {
                continue;
            }
            let place =
                host.routing.interfaces.iter().filter(|it| it.name == *name).flat_map(|it| &it.addresses);
            let place = place.clone().find(|address| network.contains(address.value.address));
            let message = format!(
                "table {table} takes all routes of {name}, the one to its own network {network} too, and no rule leads \
                 there by destination: what this host sends to {network} before a source address is chosen goes by the \
                 main table, over its default route or nowhere"
            );
            found.push(
                finding(
                    host,
                    "route",
                    FindingClass::Routing,
                    "network-left-main",
                    Severity::Warning,
                    message,
                )
                .of(format!("{network} table {table}"))
                .at(place.and_then(|address| address.place.as_ref()))
                .on(name)
                .advise(format!(
                    "add a rule \"to {network} table {table}\", or a route to {network} with table=254"
                ))
                .sourced("nm-settings-nmcli(5), route-table"),
            );
        }
    }
}
