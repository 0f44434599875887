//! The next hops in the kernel: reading them, and changing them to the wanted ones.
//! A group is replaced in one step, before anything that refers to it.

mod addresses;
mod live;
#[cfg(test)]
mod tests;

use std::{cell::LazyCell, collections::BTreeSet, net::IpAddr, ops::RangeInclusive};

use clearstream_host::HostRoot;
use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::routing::{
    GroupMember, HostRouting, MAIN_TABLE, Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleAction,
    RuleEntry,
};

pub use self::addresses::AddedAddress;
use self::live::{Adopted, Live, Occupant, same_target};
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
    adopted: Adopted,
}

/// Deviations of the next hops from the wanted ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Changes {
    /// Deviations that were corrected: the previous values, as text.
    pub(super) changed: Vec<String>,
    /// Groups that were changed because their gateways' objects came or went.
    pub(super) followed_count: usize,
    /// Objects that were not there, and are again.
    pub(super) restored: Vec<String>,
    /// Objects that are not in effect.
    pub(super) missing: Vec<Missing>,
}

/// An object that is not in effect.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Missing {
    /// As text.
    pub(super) name: String,
    /// What it leads to.
    pub(super) leads: Leads,
    /// Why.
    pub(super) why: Absence,
}

/// What depends on an object that is not in effect.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Leads {
    /// The next hops of a route; of a nexthop object, those of a route by it.
    To(RouteAction),
    /// Those of the routes of a table, of this family (whether IPv6).
    ToTable(u32, bool),
    /// What is sent from an address.
    FromAddress(IpAddr),
    /// Nowhere.
    Nowhere,
}

/// Why an object is not in effect.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Absence {
    /// It is not there; why it was not made, if that was tried.
    Gone(Option<String>),
    /// Somebody else's object is in its place: whose, and what it is.
    Held(String),
    /// Whoever manages it brings it back.
    Others,
}

impl Absence {
    /// Who is in its place.
    pub(super) fn holder(&self) -> Option<&str> {
        match self {
            Self::Held(holder) => Some(holder),
            Self::Gone(_) | Self::Others => None,
        }
    }
}

impl KernelRoutes {
    /// Opens a socket.
    pub(super) fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: RouteSocket::open()?, adopted: Adopted::default() })
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

    /// Changes our objects that differ from `wanted`, and no others. Those that are not there are made where
    /// `may_restore` allows it: the kernel removes nexthop objects, and all that goes by them, with the carrier of their
    /// link (net/ipv4/nexthop.c, `nh_netdev_event`), and all routes of an interface that goes down or loses its last
    /// address. What others have put in their places stays.
    pub(super) fn apply(
        &mut self,
        wanted: &NextHops,
        may_restore: impl FnOnce() -> bool,
    ) -> Result<Changes, NetlinkError> {
        let may_restore = LazyCell::new(may_restore);
        let live = Live::read(&mut self.socket, wanted, &self.adopted, false)?;
        let mut changes = Changes::default();
        let mut unusable = self.apply_gateways(wanted, &live, &mut changes, || *may_restore);
        self.apply_groups(wanted, &live, &mut unusable, &mut changes, || *may_restore)?;
        self.apply_routes(wanted, &live, &unusable, &mut changes, || *may_restore)?;
        self.apply_rules(wanted, &live, &mut changes, || *may_restore)?;
        Ok(changes)
    }

    /// The gateways of groups; returns those that lead nowhere or to what others chose.
    fn apply_gateways(
        &mut self,
        wanted: &NextHops,
        live: &Live,
        changes: &mut Changes,
        may_restore: impl Fn() -> bool,
    ) -> BTreeSet<u32> {
        let mut unusable = BTreeSet::new();
        for nexthop in &wanted.gateways {
            let before = changes.missing.len();
            match live.nexthop(nexthop, &mut self.adopted) {
                Occupant::Nobody => {
                    let made = may_restore().then(|| self.socket.add_nexthop(nexthop));
                    changes.note(nexthop_name(nexthop), leads(nexthop), made);
                }
                Occupant::Ours(there) if same_target(there, &nexthop.target) => {}
                Occupant::Ours(there) => match self.socket.set_nexthop(nexthop) {
                    Ok(()) => changes.changed.push(format!("{} {}", nexthop_name(nexthop), members(there))),
                    refused => changes.note(nexthop_name(nexthop), leads(nexthop), Some(refused)),
                },
                Occupant::Other(holder) => changes.held(nexthop_name(nexthop), leads(nexthop), holder),
            }
            if changes.missing.len() > before {
                unusable.insert(nexthop.id);
            }
        }
        unusable
    }

    /// Groups of the gateways that can be used.
    fn apply_groups(
        &mut self,
        wanted: &NextHops,
        live: &Live,
        unusable: &mut BTreeSet<u32>,
        changes: &mut Changes,
        may_restore: impl Fn() -> bool,
    ) -> Result<(), NetlinkError> {
        for whole in &wanted.groups {
            let Some(group) = without(whole, unusable) else {
                // Whoever asks why is told of its gateways.
                let occupant = live.nexthop(whole, &mut self.adopted);
                if let Occupant::Nobody = occupant {
                    changes.note(nexthop_name(whole), leads(whole), None);
                } else if let Occupant::Other(holder) = occupant {
                    changes.held(nexthop_name(whole), leads(whole), holder);
                }
                unusable.insert(whole.id);
                continue;
            };
            let before = changes.missing.len();
            match live.nexthop(&group, &mut self.adopted) {
                Occupant::Nobody => {
                    let made = may_restore().then(|| self.socket.add_nexthop(&group));
                    changes.note(nexthop_name(&group), leads(&group), made);
                }
                Occupant::Ours(there) if same_members(there, &group.target) => {}
                Occupant::Ours(there) => {
                    self.socket.set_nexthop(&group)?;
                    // It follows its gateways' objects: nobody altered it.
                    match group.target == whole.target && changes.restored.is_empty() {
                        true => {
                            changes.changed.push(format!("{} of {}", nexthop_name(&group), members(there)));
                        }
                        false => changes.followed_count += 1,
                    }
                }
                Occupant::Other(holder) => changes.held(nexthop_name(&group), leads(&group), holder),
            }
            if changes.missing.len() > before {
                unusable.insert(group.id);
            }
        }
        Ok(())
    }

    fn apply_routes(
        &mut self,
        wanted: &NextHops,
        live: &Live,
        unusable: &BTreeSet<u32>,
        changes: &mut Changes,
        may_restore: impl Fn() -> bool,
    ) -> Result<(), NetlinkError> {
        let differs = |live: &Live, route: &RouteEntry| {
            live.at(route).is_some_and(|there| !same_action(&there.action, &route.action))
        };
        // One of somebody else's before ours would be replaced instead of it.
        let is_to_change = wanted.routes.iter().any(|route| differs(live, route));
        let whole =
            is_to_change.then(|| Live::read(&mut self.socket, wanted, &self.adopted, true)).transpose()?;
        let live = whole.as_ref().unwrap_or(live);
        for route in &wanted.routes {
            let (name, to) = (route_name(route), Leads::To(route.action.clone()));
            let unusable = matches!(&route.action, RouteAction::Nexthop(id) if unusable.contains(id));
            match live.route(route, &mut self.adopted) {
                // It would go by somebody else's object, or be refused.
                Occupant::Nobody if unusable => changes.note(name, to, None),
                Occupant::Nobody => {
                    let made = may_restore().then(|| self.socket.set_route(route, false));
                    changes.note(name, to, made);
                }
                Occupant::Ours(there) if same_action(&there.action, &route.action) => {}
                Occupant::Ours(_) if unusable => changes.note(name, to, None),
                Occupant::Ours(there) => {
                    let mtu = route.mtu.or(there.mtu);
                    self.socket.set_route(&RouteEntry { mtu, ..route.clone() }, true)?;
                    changes.changed.push(format!("{name} {}", action(&there.action)));
                }
                Occupant::Other(holder) => changes.held(name, to, holder),
            }
        }
        Ok(())
    }

    /// Rules that lead to tables of ours.
    fn apply_rules(
        &mut self,
        wanted: &NextHops,
        live: &Live,
        changes: &mut Changes,
        may_restore: impl Fn() -> bool,
    ) -> Result<(), NetlinkError> {
        for rule in &wanted.rules {
            let name = rule_name(rule);
            let to = match rule.action {
                RuleAction::Table(table) => Leads::ToTable(table, rule.ipv6),
                RuleAction::Other(_) => Leads::Nowhere,
            };
            match live.rule(rule, &mut self.adopted) {
                Occupant::Nobody => {
                    let made = may_restore().then(|| self.socket.add_rule(rule));
                    changes.note(name, to, made);
                }
                Occupant::Ours(there) if there.action == rule.action => {}
                Occupant::Ours(there) => {
                    self.socket.add_rule(rule)?;
                    self.socket.remove_rule(there)?;
                    changes.changed.push(format!("{name} {}", there.ip_arguments()));
                }
                Occupant::Other(holder) => changes.held(name, to, holder),
            }
        }
        Ok(())
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

    /// Addresses of the gateways among the effective next hops of a plan's groups and multipath routes; absent for a plan
    /// that is not in effect. With `any_owner`, what stands in its places is its own, whoever put it there.
    pub(super) fn present(
        &mut self,
        plan: &NextHops,
        routing: &HostRouting,
        any_owner: bool,
    ) -> Result<Option<Vec<IpAddr>>, NetlinkError> {
        let live = Live::read(&mut self.socket, plan, &self.adopted, false)?;
        if any_owner {
            self.adopted.take(&live, plan);
        }
        let mut found = Vec::new();
        for group in &plan.groups {
            let Occupant::Ours(NexthopTarget::Group { members, .. }) = live.nexthop(group, &mut self.adopted)
            else {
                return Ok(None);
            };
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
            let Occupant::Ours(there) = live.route(route, &mut self.adopted) else { return Ok(None) };
            match &there.action {
                RouteAction::Gateways(hops) => found.extend(hops.iter().map(|hop| hop.via)),
                _ => return Ok(None),
            }
        }
        Ok(Some(found))
    }
}

impl Changes {
    fn note(&mut self, name: String, leads: Leads, made: Option<Result<(), NetlinkError>>) {
        let refusal = match made {
            Some(Ok(())) => return self.restored.push(name),
            Some(Err(error)) => Some(error.to_string()),
            None => None,
        };
        self.missing.push(Missing { name, leads, why: Absence::Gone(refusal) });
    }

    fn held(&mut self, name: String, leads: Leads, holder: String) {
        self.missing.push(Missing { name, leads, why: Absence::Held(holder) });
    }
}

fn leads(nexthop: &Nexthop) -> Leads {
    Leads::To(RouteAction::Nexthop(nexthop.id))
}

/// A group of the members that can be used; absent where there is none.
fn without(group: &Nexthop, unusable: &BTreeSet<u32>) -> Option<Nexthop> {
    let NexthopTarget::Group { members, resilient } = &group.target else { return Some(group.clone()) };
    let left: Vec<GroupMember> =
        members.iter().filter(|member| !unusable.contains(&member.id)).copied().collect();
    let target = NexthopTarget::Group { members: left, resilient: *resilient };
    let has_some = matches!(&target, NexthopTarget::Group { members, .. } if !members.is_empty());
    has_some.then(|| Nexthop { target, ..group.clone() })
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

fn rule_name(rule: &RuleEntry) -> String {
    let family = if rule.ipv6 { "IPv6" } else { "IPv4" };
    let priority = rule.priority.map_or_else(String::new, |priority| format!(" {priority}"));
    format!("{family} rule{priority} {}", rule.selector.ip_arguments())
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
