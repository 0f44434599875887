//! The next hops in the kernel: reading them, and changing them to the wanted ones.
//! A group is replaced in one step, before anything that refers to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use clearstream_host::HostRoot;
use clearstream_netlink::{LiveRoute, NetlinkError, RouteSocket};
use clearstream_schema::{
    prefix::Prefix,
    routing::{HostRouting, MAIN_TABLE, Nexthop, NexthopTarget, RouteAction, RouteEntry},
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
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Changes {
    /// Deviations that were corrected: the previous values, as text.
    pub(super) changed: Vec<String>,
    /// Objects that were not there, and are again.
    pub(super) restored: Vec<String>,
    /// Objects that are not there.
    pub(super) missing: Vec<Missing>,
}

/// An object that is not there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Missing {
    /// As text.
    pub(super) name: String,
    /// Of a route; by a nexthop object of this id.
    pub(super) action: RouteAction,
    /// Why it was not made, if that was tried.
    pub(super) refusal: Option<String>,
}

type Live = (BTreeMap<u32, NexthopTarget>, Routes);

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

    /// Changes the objects that differ from `wanted`, and no others. Those that are not there are made where
    /// `may_restore` allows it: the kernel removes nexthop objects, and all that goes by them, with the carrier of their
    /// link (net/ipv4/nexthop.c, `nh_netdev_event`), and all routes of an interface that goes down or loses its last
    /// address.
    pub(super) fn apply(
        &mut self,
        wanted: &NextHops,
        may_restore: impl FnOnce() -> bool,
    ) -> Result<Changes, NetlinkError> {
        let (nexthops, routes) = self.live(wanted)?;
        let mut changes = Changes::default();
        let is_missing = |nexthop: &&Nexthop| !nexthops.contains_key(&nexthop.id);
        let objects = wanted.gateways.iter().chain(&wanted.groups).filter(is_missing);
        let missing: Vec<&RouteEntry> =
            wanted.routes.iter().filter(|route| find(&routes, route).is_none()).collect();
        let is_whole = missing.is_empty() && objects.clone().next().is_none();
        let may_restore = !is_whole && may_restore();
        for nexthop in objects {
            let made = may_restore.then(|| self.socket.set_nexthop(nexthop));
            changes.note(nexthop_name(nexthop), &RouteAction::Nexthop(nexthop.id), made);
        }
        for group in &wanted.groups {
            if let Some(live) = nexthops.get(&group.id)
                && !same_members(live, &group.target)
            {
                self.socket.set_nexthop(group)?;
                changes.changed.push(format!("group {} of {}", group.id, members(live)));
            }
        }
        for route in missing {
            let made = may_restore.then(|| self.socket.set_route(route, false));
            changes.note(route_name(route), &route.action, made);
        }
        for route in &wanted.routes {
            if let Some(live) = find(&routes, route)
                && !same_action(&live.action, &route.action)
            {
                let mtu = route.mtu.or(live.mtu);
                self.socket.set_route(&RouteEntry { mtu, ..route.clone() }, true)?;
                changes.changed.push(format!("{} {}", route_name(route), action(&live.action)));
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
        let has_objects = !plan.groups.is_empty() || !plan.gateways.is_empty();
        let nexthops = if has_objects { self.socket.nexthops()? } else { Vec::new() };
        let nexthops = nexthops.into_iter().map(|live| (live.entry.id, live.entry.target)).collect();
        let own: BTreeSet<(u8, bool)> =
            (plan.routes.iter()).map(|route| (route.protocol, route.destination.address.is_ipv6())).collect();
        let mut routes = BTreeMap::new();
        for (protocol, ipv6) in own {
            by_place(self.socket.routes_of(protocol, ipv6)?, &mut routes);
        }
        // One that is missing may have become somebody else's.
        if plan.routes.iter().any(|route| find(&routes, route).is_none()) {
            routes.clear();
            by_place(self.socket.all_routes()?, &mut routes);
        }
        Ok((nexthops, routes))
    }
}

type Routes = BTreeMap<(Prefix, u32), Vec<RouteEntry>>;

fn by_place(found: Vec<LiveRoute>, routes: &mut Routes) {
    for live in found.into_iter().filter(|live| !live.is_for_some_packets()) {
        routes.entry((live.entry.destination, live.entry.table)).or_default().push(live.entry);
    }
}

/// Address of a gateway among the next hops.
pub(super) type Member = std::net::IpAddr;

/// The effective route for a planned one.
fn find<'a>(routes: &'a Routes, wanted: &RouteEntry) -> Option<&'a RouteEntry> {
    let place = (wanted.destination.network(), wanted.table);
    routes.get(&place)?.iter().find(|route| route.kernel_metric() == wanted.kernel_metric())
}

impl Changes {
    fn note(&mut self, name: String, action: &RouteAction, made: Option<Result<(), NetlinkError>>) {
        match made {
            Some(Ok(())) => self.restored.push(name),
            Some(Err(error)) => {
                self.missing.push(Missing { name, action: action.clone(), refusal: Some(error.to_string()) });
            }
            None => self.missing.push(Missing { name, action: action.clone(), refusal: None }),
        }
    }
}

fn nexthop_name(nexthop: &Nexthop) -> String {
    match &nexthop.target {
        NexthopTarget::Group { .. } => format!("group {}", nexthop.id),
        _ => format!("nexthop {}", nexthop.id),
    }
}

fn route_name(route: &RouteEntry) -> String {
    let mut name = format!("route {}", route.destination);
    if route.table != MAIN_TABLE {
        name += &format!(" in table {}", route.table);
    }
    if route.metric != 0 {
        name += &format!(" metric {}", route.metric);
    }
    name
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
