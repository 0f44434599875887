//! Verification of a host's routing against the plan: its objects, and the kernel's
//! own lookups.

use std::net::IpAddr;

use clearstream_netlink::{RouteQuery, RouteSocket};
use clearstream_schema::{
    plan::Check,
    prefix::Prefix,
    routing::{
        HostRouting, MAIN_TABLE, NexthopTarget, RouteAction, RouteEntry, RuleAction, RuleEntry, RuleSelector,
    },
};

use crate::difference::{Current, DifferenceError, Wanted, difference};

/// One check for each object of the plan, and one for each object of ours that is
/// not in it.
pub fn read_back(current: &Current, wanted: &Wanted<'_>) -> Result<Vec<Check>, DifferenceError> {
    // Against a host that has the interfaces and nothing else, all of it is a difference.
    let mut bare = Current { kernel: current.kernel.clone(), ..Current::default() };
    bare.routing.interfaces = current.routing.interfaces.clone();
    for interface in &mut bare.routing.interfaces {
        (interface.addresses, interface.mtu, interface.infiniband_mode) = (Vec::new(), None, None);
    }
    let open = difference(current, wanted)?.steps;
    let all = difference(&bare, wanted)?.steps;
    let extra = open.iter().filter(|step| step.desired.is_none());
    let check = |step: &clearstream_schema::plan::Step| {
        let expected = step.desired.clone().unwrap_or_else(|| "absent".to_owned());
        let missing = open.iter().find(|open| open.setting == step.setting);
        let found = match missing {
            None => expected.clone(),
            Some(open) => open.current.clone().unwrap_or_else(|| "absent".to_owned()),
        };
        Check {
            subject: step.setting.to_string(),
            expected,
            found: Some(found),
            holds: missing.is_none(),
            note: None,
        }
    };
    Ok(all.iter().chain(extra).map(check).collect())
}

/// Queries the kernel for the next hop of a packet of each kind: to every planned
/// destination, and out of every table of ours by the rule that leads there.
pub fn lookups(wanted: &HostRouting, socket: &mut RouteSocket) -> Vec<Check> {
    let mut checks = Vec::new();
    for route in &wanted.routes {
        let next_hops = next_hops(wanted, &route.action);
        if next_hops.is_empty() {
            continue;
        }
        if route.table == MAIN_TABLE {
            let query = RouteQuery::to(inside(route.destination));
            checks.push(check(format!("packets to {}", query.to), &query, &next_hops, socket));
            continue;
        }
        let ipv6 = route.destination.address.is_ipv6();
        let leads_there =
            |rule: &&RuleEntry| rule.ipv6 == ipv6 && rule.action == RuleAction::Table(route.table);
        for rule in wanted.rules.iter().filter(leads_there) {
            if let Some((query, subject)) = selected(&rule.selector, route) {
                checks.push(check(subject, &query, &next_hops, socket));
            }
        }
    }
    checks
}

/// A packet that a rule selects; `None` for one that only arrives from outside.
fn selected(selector: &RuleSelector, route: &RouteEntry) -> Option<(RouteQuery, String)> {
    let mut query = RouteQuery::to(inside(route.destination));
    let mut subject = format!("packets to {}", query.to);
    if selector.inverted || selector.input.is_some() || !selector.other.is_empty() {
        return None;
    }
    if let Some(from) = selector.from {
        query.from = Some(from.address);
        subject.push_str(&format!(" from {}", from.address));
    }
    if let Some((mark, _)) = selector.mark {
        query.mark = mark;
        subject.push_str(&format!(" with mark {mark}"));
    }
    query.output.clone_from(&selector.output);
    Some((query, subject))
}

/// The first host address of a network.
fn inside(prefix: Prefix) -> IpAddr {
    let network = prefix.network();
    match network.address {
        IpAddr::V4(address) if network.length < 31 => IpAddr::V4((u32::from(address) + 1).into()),
        IpAddr::V6(address) if network.length < 127 => IpAddr::V6((u128::from(address) + 1).into()),
        address => address,
    }
}

type NextHop = (Option<IpAddr>, Option<String>);

fn next_hops(wanted: &HostRouting, action: &RouteAction) -> Vec<NextHop> {
    let nexthop = |id: u32| wanted.nexthops.iter().find(|nexthop| nexthop.id == id);
    let gateway = |id: u32| match &nexthop(id)?.target {
        NexthopTarget::Gateway { via, interface } => Some((Some(*via), Some(interface.clone()))),
        _ => None,
    };
    match action {
        RouteAction::Link { interface } => vec![(None, Some(interface.clone()))],
        RouteAction::Gateways(hops) => {
            hops.iter().map(|hop| (Some(hop.via), hop.interface.clone())).collect()
        }
        RouteAction::Nexthop(id) => match nexthop(*id).map(|nexthop| &nexthop.target) {
            Some(NexthopTarget::Group { members, .. }) => {
                members.iter().filter_map(|member| gateway(member.id)).collect()
            }
            _ => gateway(*id).into_iter().collect(),
        },
        RouteAction::Blackhole | RouteAction::Unreachable | RouteAction::Prohibit | RouteAction::Throw => {
            Vec::new()
        }
    }
}

fn check(subject: String, query: &RouteQuery, next_hops: &[NextHop], socket: &mut RouteSocket) -> Check {
    let described = |(via, interface): &NextHop| match (via, interface) {
        (Some(via), Some(interface)) => format!("by {via} on {interface}"),
        (Some(via), None) => format!("by {via}"),
        (None, interface) => format!("on {}", interface.as_deref().unwrap_or("any interface")),
    };
    let expected = match next_hops {
        [first, .., last] if next_hops.len() > 2 => {
            format!("by one of {}, {} to {}", next_hops.len(), described(first), described(last))
        }
        next_hops => next_hops.iter().map(described).collect::<Vec<_>>().join(" or "),
    };
    match socket.lookup(query) {
        Ok(found) => {
            let actual: NextHop = (found.via, found.interface);
            let fits =
                |wanted: &NextHop| wanted.0 == actual.0 && (wanted.1.is_none() || wanted.1 == actual.1);
            let holds = next_hops.iter().any(fits);
            Check { subject, expected, found: Some(described(&actual)), holds, note: None }
        }
        Err(error) => Check { subject, expected, found: None, holds: false, note: Some(error.to_string()) },
    }
}
