//! The next hops in the kernel: reading them, and changing them to the wanted ones.
//! A group is replaced in one step, before anything that refers to it.

use std::{collections::BTreeMap, ops::RangeInclusive};

use clearstream_host::HostRoot;
use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    prefix::Prefix,
    routing::{HostRouting, Nexthop, NexthopTarget, RouteAction, RouteEntry},
};

use super::desired::{NextHops, same_action, same_members};

/// Steps by which a watch advances the generation of IPv6 routes: more than a
/// machine makes route changes while it boots, and a random number. The initial
/// namespace's generation cannot be read, and a long-lived host's may have any
/// value: with a fixed step, namespaces that are set up alike would all come to
/// the same one. A collision at a given change has a chance of 1 in 12 288.
const GENERATION_STEPS: RangeInclusive<u32> = 4096..=16_383;

/// Next hops of a host in the network namespace of the thread that made this.
#[derive(Debug)]
pub(super) struct KernelRoutes {
    socket: RouteSocket,
}

/// Deviations of the next hops from the wanted ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Deviations that were corrected: the previous values, as text.
    pub(super) changed: Vec<String>,
    /// Missing objects, which are not recreated: `route apply` does that.
    pub(super) missing: Vec<String>,
}

type Live = (BTreeMap<u32, NexthopTarget>, BTreeMap<(Prefix, u32), Vec<RouteEntry>>);

impl KernelRoutes {
    /// Opens a socket.
    pub(super) fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: RouteSocket::open()? })
    }

    /// In a network namespace that is not the initial one, sockets with IPv6 flows
    /// may keep dead routes after a change when both namespaces have the same
    /// generation number: see [`RouteSocket::advance_ipv6_generation`].
    pub(super) fn advance_generation(&mut self) -> Result<(), NetlinkError> {
        // A sysctl of the initial namespace alone (net/core/sysctl_net_core.c).
        let initial = HostRoot::live().read("proc/sys/net/core/netdev_max_backlog").is_ok();
        // There the dead routes' own generation counts, which never recurs.
        if initial {
            return Ok(());
        }
        self.socket.advance_ipv6_generation(rand::random_range(GENERATION_STEPS))
    }

    /// The socket, for other queries.
    pub(super) fn socket(&mut self) -> &mut RouteSocket {
        &mut self.socket
    }

    /// Changes the objects that differ from `wanted`, and no others.
    pub(super) fn apply(&mut self, wanted: &NextHops) -> Result<Changes, NetlinkError> {
        let (nexthops, routes) = self.live(wanted)?;
        let mut changes = Changes::default();
        for group in &wanted.groups {
            match nexthops.get(&group.id) {
                None => changes.missing.push(format!("nexthop group {}", group.id)),
                Some(live) if same_members(live, &group.target) => {}
                Some(live) => {
                    self.socket.set_nexthop(group)?;
                    changes.changed.push(format!("group {} of {}", group.id, members(live)));
                }
            }
        }
        for route in &wanted.routes {
            let name = format!("route {} in table {}", route.destination, route.table);
            match find(&routes, route) {
                None => changes.missing.push(name),
                Some(live) if same_action(&live.action, &route.action) => {}
                Some(live) => {
                    let mtu = route.mtu.or(live.mtu);
                    self.socket.set_route(&RouteEntry { mtu, ..route.clone() }, true)?;
                    changes.changed.push(format!("{name} {}", action(&live.action)));
                }
            }
        }
        Ok(changes)
    }

    /// Makes sockets repeat their route lookups among the same next hops: a bucket of a
    /// resilient group counts as used at each lookup, and a connected socket caches its
    /// route until routes change. Buckets of its flows would count as idle and move to a
    /// returning gateway; replacing a group by an identical one moves none.
    pub(super) fn refresh(&mut self, wanted: &NextHops) -> Result<(), NetlinkError> {
        let resilient =
            |group: &&Nexthop| matches!(&group.target, NexthopTarget::Group { resilient: Some(_), .. });
        wanted.groups.iter().filter(resilient).try_for_each(|group| self.socket.set_nexthop(group))
    }

    /// Addresses of the gateways among the effective next hops of a plan's groups and
    /// multipath routes; absent for a plan that is not in effect.
    pub(super) fn present(
        &mut self,
        plan: &NextHops,
        routing: &HostRouting,
    ) -> Result<Option<Vec<Member>>, NetlinkError> {
        let (nexthops, routes) = self.live(plan)?;
        let mut found = Vec::new();
        for group in &plan.groups {
            let Some(NexthopTarget::Group { members, .. }) = nexthops.get(&group.id) else { return Ok(None) };
            let via = |id: u32| {
                routing.nexthops.iter().find(|nexthop| nexthop.id == id).and_then(|nexthop| {
                    match &nexthop.target {
                        NexthopTarget::Gateway { via, .. } => Some(*via),
                        _ => None,
                    }
                })
            };
            found.extend(members.iter().filter_map(|member| via(member.id)));
        }
        for route in &plan.routes {
            let RouteAction::Gateways(hops) = &route.action else { continue };
            if hops.len() < 2 {
                continue;
            }
            let Some(live) = find(&routes, route) else { return Ok(None) };
            match &live.action {
                RouteAction::Gateways(hops) => found.extend(hops.iter().map(|hop| hop.via)),
                _ => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    fn live(&mut self, plan: &NextHops) -> Result<Live, NetlinkError> {
        let nexthops = if plan.groups.is_empty() { Vec::new() } else { self.socket.nexthops()? };
        let nexthops = nexthops.into_iter().map(|live| (live.entry.id, live.entry.target)).collect();
        let mut routes: BTreeMap<(Prefix, u32), Vec<RouteEntry>> = BTreeMap::new();
        if !plan.routes.is_empty() {
            for live in self.socket.all_routes()? {
                if !live.is_for_some_packets() {
                    let entry = live.entry;
                    routes.entry((entry.destination, entry.table)).or_default().push(entry);
                }
            }
        }
        Ok((nexthops, routes))
    }
}

/// Address of a gateway among the next hops.
pub(super) type Member = std::net::IpAddr;

/// The effective route for a planned one. IPv6 has no metric 0: the
/// kernel reads it as 1024 (`IP6_RT_PRIO_USER`).
fn find<'a>(
    routes: &'a BTreeMap<(Prefix, u32), Vec<RouteEntry>>,
    wanted: &RouteEntry,
) -> Option<&'a RouteEntry> {
    let metric = |route: &RouteEntry| match route.metric {
        0 if route.destination.address.is_ipv6() => 1024,
        metric => metric,
    };
    let place = (wanted.destination.network(), wanted.table);
    routes.get(&place)?.iter().find(|route| metric(route) == metric(wanted))
}

fn members(target: &NexthopTarget) -> String {
    match target {
        NexthopTarget::Group { members, .. } => {
            members.iter().map(|member| member.id.to_string()).collect::<Vec<_>>().join(", ")
        }
        NexthopTarget::Gateway { via, .. } => via.to_string(),
        NexthopTarget::Blackhole => "nothing".to_owned(),
    }
}

fn action(action: &RouteAction) -> String {
    match action {
        RouteAction::Gateways(hops) => {
            let hops: Vec<String> = hops.iter().map(|hop| hop.via.to_string()).collect();
            format!("via {}", hops.join(", "))
        }
        RouteAction::Nexthop(id) => format!("by nexthop {id}"),
        RouteAction::Link { interface } => format!("on {interface}"),
        RouteAction::Blackhole | RouteAction::Unreachable | RouteAction::Prohibit | RouteAction::Throw => {
            "that discards".to_owned()
        }
    }
}
