//! `.network` files of systemd-networkd (systemd.network(5)), one for each
//! interface.

use std::fmt::Write;

use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{
        HostRouting, Nexthop, NexthopTarget, RouteAction, RouteEntry, RoutingInterface, RuleAction, RuleEntry,
    },
};

use crate::routes::{
    RenderedFile,
    ip_arguments::shortest,
    split::{Grammar, Order, Owners, routes_of, rules_of},
};

/// Selectors of rules and their keys (systemd.network(5), [RoutingPolicyRule]).
const SELECTORS: [(&str, &str); 7] = [
    ("tos", "TypeOfService"),
    ("sport", "SourcePort"),
    ("dport", "DestinationPort"),
    ("ipproto", "IPProtocol"),
    ("uidrange", "User"),
    ("suppress_prefixlength", "SuppressPrefixLength"),
    ("suppress_ifgroup", "SuppressInterfaceGroup"),
];

pub(super) const GRAMMAR: Grammar = Grammar {
    name: "systemd-networkd",
    route: |_| None,
    rule: |rule| {
        let is_known = |selector: &String| SELECTORS.iter().any(|(name, _)| name == selector);
        if !rule.selector.other.iter().step_by(2).all(is_known) {
            return Some("rules by rarer selectors");
        }
        match &rule.action {
            RuleAction::Other(other)
                if !matches!(other.as_str(), "blackhole" | "unreachable" | "prohibit") =>
            {
                Some("rules with rarer actions")
            }
            _ => None,
        }
    },
    nexthop: |nexthop| match &nexthop.target {
        NexthopTarget::Group { resilient: Some(_), .. } => Some("resilient nexthop groups"),
        NexthopTarget::Group { members, .. } if members.iter().any(|member| member.weight > 256) => {
            Some("weights above 256")
        }
        _ => None,
    },
    // Measured with version 252: members of a group come in any order.
    keeps_order: Order { routes: true, groups: false },
    owners: Owners { routes: true, rules: false },
};

pub(super) fn files(routing: &HostRouting) -> Vec<RenderedFile> {
    routing
        .interfaces
        .iter()
        .map(|interface| {
            // Files are taken in the order of their names, the first that matches.
            let path = format!("etc/systemd/network/05-clearstream-{}.network", interface.name);
            RenderedFile::text(path, network(routing, interface))
        })
        .collect()
}

fn network(routing: &HostRouting, interface: &RoutingInterface) -> String {
    let name = &interface.name;
    let mut text = format!("[Match]\nName={name}\n");
    if let Some(mtu) = &interface.mtu {
        let _ = write!(text, "\n[Link]\nMTUBytes={}\n", mtu.value);
    }
    text.push_str("\n[Network]\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=no\n");
    for address in &interface.addresses {
        let _ = writeln!(text, "Address={}", address.value);
    }
    if let Some(mode) = &interface.infiniband_mode {
        let mode = match mode.value {
            InfinibandMode::Connected => "connected",
            InfinibandMode::Datagram => "datagram",
        };
        let _ = write!(text, "\n[IPoIB]\nMode={mode}\n");
    }
    let first = routing.interfaces.first().map(|known| known.name.as_str());
    for known in &routing.nexthops {
        let home = match &known.target {
            NexthopTarget::Gateway { interface, .. } => Some(interface.as_str()),
            _ => first,
        };
        if home == Some(name.as_str()) {
            nexthop(known, &mut text);
        }
    }
    for known in routes_of(routing, name) {
        route(known, &mut text);
    }
    for known in rules_of(routing, name) {
        rule(known, &mut text);
    }
    text
}

fn nexthop(nexthop: &Nexthop, text: &mut String) {
    let _ = write!(text, "\n[NextHop]\nId={}\n", nexthop.id);
    match &nexthop.target {
        NexthopTarget::Gateway { via, .. } => {
            let _ = writeln!(text, "Gateway={via}");
        }
        NexthopTarget::Group { members, .. } => {
            let list: Vec<_> =
                members.iter().map(|member| format!("{}:{}", member.id, member.weight)).collect();
            let _ = writeln!(text, "Group={}", list.join(" "));
        }
        NexthopTarget::Blackhole => text.push_str("Family=ipv4\nBlackhole=yes\n"),
    }
}

fn route(route: &RouteEntry, text: &mut String) {
    let _ = write!(text, "\n[Route]\nDestination={}\n", route.destination);
    match &route.action {
        RouteAction::Link { .. } => {
            if route.destination.address.is_ipv4() {
                text.push_str("Scope=link\n");
            }
        }
        RouteAction::Gateways(hops) => match hops.as_slice() {
            [hop] => {
                let _ = writeln!(text, "Gateway={}", hop.via);
            }
            hops => {
                for hop in hops {
                    let interface = hop.interface.as_deref().unwrap_or_default();
                    let _ = writeln!(text, "MultiPathRoute={}@{interface} {}", hop.via, hop.weight);
                }
            }
        },
        RouteAction::Nexthop(id) => {
            let _ = writeln!(text, "NextHop={id}");
        }
        action => {
            let _ = writeln!(text, "Type={}", action.type_keyword().unwrap_or_default());
        }
    }
    let _ = writeln!(text, "Table={}", route.table);
    if route.metric != 0 {
        let _ = writeln!(text, "Metric={}", route.metric);
    }
    if let Some(source) = route.source {
        let _ = writeln!(text, "PreferredSource={source}");
    }
    if let Some(mtu) = route.mtu {
        let _ = writeln!(text, "MTUBytes={mtu}");
    }
    if route.protocol != 0 {
        let _ = writeln!(text, "Protocol={}", route.protocol);
    }
}

fn rule(rule: &RuleEntry, text: &mut String) {
    let selector = &rule.selector;
    text.push_str("\n[RoutingPolicyRule]\n");
    let _ = writeln!(text, "Family={}", if rule.ipv6 { "ipv6" } else { "ipv4" });
    if let Some(priority) = rule.priority {
        let _ = writeln!(text, "Priority={priority}");
    }
    if selector.inverted {
        text.push_str("InvertRule=yes\n");
    }
    if let Some(from) = selector.from {
        let _ = writeln!(text, "From={from}");
    }
    if let Some(to) = selector.to {
        let _ = writeln!(text, "To={to}");
    }
    if let Some((mark, mask)) = selector.mark {
        let mask = if mask == u32::MAX { String::new() } else { format!("/{mask}") };
        let _ = writeln!(text, "FirewallMark={mark}{mask}");
    }
    if let Some(input) = &selector.input {
        let _ = writeln!(text, "IncomingInterface={input}");
    }
    if let Some(output) = &selector.output {
        let _ = writeln!(text, "OutgoingInterface={output}");
    }
    for [name, value] in selector.other.as_chunks().0 {
        if let Some((_, key)) = SELECTORS.iter().find(|(known, _)| known == name) {
            let _ = writeln!(text, "{key}={}", shortest(value));
        }
    }
    match &rule.action {
        RuleAction::Table(table) => {
            let _ = writeln!(text, "Table={table}");
        }
        RuleAction::Other(other) => {
            let _ = writeln!(text, "Type={other}");
        }
    }
}
