//! Tables and their contents.

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteAction, RouteEntry, RuleAction, files::Loader},
    tune::{Finding, FindingClass, Severity},
};

use super::{
    super::{
        Facts, View, With, finding, ip_syntax,
        view::{covers, overlap},
    },
    policy::KERNEL_TABLES,
};

/// Tables of one's own with routes.
fn own_tables<'v, 'a>(host: &'v View<'a>) -> impl Iterator<Item = (u32, &'v [&'a RouteEntry])> {
    let tables = host.tables.iter().map(|(table, routes)| (*table, routes.as_slice()));
    tables.filter(|(table, _)| !KERNEL_TABLES.contains(table))
}

/// A rule that may lead to any table: those of VRFs (`l3mdev`), and those whose table is not known.
fn leads_anywhere(host: &View<'_>) -> bool {
    host.routing.rules.iter().any(|rule| {
        rule.selector.other.iter().any(|field| field.contains("l3mdev"))
            || matches!(&rule.action, RuleAction::Other(action) if action.contains("l3mdev"))
            // A table that a shell fills in.
            || matches!(&rule.action, RuleAction::Other(action) if action.starts_with("table ") || action == "unknown")
    })
}

/// A table that no rule refers to.
pub(super) fn no_rule(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    if leads_anywhere(host) || host.routing.rules.is_empty() && !host.is_whole() {
        return;
    }
    let used_tables = host.tables_of_rules();
    let is_unused =
        |table: &u32| !used_tables.contains(table) && !host.routing.files.vrf_tables.contains(table);
    for (table, routes) in own_tables(host).filter(|(table, _)| is_unused(table)) {
        let first = routes[0];
        let message = format!(
            "no rule refers to table {table}: its {} never used",
            if routes.len() == 1 { "route is".to_owned() } else { format!("{} routes are", routes.len()) }
        );
        found.push(
            finding(host, "table", FindingClass::NoOp, "no-rule", Severity::Warning, message)
                .of(table.to_string())
                .at(first.place.as_ref())
                .advise(format!(
                    "add the rule, as in \"ip rule add priority {table} from ADDRESS table {table}\", or \
                     delete the table"
                ))
                .sourced("ip-rule(8)"),
        );
    }
}

/// Tables in input without any rule.
pub(super) fn no_rules_given(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    if host.is_whole() || !host.routing.rules.is_empty() || leads_anywhere(host) {
        return;
    }
    let tables: Vec<_> =
        own_tables(host).filter(|(table, _)| !host.routing.files.vrf_tables.contains(table)).collect();
    let [(_, routes), ..] = &tables[..] else { return };
    let numbers = list(tables.iter().map(|(table, _)| table));
    let (subject, verb) = if tables.len() == 1 { ("table", "is") } else { ("tables", "are") };
    let message = format!("no rule was given: whether {subject} {numbers} {verb} ever used is unknown");
    found.push(
        finding(host, "table", FindingClass::Unverifiable, "no-rules-given", Severity::Note, message)
            .of(numbers)
            .at(routes[0].place.as_ref())
            .advise("give the rules too (\"ip rule show\", or the file that sets them)")
            .sourced("ip-rule(8)"),
    );
}

/// Two routes of a table for the same destination. What becomes of the second depends on what brings it into the
/// kernel.
pub(super) fn used_twice(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut seen: BTreeMap<_, &RouteEntry> = BTreeMap::new();
    for route in &host.routing.routes {
        let key = (route.table, route.destination.network(), route.metric);
        let Some(first) = seen.get(&key) else {
            seen.insert(key, route);
            continue;
        };
        let Some(second) = second_of(host, first, route) else { continue };
        let before = first.place.as_ref().and_then(|place| place.line).map(|line| format!(" (line {line})"));
        let message = format!(
            "table {} has \"{}\"{} already: {}",
            route.table,
            ip_syntax::route(first),
            before.unwrap_or_default(),
            second.consequence,
        );
        let (cause, class) = match second.is_same {
            true => ("listed-twice", FindingClass::NoOp),
            false => ("used-twice", FindingClass::Contradiction),
        };
        found.push(
            finding(host, "table", class, cause, second.severity, message)
                .of(ip_syntax::route(route))
                .at(route.place.as_ref())
                .advise(
                    "give each gateway a table of its own, or make one route with several next hops of them",
                )
                .sourced("ip-route(8); measured with Linux 6.18 and systemd-networkd 252"),
        );
    }
}

/// What becomes of the second route of a destination, table and metric.
struct Second {
    is_same: bool,
    severity: Severity,
    consequence: String,
}

/// Absent where both are used, as they are meant.
fn second_of(host: &View<'_>, first: &RouteEntry, second: &RouteEntry) -> Option<Second> {
    let (before, by) = (host.loader(first.place.as_ref()), host.loader(second.place.as_ref()));
    let is_same = first.action == second.action;
    let ipv6 = second.destination.address.is_ipv6();
    let file = |route: &RouteEntry| route.place.as_ref().map(|place| place.file.clone());
    // Of several profiles for one interface one is active.
    if by == Loader::NetworkManager && file(first) != file(second) && !interfaces_differ(host, first, second)
    {
        return None;
    }
    // Whether both commands run is not known.
    if [before, by].contains(&Loader::Conditional) {
        return None;
    }
    let (severity, consequence) = match by {
        // The kernel joins routes of IPv6 that differ in their gateway only (net/ipv6/ip6_fib.c, siblings).
        Loader::Kernel | Loader::Append | Loader::Networkd | Loader::NetworkManager if ipv6 && !is_same => {
            return None;
        }
        // The second of two that are equal is the first one.
        Loader::Kernel | Loader::Networkd | Loader::NetworkManager if is_same => return None,
        Loader::NetworkScripts if ipv6 || interfaces_differ(host, first, second) => return None,
        Loader::Command | Loader::Conditional => {
            let which = if is_same { "one" } else { "the first" };
            let severity =
                if is_same || before != Loader::Command { Severity::Warning } else { Severity::Error };
            let refused =
                format!("the kernel refuses the second with \"File exists\", and only {which} is in effect");
            (severity, refused)
        }
        Loader::Kernel | Loader::Append => {
            (Severity::Warning, "the kernel holds both, and only the first is used".to_owned())
        }
        Loader::Networkd => {
            let consequence =
                "systemd-networkd adds both, and the kernel uses one of them, the one that was added last";
            (Severity::Warning, consequence.to_owned())
        }
        Loader::NetworkManager => {
            let consequence = "NetworkManager adds both, and the kernel uses the one that was added first";
            (Severity::Warning, consequence.to_owned())
        }
        Loader::NetworkScripts => (Severity::Warning, "only one of them is used".to_owned()),
    };
    Some(Second { is_same, severity, consequence })
}

/// Whether two routes leave by different interfaces, each of which has a metric of its own behind NetworkManager.
fn interfaces_differ(host: &View<'_>, first: &RouteEntry, second: &RouteEntry) -> bool {
    let output = |route: &RouteEntry| match &route.action {
        RouteAction::Link { interface } => Some(interface.clone()),
        RouteAction::Gateways(hops) => hops.first().and_then(|hop| hop.interface.clone()),
        _ => None,
    };
    !host.is_whole() && output(first) != output(second)
}

/// A remote network written as a neighbour, in a table whose other route would
/// have led there.
pub(super) fn on_link_hides_default(facts: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for (table, routes) in &host.tables {
        for route in routes {
            let RouteAction::Link { interface } = &route.action else { continue };
            // A single neighbour is named by intent: a gateway elsewhere, a container.
            if is_always_on_link(route)
                || is_of_the_link(route)
                || route.destination == Prefix::host(route.destination.address)
            {
                continue;
            }
            let Some(beaten) = beaten(host, routes, route, interface) else { continue };
            let Some((severity, why)) = why_remote(facts, host, route, interface) else { continue };
            let gateway = list(host.hops(beaten).iter().map(|hop| hop.via));
            let message = format!(
                "table {table} has {} as neighbours on {interface}, {why}; it is more exact than \"{}\", \
                 so {gateway} gets no packet for it: the host resolves on the link addresses that are not on \
                 it, and sends fail with \"No route to host\"",
                route.destination,
                ip_syntax::route(beaten),
            );
            let own = host.attached.iter().find(|(name, network)| {
                name == interface && network.address.is_ipv4() == route.destination.address.is_ipv4()
            });
            found.push(
                finding(host, "route", FindingClass::Routing, "on-link-beats-default", severity, message)
                    .of(ip_syntax::route(route))
                    .at(route.place.as_ref())
                    .advise(format!(
                        "delete the line; the network that belongs there is that of {interface} itself{}",
                        own.map_or_else(String::new, |(_, network)| format!(", {network}"))
                    ))
                    .sourced("ip-route(8), longest prefix first; measured: the table black-holes"),
            );
        }
    }
}

/// The network of an address (RTPROT_KERNEL of rtnetlink(7)), or one that a router advertised as on the link (RTPROT_RA;
/// RFC 4861, section 6.3.4).
fn is_of_the_link(route: &RouteEntry) -> bool {
    const RTPROT_KERNEL: u8 = 2;
    const RTPROT_RA: u8 = 9;
    matches!(route.protocol, RTPROT_KERNEL | RTPROT_RA)
}

/// Link-local and multicast destinations (RFC 3927, 4291, 5771).
fn is_always_on_link(route: &RouteEntry) -> bool {
    match route.destination.address {
        IpAddr::V4(address) => address.is_link_local() || address.is_multicast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}

/// The less specific route over a gateway that this one hides, by the same
/// interface.
fn beaten<'a>(
    host: &View<'a>,
    routes: &[&'a RouteEntry],
    route: &RouteEntry,
    interface: &str,
) -> Option<&'a RouteEntry> {
    // A next hop without interface may be on this one.
    let by_it = |other: &'a RouteEntry| {
        host.hops(other).iter().any(|hop| host.interface_of(hop).is_none_or(|name| name == interface))
    };
    let wider = routes.iter().copied().filter(|other| {
        other.destination.length < route.destination.length
            && covers(other.destination, route.destination)
            && by_it(other)
    });
    wider.max_by_key(|other| other.destination.length)
}

/// Why a network cannot be on the link; absent where it may be. Without an address in it it may be one more network of
/// the link.
fn why_remote(
    facts: &Facts<'_>,
    host: &View<'_>,
    route: &RouteEntry,
    interface: &str,
) -> Option<(Severity, String)> {
    let destination = route.destination;
    let mine = host.attached.iter().filter(|(name, _)| *name == interface);
    let mine: Vec<_> = mine.filter(|(_, network)| overlap(*network, destination)).collect();
    if !mine.is_empty() {
        return None;
    }
    let by_gateway = host.routing.routes.iter().find(|other| {
        other.destination.length > 0
            && covers(other.destination, destination)
            && !host.hops(other).is_empty()
            && (other.table != route.table || other.destination != destination)
    });
    if let Some(other) = by_gateway {
        let table = if other.table == MAIN_TABLE { "main".to_owned() } else { other.table.to_string() };
        return Some((Severity::Error, format!("while table {table} reaches it over gateways")));
    }
    if let Some(network) = facts.fabric.network_of(destination)
        && host.attached.iter().any(|(_, attached)| !overlap(network.prefix, *attached))
    {
        return Some((Severity::Error, format!("which is the network {} of the fabric", network.name)));
    }
    host.knows_addresses(Some(interface), destination.address)
        .then(|| (Severity::Warning, format!("where {interface} has no address in it")))
}

/// A route over gateways to what is no network of the fabric.
pub(super) fn not_in_the_fabric(facts: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for route in host.routing.routes.iter().filter(|route| route.destination.length > 0) {
        let hops = host.hops(route);
        let Some(gateway) = hops.iter().find_map(|hop| facts.fabric.gateway(hop.via)) else { continue };
        if facts.fabric.networks.iter().any(|network| overlap(network.prefix, route.destination)) {
            continue;
        }
        let others = facts.fabric.networks.iter();
        let others = others.filter(|network| {
            network.prefix.address.is_ipv4() == route.destination.address.is_ipv4()
                && !hops.iter().any(|hop| network.prefix.contains(hop.via))
        });
        let message = format!(
            "{} is none of the fabric's networks: gateway {} has no interface there, and the network beyond \
             the gateways, {}, is not reached by this route",
            route.destination,
            gateway.name,
            list(others.clone().map(|network| network.prefix)),
        );
        found.push(
            finding(host, "route", FindingClass::Routing, "not-the-other-network", Severity::Error, message)
                .of(ip_syntax::route(route))
                .at(route.place.as_ref())
                .advise(format!("write {}", list(others.map(|network| network.prefix))))
                .sourced("the fabric file"),
        );
    }
}
