//! The words of `ip` for what a host routes by, as batches of `ip -batch`
//! take them and the files of the network scripts.

use std::fmt::Write;

use clearstream_schema::routing::{
    GroupMember, Hop, MAIN_TABLE, Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleAction, RuleEntry,
};

/// Words behind `ip nexthop replace`.
pub(super) fn nexthop(nexthop: &Nexthop) -> String {
    let mut words = format!("id {}", nexthop.id);
    match &nexthop.target {
        NexthopTarget::Gateway { via, interface } => {
            let _ = write!(words, " via {via} dev {interface}");
        }
        NexthopTarget::Group { members, resilient } => {
            let _ = write!(words, " group {}", group(members));
            if let Some(resilient) = resilient {
                let _ = write!(
                    words,
                    " type resilient buckets {} idle_timer {} unbalanced_timer {}",
                    resilient.bucket_count, resilient.idle_seconds, resilient.unbalanced_seconds
                );
            }
        }
        NexthopTarget::Blackhole => words.push_str(" blackhole"),
    }
    if nexthop.protocol != 0 {
        let _ = write!(words, " protocol {}", nexthop.protocol);
    }
    words
}

fn group(members: &[GroupMember]) -> String {
    members.iter().map(|member| format!("{},{}", member.id, member.weight)).collect::<Vec<_>>().join("/")
}

/// Words behind `ip route replace`. What belongs to the whole route comes
/// before its next hops, as ip-route(8) wants it.
pub(super) fn route(route: &RouteEntry) -> String {
    let kind = match route.action {
        RouteAction::Blackhole => "blackhole ",
        RouteAction::Unreachable => "unreachable ",
        RouteAction::Prohibit => "prohibit ",
        RouteAction::Throw => "throw ",
        _ => "",
    };
    let mut words = format!("{kind}{}", route.destination);
    if route.table != MAIN_TABLE {
        let _ = write!(words, " table {}", route.table);
    }
    if route.metric != 0 {
        let _ = write!(words, " metric {}", route.metric);
    }
    if route.protocol != 0 {
        let _ = write!(words, " proto {}", route.protocol);
    }
    if let Some(source) = route.source {
        let _ = write!(words, " src {source}");
    }
    if let Some(mtu) = route.mtu {
        let _ = write!(words, " mtu {mtu}");
    }
    match &route.action {
        RouteAction::Link { interface } => {
            let _ = write!(words, " dev {interface}");
        }
        RouteAction::Nexthop(id) => {
            let _ = write!(words, " nhid {id}");
        }
        RouteAction::Gateways(hops) => match hops.as_slice() {
            [hop] => {
                words.push(' ');
                words.push_str(&gateway(hop));
            }
            hops => {
                for hop in hops {
                    let _ = write!(words, " nexthop {} weight {}", gateway(hop), hop.weight);
                }
            }
        },
        _ => {}
    }
    words
}

fn gateway(hop: &Hop) -> String {
    match &hop.interface {
        Some(interface) => format!("via {} dev {interface}", hop.via),
        None => format!("via {}", hop.via),
    }
}

/// Words behind `ip rule add`.
pub(super) fn rule(rule: &RuleEntry) -> String {
    let mut words = selector(rule);
    match &rule.action {
        RuleAction::Table(table) => {
            let _ = write!(words, " table {table}");
        }
        RuleAction::Other(other) => {
            words.push(' ');
            words.push_str(other);
        }
    }
    if let Some(priority) = rule.priority {
        let _ = write!(words, " priority {priority}");
    }
    if rule.protocol != 0 {
        let _ = write!(words, " protocol {}", rule.protocol);
    }
    words
}

/// What packets a rule is for; `from` always stands, as tools want it.
fn selector(rule: &RuleEntry) -> String {
    let selector = &rule.selector;
    let mut words = if selector.inverted { "not from ".to_owned() } else { "from ".to_owned() };
    match selector.from {
        Some(from) => {
            let _ = write!(words, "{from}");
        }
        None => words.push_str("all"),
    }
    if let Some(to) = selector.to {
        let _ = write!(words, " to {to}");
    }
    if let Some((mark, mask)) = selector.mark {
        let _ = write!(words, " fwmark {}", self::mark(mark, mask));
    }
    if let Some(input) = &selector.input {
        let _ = write!(words, " iif {input}");
    }
    if let Some(output) = &selector.output {
        let _ = write!(words, " oif {output}");
    }
    for word in &selector.other {
        words.push(' ');
        words.push_str(shortest(word));
    }
    words
}

/// A range of one port is written as the port, which every version takes.
pub(super) fn shortest(word: &str) -> &str {
    match word.split_once('-') {
        Some((first, last)) if first == last => first,
        _ => word,
    }
}

/// A mark, with its mask where that leaves bits out.
pub(super) fn mark(mark: u32, mask: u32) -> String {
    if mask == u32::MAX { format!("{mark:#x}") } else { format!("{mark:#x}/{mask:#x}") }
}

/// An Ansible-safe list of the words of nexthops, gateways before groups, and
/// routes behind both.
pub(super) fn nexthops_and_routes<'a>(
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
