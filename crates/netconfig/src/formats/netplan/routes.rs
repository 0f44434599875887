//! Netplan, one file, with networkd behind it for its interfaces: behind
//! NetworkManager it writes no rules.

use std::fmt::Write;

use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{HostRouting, RouteAction, RouteEntry, RoutingInterface, RuleAction, RuleEntry},
};

use crate::routes::{
    RenderedFile,
    split::{Grammar, Order, Owners, routes_of, rules_of},
};

pub(super) const GRAMMAR: Grammar = Grammar {
    name: "netplan",
    route: |route| match &route.action {
        RouteAction::Gateways(hops) if hops.len() > 1 => Some("routes with several next hops"),
        _ => None,
    },
    rule: |rule| {
        let selector = &rule.selector;
        let is_masked = selector.mark.is_some_and(|(_, mask)| mask != u32::MAX);
        if selector.inverted || selector.input.is_some() || selector.output.is_some() || is_masked {
            return Some("rules by interface, mask or inversion");
        }
        if !selector.other.is_empty() {
            return Some("rules by rarer selectors");
        }
        match &rule.action {
            RuleAction::Other(_) => Some("rules with actions"),
            RuleAction::Table(_) => None,
        }
    },
    nexthop: |_| Some("nexthop objects"),
    keeps_order: Order { routes: true, groups: true },
    owners: Owners { routes: false, rules: false },
};

pub(super) fn files(routing: &HostRouting) -> Vec<RenderedFile> {
    if routing.interfaces.is_empty() {
        return Vec::new();
    }
    let mut text = "network:\n  version: 2\n  ethernets:\n".to_owned();
    for interface in &routing.interfaces {
        device(routing, interface, &mut text);
    }
    vec![RenderedFile::private("etc/netplan/90-clearstream-routes.yaml", text)]
}

fn device(routing: &HostRouting, interface: &RoutingInterface, text: &mut String) {
    let name = &interface.name;
    let _ = write!(text, "    \"{name}\":\n      renderer: networkd\n      addresses:\n");
    for address in &interface.addresses {
        let _ = writeln!(text, "        - \"{}\"", address.value);
    }
    if let Some(mtu) = &interface.mtu {
        let _ = writeln!(text, "      mtu: {}", mtu.value);
    }
    match interface.infiniband_mode.as_ref().map(|mode| mode.value) {
        Some(InfinibandMode::Connected) => text.push_str("      infiniband-mode: connected\n"),
        Some(InfinibandMode::Datagram) => text.push_str("      infiniband-mode: datagram\n"),
        None => {}
    }
    let routes: Vec<&RouteEntry> = routes_of(routing, name).collect();
    if !routes.is_empty() {
        text.push_str("      routes:\n");
    }
    for known in routes {
        route(known, text);
    }
    let rules: Vec<&RuleEntry> = rules_of(routing, name).collect();
    if !rules.is_empty() {
        text.push_str("      routing-policy:\n");
    }
    for known in rules {
        rule(known, text);
    }
}

fn route(route: &RouteEntry, text: &mut String) {
    let _ = writeln!(text, "        - to: \"{}\"", route.destination);
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "          {key}: {value}");
    };
    match &route.action {
        RouteAction::Gateways(hops) => {
            for hop in hops {
                line("via", &format!("\"{}\"", hop.via));
            }
        }
        action => match action.type_keyword() {
            Some(kind) => line("type", kind),
            None => line("scope", "link"),
        },
    }
    line("table", &route.table.to_string());
    if route.metric != 0 {
        line("metric", &route.metric.to_string());
    }
    if let Some(source) = route.source {
        line("from", &format!("\"{source}\""));
    }
    if let Some(mtu) = route.mtu {
        line("mtu", &mtu.to_string());
    }
}

/// A rule needs `from` or `to`; the prefix of a whole family sets the family.
fn rule(rule: &RuleEntry, text: &mut String) {
    let selector = &rule.selector;
    let everything = if rule.ipv6 { "::/0" } else { "0.0.0.0/0" };
    let from = selector.from.map_or_else(|| everything.to_owned(), |from| from.to_string());
    let _ = writeln!(text, "        - from: \"{from}\"");
    if let Some(to) = selector.to {
        let _ = writeln!(text, "          to: \"{to}\"");
    }
    if let Some((mark, _)) = selector.mark {
        let _ = writeln!(text, "          mark: {mark}");
    }
    if let RuleAction::Table(table) = &rule.action {
        let _ = writeln!(text, "          table: {table}");
    }
    if let Some(priority) = rule.priority {
        let _ = writeln!(text, "          priority: {priority}");
    }
}
