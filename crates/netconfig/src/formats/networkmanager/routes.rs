//! Connection profiles of NetworkManager (nm-settings-keyfile(5)), one for
//! each interface.

use std::fmt::Write;

use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{Hop, HostRouting, RouteAction, RouteEntry, RoutingInterface, RuleAction, RuleEntry},
};

use crate::routes::{
    RenderedFile, ip_arguments,
    split::{Grammar, Order, Owners, routes_of, rules_of},
};

pub(super) const GRAMMAR: Grammar = Grammar {
    name: "NetworkManager",
    route: |route| match &route.action {
        // nm-settings, `weight`: "only for IPv4".
        RouteAction::Gateways(hops) if hops.len() > 1 && route.destination.address.is_ipv6() => {
            Some("several next hops for IPv6")
        }
        _ => None,
    },
    rule: |rule| {
        let known = ["ipproto", "sport", "dport", "tos", "suppress_prefixlength", "uidrange"];
        if rule.priority.is_none() {
            return Some("rules without priority");
        }
        if rule.selector.other.iter().step_by(2).any(|name| !known.contains(&name.as_str())) {
            return Some("rules by rarer selectors");
        }
        match &rule.action {
            RuleAction::Other(other) if !is_type(other) => Some("rules with rarer actions"),
            _ => None,
        }
    },
    nexthop: |_| Some("nexthop objects"),
    // It merges profiles in an unspecified order.
    keeps_order: Order { routes: false, groups: false },
    owners: Owners { routes: false, rules: false },
};

fn is_type(action: &str) -> bool {
    matches!(action, "blackhole" | "unreachable" | "prohibit")
}

/// A profile for each interface, readable by root alone, as NetworkManager wants it.
pub(super) fn files(routing: &HostRouting) -> Vec<RenderedFile> {
    routing
        .interfaces
        .iter()
        .map(|interface| {
            let path =
                format!("etc/NetworkManager/system-connections/clearstream-{}.nmconnection", interface.name);
            RenderedFile::private(path, profile(routing, interface))
        })
        .collect()
}

fn profile(routing: &HostRouting, interface: &RoutingInterface) -> String {
    let name = &interface.name;
    let kind = if interface.infiniband_mode.is_some() { "infiniband" } else { "ethernet" };
    let uuid = uuid(&routing.host, name);
    let mut text = format!(
        "[connection]\nid=clearstream-{name}\nuuid={uuid}\ntype={kind}\ninterface-name={name}\n\
         autoconnect-priority=100\n\n[{kind}]\n"
    );
    if let Some(mtu) = &interface.mtu {
        let _ = writeln!(text, "mtu={}", mtu.value);
    }
    match interface.infiniband_mode.as_ref().map(|mode| mode.value) {
        Some(InfinibandMode::Connected) => text.push_str("transport-mode=connected\n"),
        Some(InfinibandMode::Datagram) => text.push_str("transport-mode=datagram\n"),
        None => {}
    }
    for ipv6 in [false, true] {
        let _ = write!(text, "\n[{}]\n", if ipv6 { "ipv6" } else { "ipv4" });
        family(routing, interface, ipv6, &mut text);
    }
    text
}

fn family(routing: &HostRouting, interface: &RoutingInterface, ipv6: bool, text: &mut String) {
    let addresses: Vec<_> =
        interface.addresses.iter().filter(|address| address.value.address.is_ipv6() == ipv6).collect();
    let method = match (addresses.is_empty(), ipv6) {
        (false, _) => "manual",
        (true, true) => "link-local",
        (true, false) => "disabled",
    };
    let _ = writeln!(text, "method={method}");
    for (number, address) in (1..).zip(addresses) {
        let _ = writeln!(text, "address{number}={}", address.value);
    }
    let routes =
        routes_of(routing, &interface.name).filter(|route| route.destination.address.is_ipv6() == ipv6);
    let mut number = 0;
    for route in routes {
        match &route.action {
            RouteAction::Gateways(hops) => {
                for hop in hops {
                    number += 1;
                    one_route(route, Some(hop), hops.len() > 1, number, text);
                }
            }
            _ => {
                number += 1;
                one_route(route, None, false, number, text);
            }
        }
    }
    let rules = rules_of(routing, &interface.name).filter(|rule| rule.ipv6 == ipv6);
    for (number, rule) in (1..).zip(rules) {
        let _ = writeln!(text, "routing-rule{number}={}", rule_arguments(rule));
    }
}

/// The metric is always written: NetworkManager's own default is 100 and more.
fn one_route(route: &RouteEntry, hop: Option<&Hop>, is_one_of_several: bool, number: u32, text: &mut String) {
    let none = if route.destination.address.is_ipv6() { "::" } else { "0.0.0.0" };
    let via = hop.map_or_else(|| none.to_owned(), |hop| hop.via.to_string());
    let _ = writeln!(text, "route{number}={},{via},{}", route.destination, route.metric);
    let mut options = vec![format!("table={}", route.table)];
    if let (true, Some(hop)) = (is_one_of_several, hop) {
        options.push(format!("weight={}", hop.weight));
    }
    if let Some(source) = route.source {
        options.push(format!("src={source}"));
    }
    if let Some(mtu) = route.mtu {
        options.push(format!("mtu={mtu}"));
    }
    options.extend(route.action.type_keyword().map(|kind| format!("type={kind}")));
    let _ = writeln!(text, "route{number}_options={}", options.join(","));
}

fn rule_arguments(rule: &RuleEntry) -> String {
    let everything = if rule.ipv6 { "::/0" } else { "0.0.0.0/0" };
    let selector = &rule.selector;
    let mut text = format!("priority {}", rule.priority.unwrap_or_default());
    if selector.inverted {
        text.push_str(" not");
    }
    match selector.from {
        Some(from) => {
            let _ = write!(text, " from {from}");
        }
        None => {
            let _ = write!(text, " from {everything}");
        }
    }
    if let Some(to) = selector.to {
        let _ = write!(text, " to {to}");
    }
    if let Some((mark, mask)) = selector.mark {
        let _ = write!(text, " fwmark {}", ip_arguments::mark(mark, mask));
    }
    if let Some(input) = &selector.input {
        let _ = write!(text, " iif {input}");
    }
    if let Some(output) = &selector.output {
        let _ = write!(text, " oif {output}");
    }
    for argument in &selector.other {
        let _ = write!(text, " {}", ip_arguments::shortest(argument));
    }
    match &rule.action {
        RuleAction::Table(table) => {
            let _ = write!(text, " table {table}");
        }
        RuleAction::Other(other) => {
            let _ = write!(text, " type {other}");
        }
    }
    text
}

/// The same number for the same host and interface, in the form of RFC 9562,
/// version 8 (own scheme): FNV-1a of both names, once forwards, once more.
fn uuid(host: &str, interface: &str) -> String {
    let hash = |seed: u64| {
        let bytes = host.bytes().chain([0]).chain(interface.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    let (high, low) = (hash(0), hash(0x9e37_79b9_7f4a_7c15));
    format!(
        "{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff
    )
}
