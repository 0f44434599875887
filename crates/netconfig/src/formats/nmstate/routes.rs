//! Nmstate's desired state (<https://nmstate.io/devel/yaml_api.html>).

use std::fmt::Write;

use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{Hop, HostRouting, RouteAction, RouteEntry, RoutingInterface, RuleAction, RuleEntry},
};

use crate::routes::{
    RenderedFile,
    split::{Grammar, Order, Owners, routes_of},
};

pub(super) const GRAMMAR: Grammar = Grammar {
    name: "nmstate",
    route: |route| match &route.action {
        RouteAction::Gateways(hops) if hops.len() > 1 && route.destination.address.is_ipv6() => {
            Some("several next hops for IPv6")
        }
        RouteAction::Throw => Some("routes of type throw"),
        _ => None,
    },
    rule: |rule| {
        let selector = &rule.selector;
        if selector.inverted || selector.output.is_some() {
            return Some("rules by outgoing interface or inversion");
        }
        let is_plain = selector.other.iter().step_by(2).all(|name| name == "suppress_prefixlength");
        if rule.priority.is_none() || !is_plain {
            return Some("rules by rarer selectors or without priority");
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
    nexthop: |_| Some("nexthop objects"),
    // Its profiles list the next hops in any order.
    keeps_order: Order { routes: false, groups: false },
    owners: Owners { routes: false, rules: false },
};

/// Read by `nmstate.service` at every start.
pub(super) fn files(routing: &HostRouting) -> Vec<RenderedFile> {
    if routing.interfaces.is_empty() {
        return Vec::new();
    }
    let mut text = "interfaces:\n".to_owned();
    for known in &routing.interfaces {
        interface(known, &mut text);
    }
    if !routing.routes.is_empty() {
        text.push_str("routes:\n  config:\n");
    }
    for known in &routing.interfaces {
        for known_route in routes_of(routing, &known.name) {
            match &known_route.action {
                RouteAction::Gateways(hops) => {
                    for hop in hops {
                        route(known_route, Some(hop), hops.len() > 1, &known.name, &mut text);
                    }
                }
                _ => route(known_route, None, false, &known.name, &mut text),
            }
        }
    }
    if !routing.rules.is_empty() {
        text.push_str("route-rules:\n  config:\n");
    }
    for known in &routing.rules {
        rule(known, &mut text);
    }
    vec![RenderedFile::private("etc/nmstate/clearstream-routes.yml", text)]
}

fn interface(interface: &RoutingInterface, text: &mut String) {
    let kind = if interface.infiniband_mode.is_some() { "infiniband" } else { "ethernet" };
    let _ = write!(text, "  - name: \"{}\"\n    type: {kind}\n    state: up\n", interface.name);
    if let Some(mtu) = &interface.mtu {
        let _ = writeln!(text, "    mtu: {}", mtu.value);
    }
    if let Some(mode) = &interface.infiniband_mode {
        let mode = match mode.value {
            InfinibandMode::Connected => "connected",
            InfinibandMode::Datagram => "datagram",
        };
        // The whole partition of the fabric (IBA 10.9.1: 0xFFFF, full member).
        let _ = writeln!(text, "    infiniband:\n      mode: {mode}\n      pkey: \"0xffff\"");
    }
    for (family, ipv6) in [("ipv4", false), ("ipv6", true)] {
        let addresses: Vec<_> =
            interface.addresses.iter().filter(|address| address.value.address.is_ipv6() == ipv6).collect();
        if addresses.is_empty() {
            continue;
        }
        let _ = writeln!(text, "    {family}:\n      enabled: true\n      dhcp: false");
        if ipv6 {
            text.push_str("      autoconf: false\n");
        }
        text.push_str("      address:\n");
        for address in addresses {
            let prefix = address.value;
            let _ = writeln!(
                text,
                "        - ip: \"{}\"\n          prefix-length: {}",
                prefix.address, prefix.length
            );
        }
    }
}

fn route(route: &RouteEntry, hop: Option<&Hop>, is_one_of_several: bool, interface: &str, text: &mut String) {
    let _ = writeln!(text, "    - destination: \"{}\"", route.destination);
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "      {key}: {value}");
    };
    match route.action.type_keyword() {
        Some(kind) => line("route-type", kind),
        None => line("next-hop-interface", &format!("\"{interface}\"")),
    }
    if let Some(hop) = hop {
        line("next-hop-address", &format!("\"{}\"", hop.via));
        if is_one_of_several {
            line("weight", &hop.weight.to_string());
        }
    }
    line("table-id", &route.table.to_string());
    // Always written: NetworkManager's own default is 100 and more.
    line("metric", &route.metric.to_string());
    if let Some(source) = route.source {
        line("source", &format!("\"{source}\""));
    }
    if let Some(mtu) = route.mtu {
        line("mtu", &mtu.to_string());
    }
}

fn rule(rule: &RuleEntry, text: &mut String) {
    let selector = &rule.selector;
    let _ = writeln!(text, "    - priority: {}", rule.priority.unwrap_or_default());
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "      {key}: {value}");
    };
    line("family", if rule.ipv6 { "ipv6" } else { "ipv4" });
    if let Some(from) = selector.from {
        line("ip-from", &format!("\"{from}\""));
    }
    if let Some(to) = selector.to {
        line("ip-to", &format!("\"{to}\""));
    }
    if let Some((mark, mask)) = selector.mark {
        line("fwmark", &mark.to_string());
        if mask != u32::MAX {
            line("fwmask", &mask.to_string());
        }
    }
    if let Some(input) = &selector.input {
        line("iif", &format!("\"{input}\""));
    }
    for [_, length] in selector.other.as_chunks().0 {
        line("suppress-prefix-length", length);
    }
    match &rule.action {
        RuleAction::Table(table) => line("route-table", &table.to_string()),
        RuleAction::Other(other) => line("action", other),
    }
}
