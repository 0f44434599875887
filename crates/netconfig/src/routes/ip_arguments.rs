//! Writes the arguments of `ip` for a host's routing, as batches of `ip -batch` and
//! the files of the network scripts have them: those of settings
//! (`clearstream_schema::routing`), after the arguments that name the place.

use std::fmt::Write;

use clearstream_schema::routing::{MAIN_TABLE, Nexthop, NexthopTarget, RouteEntry, RuleEntry};

/// Arguments of `ip nexthop replace`.
pub(crate) fn nexthop(nexthop: &Nexthop) -> String {
    format!("id {} {}", nexthop.id, nexthop.ip_arguments())
}

/// Arguments of `ip route replace`; the keyword of a type comes before the destination.
pub(crate) fn route(route: &RouteEntry) -> String {
    let all = route.ip_arguments();
    let kind = route.action.type_keyword().unwrap_or_default();
    let rest = all.strip_prefix(kind).unwrap_or(&all).trim_start();
    let mut arguments = format!("{kind} {}", route.destination);
    if route.table != MAIN_TABLE {
        let _ = write!(arguments, " table {}", route.table);
    }
    if route.metric != 0 {
        let _ = write!(arguments, " metric {}", route.metric);
    }
    format!("{arguments} {rest}").trim().to_owned()
}

/// Arguments of `ip rule add`. The owner comes last, where `apply` expects it.
pub(crate) fn rule(rule: &RuleEntry) -> String {
    let mut plain = RuleEntry { protocol: 0, ..rule.clone() };
    for argument in &mut plain.selector.other {
        *argument = shortest(argument).to_owned();
    }
    let mut arguments = format!("{} {}", plain.selector.ip_arguments(), plain.ip_arguments());
    if let Some(priority) = rule.priority {
        let _ = write!(arguments, " priority {priority}");
    }
    if rule.protocol != 0 {
        let _ = write!(arguments, " protocol {}", rule.protocol);
    }
    arguments
}

/// A range of one port is written as the port, which every version takes.
pub(crate) fn shortest(argument: &str) -> &str {
    match argument.split_once('-') {
        Some((first, last)) if first == last => first,
        _ => argument,
    }
}

/// A mark, with its mask where that leaves bits out.
pub(crate) fn mark(mark: u32, mask: u32) -> String {
    if mask == u32::MAX { format!("{mark:#x}") } else { format!("{mark:#x}/{mask:#x}") }
}

/// Batch lines of nexthops, gateways before groups, and of routes after both.
pub(crate) fn nexthops_and_routes<'a>(
    nexthops: &'a [Nexthop],
    routes: &'a [RouteEntry],
) -> impl Iterator<Item = String> + 'a {
    let is_group = |known: &&Nexthop| matches!(known.target, NexthopTarget::Group { .. });
    let gateways = nexthops.iter().filter(move |known| !is_group(known));
    let groups = nexthops.iter().filter(is_group);
    gateways
        .chain(groups)
        .map(|known| format!("nexthop replace {}", nexthop(known)))
        .chain(routes.iter().map(|known| format!("route replace {}", route(known))))
}
