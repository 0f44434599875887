//! Lockout protection of a host's routing, a [`Guard`] of `plan`: the effect of a plan on
//! the connections by which the host is controlled and on its default routes is
//! predicted before anything is changed, and looked up in the kernel afterwards.

mod paths;
mod sessions;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use clearstream_host::HostRoot;
use clearstream_plan::{Danger, Guard, PlanError, Snapshot};
use clearstream_schema::{
    plan::{Plan, Setting, Value},
    routing::{HostRouting, Located, RouteAction, RoutingInterface},
};

pub use self::sessions::{Controlling, controlling, of_this_process};
use crate::{
    difference::is_default,
    live,
    planner::lookup::{Lookup, Packet, Verdict},
};

/// Addresses that no host has (RFC 5737, RFC 3849, RFC 9637): a lookup of them
/// returns the default route, unless a host has a route for them.
const DOCUMENTATION_ADDRESSES: [&str; 5] =
    ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"];

/// Guards the controlling connections and the default routes of the running host.
#[derive(Debug)]
pub struct RoutingGuard {
    root: HostRoot,
    sessions: Vec<Controlling>,
}

impl RoutingGuard {
    /// For an operator, local or over ssh; `ssh_connection` is the value of
    /// `SSH_CONNECTION`.
    pub fn of_operator(ssh_connection: Option<&str>) -> Self {
        let root = HostRoot::live();
        let sessions = controlling(&root, ssh_connection);
        Self { root, sessions }
    }

    /// For an agent: its own connections too.
    pub fn of_agent(ssh_connection: Option<&str>) -> Self {
        let mut guard = Self::of_operator(ssh_connection);
        guard.sessions.extend(of_this_process(&guard.root));
        guard
    }
}

impl Guard for RoutingGuard {
    fn is_touched_by(&self, plan: &Plan) -> bool {
        plan.steps.iter().any(|step| step.setting.is_routing())
    }

    fn dangers(&self, plan: &Plan) -> Result<Vec<Danger>, PlanError> {
        let live = live::live(&self.root).map_err(PlanError::Netlink)?;
        Ok(dangers(&live, plan, &self.sessions))
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(paths::Paths::of(&self.sessions))
    }
}

/// Effects of the plan on the controlling connections and on the default route of
/// each family.
pub fn dangers(live: &HostRouting, plan: &Plan, connections: &[Controlling]) -> Vec<Danger> {
    let after = applied(live, plan);
    let (now, then) = (Lookup::new(live), Lookup::new(&after));
    let mut found = Vec::new();
    for connection in connections {
        let packet = Packet::sent(connection.local, connection.peer);
        let subject = format!("{} from {}", connection.what, connection.peer);
        found.extend(compare(subject, &now.find(&packet).verdict, &then.find(&packet).verdict));
        if has(live, connection.local) && !has(&after, connection.local) {
            found.push(Danger {
                subject: format!("{} from {}", connection.what, connection.peer),
                before: format!("its address {} here", connection.local),
                after: "without it".to_owned(),
                is_cut: true,
            });
        }
    }
    for ipv6 in [false, true] {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let Some(destination) = default_route_probe(live, ipv6) else { continue };
        let packet = Packet { source: None, destination, mark: 0, input: None };
        let before = now.find(&packet).verdict;
        if before != Verdict::NoRoute {
            found.extend(compare(
                format!("the {family} default route"),
                &before,
                &then.find(&packet).verdict,
            ));
        }
    }
    found
}

fn has(routing: &HostRouting, address: IpAddr) -> bool {
    let mut all = routing.interfaces.iter().flat_map(|interface| &interface.addresses);
    all.any(|known| known.value.address == address)
}

/// An address whose path is the default route of this host.
fn default_route_probe(live: &HostRouting, ipv6: bool) -> Option<IpAddr> {
    let specific = |address: IpAddr| {
        let routed = live
            .routes
            .iter()
            .any(|route| !is_default(route.destination) && route.destination.contains(address));
        let mut links = live.interfaces.iter().flat_map(|interface| &interface.addresses);
        routed || links.any(|known| known.value.contains(address))
    };
    let all = DOCUMENTATION_ADDRESSES.iter().filter_map(|text| text.parse::<IpAddr>().ok());
    all.filter(|address| address.is_ipv6() == ipv6).find(|address| !specific(*address))
}

fn compare(subject: String, before: &Verdict<'_>, after: &Verdict<'_>) -> Option<Danger> {
    if before == after {
        return None;
    }
    let is_cut = matches!(after, Verdict::NoRoute | Verdict::Refused(_) | Verdict::Unknown(_));
    Some(Danger { subject, before: describe(before), after: describe(after), is_cut })
}

fn describe(verdict: &Verdict<'_>) -> String {
    match verdict {
        Verdict::Local => "to this host itself".to_owned(),
        Verdict::Link(interface) => format!("on {interface}"),
        Verdict::Gateways(hops, _) => {
            let hop = |interface: Option<&str>, via: IpAddr| match interface {
                Some(interface) => format!("by {via} on {interface}"),
                None => format!("by {via}"),
            };
            let hops: Vec<String> = hops.iter().map(|it| hop(it.interface, it.via)).collect();
            hops.join(" or ")
        }
        Verdict::Refused(kind) => (*kind).to_owned(),
        Verdict::NoRoute => "no route".to_owned(),
        Verdict::Unknown(rule) => format!("a rule that is not understood ({rule})"),
    }
}

/// Routing of the host after a plan.
pub fn applied(live: &HostRouting, plan: &Plan) -> HostRouting {
    let mut after = live.clone();
    for step in &plan.steps {
        // What is no value of its setting is rejected before anything is changed.
        let wanted = step.desired.clone();
        match &step.setting {
            Setting::Nexthop { id } => {
                after.nexthops.retain(|nexthop| nexthop.id != *id);
                if let Some(Value::Nexthop(value)) = wanted {
                    after.nexthops.push(value.at(*id));
                }
            }
            setting @ Setting::Route { table, destination, metric } => {
                after.routes.retain(|route| route.setting() != *setting);
                if let Some(Value::Route(value)) = wanted {
                    after.routes.push(value.at(*table, *destination, *metric));
                }
            }
            setting @ Setting::Rule { ipv6, priority, selector } => {
                after.rules.retain(|rule| rule.setting().as_ref() != Some(setting));
                if let Some(Value::Rule(value)) = wanted {
                    after.rules.push(value.at(*ipv6, *priority, selector));
                }
            }
            Setting::Address { interface, prefix } => {
                let found = after.interfaces.iter_mut().find(|known| known.name == *interface);
                let Some(RoutingInterface { addresses, .. }) = found else { continue };
                addresses.retain(|address| address.value != *prefix);
                if wanted.is_some() {
                    addresses.push(Located::from(*prefix));
                }
            }
            _ => {}
        }
    }
    // Routes that use a nexthop object are removed with it.
    let ids: Vec<u32> = after.nexthops.iter().map(|nexthop| nexthop.id).collect();
    after.routes.retain(|route| match route.action {
        RouteAction::Nexthop(id) => ids.contains(&id),
        _ => true,
    });
    after
}
