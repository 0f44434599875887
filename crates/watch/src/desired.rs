//! The next hops of a plan without withdrawn gateways: groups and multipath routes
//! lose those members, and a route through a single withdrawn gateway (to an alias,
//! or in the table of a connection mark) uses the others instead.

use std::{collections::BTreeSet, net::IpAddr};

use clearstream_schema::routing::{
    GroupMember, Hop, HostRouting, Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleEntry,
};

/// The part of a host's plan that depends on the health of gateways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NextHops {
    /// The gateways that groups consist of.
    pub(super) gateways: Vec<Nexthop>,
    /// Groups.
    pub(super) groups: Vec<Nexthop>,
    /// Routes through several gateways without a group, and those through one gateway.
    pub(super) routes: Vec<RouteEntry>,
    /// Rules that lead to tables.
    pub(super) rules: Vec<RuleEntry>,
}

/// Gateways of one path, and which of them are wanted. No address is in two paths.
#[derive(Debug, Clone, Default)]
pub(super) struct PathMembers {
    /// Local addresses with their weights, in the order of the next hops.
    pub(super) all: Vec<(IpAddr, u16)>,
    /// For each, whether it is wanted.
    pub(super) wanted: Vec<bool>,
    /// The interface to them.
    pub(super) interface: String,
}

impl PathMembers {
    fn is_out(&self, via: IpAddr) -> bool {
        self.all.iter().zip(&self.wanted).any(|((address, _), wanted)| *address == via && !wanted)
    }

    fn has(&self, via: IpAddr) -> bool {
        self.all.iter().any(|(address, _)| *address == via)
    }
}

/// The wanted next hops with these members.
pub(super) fn desired(plan: &HostRouting, paths: &[PathMembers]) -> NextHops {
    let gateway = |id: u32| gateway_of(plan, id);
    let out = |via: IpAddr| paths.iter().any(|path| path.is_out(via));
    let mut wanted = NextHops { rules: plan.rules.clone(), ..NextHops::default() };
    for nexthop in &plan.nexthops {
        let NexthopTarget::Group { members, resilient } = &nexthop.target else {
            wanted.gateways.push(nexthop.clone());
            continue;
        };
        let stays = |member: &&GroupMember| gateway(member.id).is_none_or(|via| !out(via));
        let left: Vec<GroupMember> = members.iter().filter(stays).copied().collect();
        // A group cannot be empty; the health of a path never requests that.
        let members = if left.is_empty() { members.clone() } else { left };
        let target = NexthopTarget::Group { members, resilient: *resilient };
        wanted.groups.push(Nexthop { target, ..nexthop.clone() });
    }
    for route in &plan.routes {
        let action = match &route.action {
            RouteAction::Nexthop(id) => match gateway(*id) {
                Some(via) => {
                    let Some(path) = paths.iter().find(|path| path.has(via)) else { continue };
                    if path.is_out(via) { alternative(plan, path, via) } else { route.action.clone() }
                }
                None => route.action.clone(),
            },
            RouteAction::Gateways(hops) => {
                let Some(path) = hops.iter().find_map(|hop| paths.iter().find(|path| path.has(hop.via)))
                else {
                    continue;
                };
                let left: Vec<Hop> = hops.iter().filter(|hop| !out(hop.via)).cloned().collect();
                match hops.as_slice() {
                    [hop] if left.is_empty() => alternative(plan, path, hop.via),
                    _ if left.is_empty() => route.action.clone(),
                    _ => RouteAction::Gateways(left),
                }
            }
            _ => continue,
        };
        wanted.routes.push(RouteEntry { action, ..route.clone() });
    }
    wanted
}

/// A gateway that a nexthop object or a route leads to, of several the first one.
pub(super) fn via(plan: &HostRouting, action: &RouteAction) -> Option<IpAddr> {
    match action {
        RouteAction::Gateways(hops) => hops.first().map(|hop| hop.via),
        RouteAction::Nexthop(id) => match &plan.nexthops.iter().find(|nexthop| nexthop.id == *id)?.target {
            NexthopTarget::Group { members, .. } => gateway_of(plan, members.first()?.id),
            _ => gateway_of(plan, *id),
        },
        _ => None,
    }
}

/// Replacement for a withdrawn gateway: the group that it is in, or a route with
/// several next hops.
fn alternative(plan: &HostRouting, path: &PathMembers, via: IpAddr) -> RouteAction {
    let has = |target: &NexthopTarget| match target {
        NexthopTarget::Group { members, .. } => {
            members.iter().any(|member| gateway_of(plan, member.id) == Some(via))
        }
        _ => false,
    };
    if let Some(group) = plan.nexthops.iter().find(|nexthop| has(&nexthop.target)) {
        return RouteAction::Nexthop(group.id);
    }
    let left = path.all.iter().zip(&path.wanted).filter(|(_, wanted)| **wanted);
    let hop = |via, weight| Hop { via, interface: Some(path.interface.clone()), weight, place: None };
    let hops: Vec<Hop> = left.map(|((via, weight), _)| hop(*via, *weight)).collect();
    if hops.is_empty() { RouteAction::Gateways(vec![hop(via, 1)]) } else { RouteAction::Gateways(hops) }
}

fn gateway_of(plan: &HostRouting, id: u32) -> Option<IpAddr> {
    plan.nexthops.iter().find(|nexthop| nexthop.id == id).and_then(|nexthop| match &nexthop.target {
        NexthopTarget::Gateway { via, .. } => Some(*via),
        _ => None,
    })
}

/// Whether an effective group has the wanted members, in any order.
pub(super) fn same_members(live: &NexthopTarget, wanted: &NexthopTarget) -> bool {
    let set = |target: &NexthopTarget| match target {
        NexthopTarget::Group { members, .. } => {
            Some(members.iter().map(|member| (member.id, member.weight)).collect::<BTreeSet<_>>())
        }
        _ => None,
    };
    set(live).is_some_and(|live| Some(live) == set(wanted))
}

/// Whether an effective route has the wanted next hops. The interface of a next hop
/// that the plan leaves to the kernel is not compared.
pub(super) fn same_action(live: &RouteAction, wanted: &RouteAction) -> bool {
    let set = |action: &RouteAction| match action {
        RouteAction::Gateways(hops) => {
            Some(hops.iter().map(|hop| (hop.via, hop.weight.max(1))).collect::<BTreeSet<_>>())
        }
        _ => None,
    };
    match (set(live), set(wanted)) {
        (Some(live), Some(wanted)) => {
            // One next hop has no weight in the kernel.
            let addresses =
                |set: &BTreeSet<(IpAddr, u16)>| set.iter().map(|(via, _)| *via).collect::<Vec<_>>();
            live == wanted || (live.len() == 1 && addresses(&live) == addresses(&wanted))
        }
        _ => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::routing::{MAIN_TABLE, Resilient};

    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 100, 0, number])
    }

    fn gateway(id: u32, number: u8) -> Nexthop {
        let target = NexthopTarget::Gateway { via: address(number), interface: "ib0".to_owned() };
        Nexthop { id, target, protocol: 117, place: None }
    }

    fn route(destination: &str, table: u32, action: RouteAction) -> RouteEntry {
        RouteEntry {
            destination: destination.parse().unwrap(),
            table,
            metric: 0,
            action,
            source: None,
            mtu: None,
            protocol: 117,
            place: None,
        }
    }

    fn paths(wanted: [bool; 3]) -> Vec<PathMembers> {
        let all = vec![(address(91), 1), (address(92), 2), (address(93), 1)];
        vec![PathMembers { all, wanted: wanted.to_vec(), interface: "ib0".to_owned() }]
    }

    fn with_groups() -> HostRouting {
        let members = vec![
            GroupMember { id: 1, weight: 1 },
            GroupMember { id: 2, weight: 2 },
            GroupMember { id: 3, weight: 1 },
        ];
        let resilient = Some(Resilient { bucket_count: 120, idle_seconds: 60, unbalanced_seconds: 0 });
        let group = Nexthop {
            id: 10,
            target: NexthopTarget::Group { members, resilient },
            protocol: 117,
            place: None,
        };
        HostRouting {
            nexthops: vec![gateway(1, 91), gateway(2, 92), gateway(3, 93), group],
            routes: vec![
                route("10.10.0.0/24", MAIN_TABLE, RouteAction::Nexthop(10)),
                route("10.10.0.212/32", MAIN_TABLE, RouteAction::Nexthop(2)),
                route("10.10.0.213/32", MAIN_TABLE, RouteAction::Nexthop(3)),
                route("192.0.2.0/24", MAIN_TABLE, RouteAction::Blackhole),
            ],
            ..HostRouting::default()
        }
    }

    #[test]
    fn group_loses_a_withdrawn_gateway_and_its_alias_uses_the_group() {
        let wanted = desired(&with_groups(), &paths([true, false, true]));
        let NexthopTarget::Group { members, resilient } = &wanted.groups[0].target else { panic!() };
        assert_eq!(members.iter().map(|member| member.id).collect::<Vec<_>>(), [1, 3]);
        assert!(resilient.is_some());
        let actions: Vec<_> = wanted.routes.iter().map(|route| route.action.clone()).collect();
        assert_eq!(actions, [RouteAction::Nexthop(10), RouteAction::Nexthop(10), RouteAction::Nexthop(3)]);
    }

    #[test]
    fn with_all_members_it_is_the_plan() {
        let plan = with_groups();
        let wanted = desired(&plan, &paths([true; 3]));
        assert_eq!(wanted.gateways, plan.nexthops[..3]);
        assert_eq!(wanted.groups[0], plan.nexthops[3]);
        assert_eq!(wanted.routes, plan.routes[..3]);
    }

    #[test]
    fn multipath_routes_lose_hops_and_single_ones_use_the_rest() {
        let hop = |number, weight| Hop {
            via: address(number),
            interface: Some("ib0".to_owned()),
            weight,
            place: None,
        };
        let all = RouteAction::Gateways(vec![hop(91, 1), hop(92, 2), hop(93, 1)]);
        let plan = HostRouting {
            routes: vec![
                route("10.10.0.0/24", MAIN_TABLE, all),
                route("0.0.0.0/0", 7001, RouteAction::Gateways(vec![hop(91, 1)])),
            ],
            ..HostRouting::default()
        };
        let wanted = desired(&plan, &paths([false, true, true]));
        let left = RouteAction::Gateways(vec![hop(92, 2), hop(93, 1)]);
        assert_eq!(wanted.routes[0].action, left);
        assert_eq!(wanted.routes[1].action, left);
    }

    #[test]
    fn order_and_the_weight_of_a_single_hop_do_not_matter() {
        let hop = |number, weight| Hop { via: address(number), interface: None, weight, place: None };
        let pair = RouteAction::Gateways(vec![hop(1, 1), hop(2, 3)]);
        let turned = RouteAction::Gateways(vec![hop(2, 3), hop(1, 1)]);
        assert!(same_action(&pair, &turned));
        let single = |weight| RouteAction::Gateways(vec![hop(1, weight)]);
        assert!(same_action(&single(1), &single(5)));
        assert!(!same_action(&pair, &single(1)));
        assert!(!same_action(&RouteAction::Nexthop(1), &RouteAction::Nexthop(2)));
    }
}
