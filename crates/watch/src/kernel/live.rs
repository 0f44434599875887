//! What the kernel has where the objects of a plan are to be, and whose it is.
//!
//! Ours is what bears the plan's own protocol number (`rtm_protocol`, `nh_protocol`, `FRA_PROTOCOL`), as `route apply`
//! counts it: also when somebody altered it. A nexthop object that is replaced takes the number of whoever replaced it, a
//! group keeps its own (net/ipv4/nexthop.c, `replace_nexthop_single`, `replace_nexthop_grp`). What others put there just
//! as the plan has it counts as installed and from then on as ours: it may have come from files that were rendered.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_netlink::{LiveNexthop, LiveRoute, NetlinkError, RouteSocket};
use clearstream_route::ways;
use clearstream_schema::{
    plan::Setting,
    prefix::Prefix,
    routing::{Nexthop, NexthopTarget, RouteEntry, RuleEntry},
};

use crate::desired::{NextHops, same_action, same_members};

/// Objects of others that were found as a plan has them, with their protocol numbers.
#[derive(Debug, Default)]
pub(super) struct Adopted(BTreeMap<Setting, u8>);

/// What stands in the place of an object.
#[derive(Debug, PartialEq)]
pub(super) enum Occupant<'a, T> {
    Nobody,
    Ours(&'a T),
    /// Who it is and what is there, as text.
    Other(String),
}

/// A host's objects, those of other owners only where they matter.
#[derive(Debug, Default)]
pub(super) struct Live {
    nexthops: BTreeMap<u32, LiveNexthop>,
    routes: BTreeMap<(Prefix, u32), Vec<RouteEntry>>,
    rules: Vec<RuleEntry>,
}

impl Live {
    /// Reads what may stand in the places of a plan. `whole` has the routes of all owners read, of which a router has
    /// many; otherwise they are read when one of the plan's is missing, whose place may be somebody else's.
    pub(super) fn read(
        socket: &mut RouteSocket,
        plan: &NextHops,
        adopted: &Adopted,
        whole: bool,
    ) -> Result<Self, NetlinkError> {
        let has_objects = !plan.groups.is_empty() || !plan.gateways.is_empty();
        let nexthops = if has_objects { socket.nexthops()? } else { Vec::new() };
        let rules = if plan.rules.is_empty() { Vec::new() } else { socket.rules()? };
        let mut live = Self {
            nexthops: nexthops.into_iter().map(|live| (live.entry.id, live)).collect(),
            routes: BTreeMap::new(),
            rules: rules.into_iter().map(|rule| rule.entry).collect(),
        };
        if !whole {
            let own: BTreeSet<(u8, bool)> = (plan.routes.iter())
                .map(|route| (adopted.protocol(route), route.destination.address.is_ipv6()))
                .collect();
            for (protocol, ipv6) in own {
                live.add(socket.routes_of(protocol, ipv6)?);
            }
        }
        if whole || plan.routes.iter().any(|route| live.at(route).is_none()) {
            live.routes.clear();
            live.add(socket.all_routes()?);
        }
        Ok(live)
    }

    fn add(&mut self, found: Vec<LiveRoute>) {
        for live in found.into_iter().filter(|live| !live.is_for_some_packets()) {
            self.routes.entry((live.entry.destination, live.entry.table)).or_default().push(live.entry);
        }
    }

    /// The route in effect in the place of a planned one: of several with one metric the first, which is also the one
    /// that the kernel would replace (net/ipv4/fib_trie.c, `fib_table_insert`).
    pub(super) fn at(&self, wanted: &RouteEntry) -> Option<&RouteEntry> {
        let place = (wanted.destination.network(), wanted.table);
        self.routes.get(&place)?.iter().find(|route| route.kernel_metric() == wanted.kernel_metric())
    }

    pub(super) fn route(&self, wanted: &RouteEntry, adopted: &mut Adopted) -> Occupant<'_, RouteEntry> {
        let Some(live) = self.at(wanted) else { return Occupant::Nobody };
        let is_wanted = same_action(&live.action, &wanted.action);
        match adopted.is_ours(|| wanted.setting(), [live.protocol, wanted.protocol], is_wanted) {
            true => Occupant::Ours(live),
            false => {
                let unsigned = RouteEntry { protocol: 0, ..live.clone() };
                Occupant::other(live.protocol, wanted.protocol, &unsigned.ip_arguments())
            }
        }
    }

    pub(super) fn nexthop(&self, wanted: &Nexthop, adopted: &mut Adopted) -> Occupant<'_, NexthopTarget> {
        let Some(live) = self.nexthops.get(&wanted.id) else { return Occupant::Nobody };
        let is_wanted = live.unsupported.is_empty() && same_target(&live.entry.target, &wanted.target);
        let numbers = [live.entry.protocol, wanted.protocol];
        match adopted.is_ours(|| wanted.setting(), numbers, is_wanted) {
            true => Occupant::Ours(&live.entry.target),
            false => {
                let unsigned = Nexthop { protocol: 0, ..live.entry.clone() };
                Occupant::other(live.entry.protocol, wanted.protocol, &unsigned.ip_arguments())
            }
        }
    }

    /// A rule of the same priority and selector.
    pub(super) fn rule(&self, wanted: &RuleEntry, adopted: &mut Adopted) -> Occupant<'_, RuleEntry> {
        let Some(setting) = wanted.setting() else { return Occupant::Nobody };
        let there = || self.rules.iter().filter(|live| live.setting().as_ref() == Some(&setting));
        // Equal ones may stand there; the first that matches decides.
        let Some(live) = there().next() else { return Occupant::Nobody };
        let is_wanted = live.action == wanted.action;
        match adopted.is_ours(|| setting.clone(), [live.protocol, wanted.protocol], is_wanted) {
            true => Occupant::Ours(live),
            false => {
                let unsigned = RuleEntry { protocol: 0, ..live.clone() };
                Occupant::other(live.protocol, wanted.protocol, &unsigned.ip_arguments())
            }
        }
    }
}

impl<T> Occupant<'_, T> {
    fn other(protocol: u8, own: u8, value: &str) -> Self {
        Self::Other(format!("{} ({})", ways::owner(protocol, own), value.trim()))
    }
}

impl Adopted {
    /// Whether an object with the first of these protocol numbers is that of a plan with the second one.
    fn is_ours(&mut self, place: impl FnOnce() -> Setting, [live, own]: [u8; 2], is_wanted: bool) -> bool {
        if live == own {
            return true;
        }
        let place = place();
        if is_wanted {
            self.0.insert(place, live);
            return true;
        }
        self.0.get(&place) == Some(&live)
    }

    /// Takes what stands in a plan's places for the plan's, as it is: somebody else installed it before the watch began.
    pub(super) fn take(&mut self, live: &Live, plan: &NextHops) {
        for nexthop in plan.gateways.iter().chain(&plan.groups) {
            if let Some(found) = live.nexthops.get(&nexthop.id) {
                self.0.insert(nexthop.setting(), found.entry.protocol);
            }
        }
        for route in &plan.routes {
            if let Some(found) = live.at(route) {
                self.0.insert(route.setting(), found.protocol);
            }
        }
    }

    /// The number that a planned route has in the kernel.
    fn protocol(&self, route: &RouteEntry) -> u8 {
        match self.0.is_empty() {
            true => route.protocol,
            false => self.0.get(&route.setting()).copied().unwrap_or(route.protocol),
        }
    }
}

/// Whether an effective nexthop object is the wanted one.
pub(super) fn same_target(live: &NexthopTarget, wanted: &NexthopTarget) -> bool {
    match wanted {
        NexthopTarget::Group { .. } => same_members(live, wanted),
        _ => live == wanted,
    }
}
