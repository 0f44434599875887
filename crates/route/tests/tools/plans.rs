//! Plans of hosts of the fabric `gateways-6` with every return path and every
//! way to write several next hops.

use std::path::Path;

use clearstream_route::{fabric, planner::Planner};
use clearstream_schema::routing::{HostRouting, NexthopTarget, RouteAction};

const FABRIC: &str = include_str!("../../../../fabrics/gateways-6.toml");

fn plan(choices: &str, host: &str) -> HostRouting {
    // Link addresses are known, so that connections can be marked.
    let text = FABRIC.replace(
        "addresses = [\"10.10.0.[11-16]\", \"fd64:10::[11-16]\"]",
        "addresses = [\"10.10.0.[11-16]\", \"fd64:10::[11-16]\"]\nlink-addresses = [\"02:00:00:00:00:[01-06]\"]",
    );
    let text = format!("{text}{choices}");
    let fabric = fabric::parse(Path::new("gateways-6.toml"), &text).unwrap();
    Planner::new(&fabric).routing(fabric.find(host).unwrap())
}

/// Plans by what they are about.
pub(crate) fn all() -> Vec<(String, HostRouting)> {
    let mut plans = Vec::new();
    for (return_path, multipath) in
        [("alias", "classic"), ("none", "group"), ("connection-mark", "resilient"), ("equal-seed", "classic")]
    {
        let seed = if return_path == "equal-seed" { "hash-seed = 7\n" } else { "" };
        let choices = format!("return-path = \"{return_path}\"\nmultipath = \"{multipath}\"\n{seed}");
        for host in ["storage-2", "compute-1", "gw3"] {
            let what = format!("{host} {return_path} {multipath}");
            plans.push((what, plan(&choices, host)));
        }
    }
    plans
}

/// A few that differ in kind: what takes long runs with these.
pub(crate) fn different() -> Vec<(String, HostRouting)> {
    let kept = ["storage-2 alias", "storage-2 none", "storage-2 connection", "compute-1 equal"];
    let is_kept = |what: &String| kept.iter().any(|name| what.starts_with(name));
    all().into_iter().filter(|(what, _)| is_kept(what)).collect()
}

/// One that has rules.
pub(crate) fn with_rules() -> HostRouting {
    all().into_iter().map(|(_, plan)| plan).find(|plan| !plan.rules.is_empty()).unwrap()
}

/// Without names and places, in one order; without what neither the kernel nor
/// files tell back.
pub(crate) fn bare(routing: &HostRouting) -> HostRouting {
    let mut routing = routing.clone();
    routing.host.clear();
    for route in &mut routing.routes {
        route.place = None;
        // The kernel reads 0 as 1024 for IPv6 (RTNETLINK, IP6_RT_PRIO_USER).
        if route.destination.address.is_ipv6() && route.metric == 1024 {
            route.metric = 0;
        }
        if let RouteAction::Gateways(hops) = &mut route.action {
            hops.iter_mut().for_each(|hop| hop.place = None);
        }
    }
    routing.rules.iter_mut().for_each(|rule| rule.place = None);
    routing.nexthops.iter_mut().for_each(|nexthop| nexthop.place = None);
    routing.interfaces.iter_mut().for_each(|known| {
        known.link_address = None;
        known.addresses.sort_by_key(|address| address.value);
    });
    routing.interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    routing.routes.sort_by_key(|route| format!("{route:?}"));
    routing.rules.sort_by_key(|rule| format!("{rule:?}"));
    routing.nexthops.sort_by_key(|nexthop| nexthop.id);
    routing
}

/// As `bare`, without what `ip` does not show.
pub(crate) fn plain(routing: &HostRouting) -> HostRouting {
    let mut routing = bare(routing);
    routing.sysctls.clear();
    routing.connection_marks.clear();
    routing
}

/// With next hops and members of groups sorted, for tools that do not keep
/// their order. Where it counts they are not given any.
pub(crate) fn without_order(mut routing: HostRouting) -> HostRouting {
    for route in &mut routing.routes {
        if let RouteAction::Gateways(hops) = &mut route.action {
            hops.sort_by_key(|hop| hop.via);
        }
    }
    for nexthop in &mut routing.nexthops {
        if let NexthopTarget::Group { members, .. } = &mut nexthop.target {
            members.sort_by_key(|member| member.id);
        }
    }
    routing
}

/// Without the numbers of owners of rules and nexthops.
pub(crate) fn without_owners(mut routing: HostRouting) -> HostRouting {
    routing.rules.iter_mut().for_each(|rule| rule.protocol = 0);
    routing.nexthops.iter_mut().for_each(|nexthop| nexthop.protocol = 0);
    routing.rules.sort_by_key(|rule| format!("{rule:?}"));
    routing
}

/// What one plan has and the other has not, to see at a glance what differs.
pub(crate) fn difference(one: &HostRouting, other: &HostRouting) -> Vec<String> {
    let items = |routing: &HostRouting| -> Vec<String> {
        let mut items: Vec<String> = Vec::new();
        for known in &routing.interfaces {
            let (mtu, mode) = (known.mtu.as_ref().map(|mtu| mtu.value), known.infiniband_mode.as_ref());
            items.push(format!("{} mtu {mtu:?} mode {:?}", known.name, mode.map(|mode| mode.value)));
            items.extend(known.addresses.iter().map(|address| format!("{} {}", known.name, address.value)));
        }
        items.extend(routing.nexthops.iter().map(|nexthop| format!("{nexthop:?}")));
        items.extend(routing.routes.iter().map(|route| format!("{route:?}")));
        items.extend(routing.rules.iter().map(|rule| format!("{rule:?}")));
        items.extend(routing.connection_marks.iter().map(|mark| format!("{mark:?}")));
        items.extend(routing.sysctls.iter().map(|(key, value)| format!("{key}={}", value.value)));
        items
    };
    let (ours, theirs) = (items(one), items(other));
    let missing = |from: &[String], of: &[String], sign: &str| -> Vec<String> {
        from.iter().filter(|item| !of.contains(item)).map(|item| format!("{sign} {item}")).collect()
    };
    let mut all = missing(&ours, &theirs, "+");
    all.extend(missing(&theirs, &ours, "-"));
    if all.is_empty() && ours.len() != theirs.len() {
        all.push(format!("{} and {} items", ours.len(), theirs.len()));
    }
    all
}
