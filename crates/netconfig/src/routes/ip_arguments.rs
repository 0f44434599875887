//! The words of `ip` for what a host routes by, as batches of `ip -batch`
//! take them and the files of the network scripts: those of settings
//! (`clearstream_schema::routing`), with what names the place in front.

use std::fmt::Write;

use clearstream_schema::routing::{MAIN_TABLE, Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleEntry};

/// Words behind `ip nexthop replace`.
pub(crate) fn nexthop(nexthop: &Nexthop) -> String {
    format!("id {} {}", nexthop.id, nexthop.ip_arguments())
}

/// Words behind `ip route replace`; those of a type come before the destination.
pub(crate) fn route(route: &RouteEntry) -> String {
    let all = route.ip_arguments();
    let is_type = matches!(
        route.action,
        RouteAction::Blackhole | RouteAction::Unreachable | RouteAction::Prohibit | RouteAction::Throw
    );
    let (kind, rest) = if is_type { all.split_once(' ').unwrap_or((&all, "")) } else { ("", all.as_str()) };
    let mut words = format!("{kind} {}", route.destination);
    if route.table != MAIN_TABLE {
        let _ = write!(words, " table {}", route.table);
    }
    if route.metric != 0 {
        let _ = write!(words, " metric {}", route.metric);
    }
    format!("{words} {rest}").trim().to_owned()
}

/// Words behind `ip rule add`. The owner comes last, where `apply` looks for it.
pub(crate) fn rule(rule: &RuleEntry) -> String {
    let mut plain = RuleEntry { protocol: 0, ..rule.clone() };
    for word in &mut plain.selector.other {
        *word = shortest(word).to_owned();
    }
    let mut words = format!("{} {}", plain.selector.ip_arguments(), plain.ip_arguments());
    if let Some(priority) = rule.priority {
        let _ = write!(words, " priority {priority}");
    }
    if rule.protocol != 0 {
        let _ = write!(words, " protocol {}", rule.protocol);
    }
    words
}

/// A range of one port is written as the port, which every version takes.
pub(crate) fn shortest(word: &str) -> &str {
    match word.split_once('-') {
        Some((first, last)) if first == last => first,
        _ => word,
    }
}

/// A mark, with its mask where that leaves bits out.
pub(crate) fn mark(mark: u32, mask: u32) -> String {
    if mask == u32::MAX { format!("{mark:#x}") } else { format!("{mark:#x}/{mask:#x}") }
}

/// An Ansible-safe list of the words of nexthops, gateways before groups, and
/// routes behind both.
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
