//! Routes and rules in the syntax of ip(8), for messages.

use clearstream_schema::{
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteAction, RouteEntry, RuleAction, RuleEntry},
};

/// `from 10.10.0.12 table 2`.
pub(super) fn rule(rule: &RuleEntry) -> String {
    let selector = &rule.selector;
    let mut arguments = Vec::new();
    if let Some(priority) = rule.priority {
        arguments.push(format!("priority {priority}"));
    }
    if selector.inverted {
        arguments.push("not".to_owned());
    }
    arguments.extend(selector.from.map(|from| format!("from {}", prefix(from))));
    arguments.extend(selector.to.map(|to| format!("to {}", prefix(to))));
    arguments.extend(selector.mark.map(|(mark, mask)| match mask {
        u32::MAX => format!("fwmark {mark:#x}"),
        _ => format!("fwmark {mark:#x}/{mask:#x}"),
    }));
    arguments.extend(selector.input.as_ref().map(|input| format!("iif {input}")));
    arguments.extend(selector.output.as_ref().map(|output| format!("oif {output}")));
    arguments.extend(selector.other.iter().cloned());
    arguments.push(match &rule.action {
        RuleAction::Table(table) => format!("table {table}"),
        RuleAction::Other(action) => action.clone(),
    });
    arguments.join(" ")
}

/// `10.100.0.0/16 dev ib1 table 1`; for several gateways only their number.
pub(super) fn route(route: &RouteEntry) -> String {
    let mut text = match route.destination.length {
        0 => "default".to_owned(),
        _ => route.destination.to_string(),
    };
    text.push_str(&match &route.action {
        RouteAction::Link { interface } => format!(" dev {interface}"),
        RouteAction::Gateways(hops) => match &hops[..] {
            [hop] => {
                let interface = hop.interface.as_ref().map(|name| format!(" dev {name}"));
                format!(" via {}{}", hop.via, interface.unwrap_or_default())
            }
            hops => format!(" over {} gateways", hops.len()),
        },
        RouteAction::Nexthop(id) => format!(" nhid {id}"),
        RouteAction::Blackhole => " blackhole".to_owned(),
        RouteAction::Unreachable => " unreachable".to_owned(),
        RouteAction::Prohibit => " prohibit".to_owned(),
        RouteAction::Throw => " throw".to_owned(),
    });
    if route.table != MAIN_TABLE {
        text.push_str(&format!(" table {}", route.table));
    }
    text
}

/// A network; a single address without its length.
pub(super) fn prefix(prefix: Prefix) -> String {
    if prefix == Prefix::host(prefix.address) { prefix.address.to_string() } else { prefix.to_string() }
}
