//! Plans of hosts of the fabric `gateways-6` with every return path and every
//! form of several next hops.

use std::path::Path;

use clearstream_route::{fabric, planner::Planner};
use clearstream_schema::routing::{HostRouting, NexthopTarget, RouteAction};

const FABRIC: &str = include_str!("../../../../../fabrics/gateways-6.toml");

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
