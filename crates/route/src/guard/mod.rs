//! What a plan would do to the connection by which it is applied and to the
//! host's default route, found on paper before anything is changed.

mod sessions;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use clearstream_schema::{
    plan::{Plan, Setting},
    routing::{HostRouting, Located, Nexthop, RouteAction, RouteEntry, RoutingInterface, RuleEntry},
};

pub use self::sessions::{Controlling, controlling, of_this_process};
use crate::{
    difference::is_default,
    planner::lookup::{Lookup, Packet, Verdict},
};

/// Addresses that nobody has (RFC 5737, RFC 3849, RFC 9637): what they are
/// looked up by is the default route, unless a host routes them itself.
const NOBODYS: [&str; 5] = ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"];

/// What a plan would change for one destination that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Danger {
    /// Whose way it is: `the ssh session from 10.0.0.7`, `the IPv4 default route`.
    pub subject: String,
    /// The way now.
    pub before: String,
    /// The way afterwards.
    pub after: String,
    /// Nothing arrives afterwards; else it goes another way.
    pub is_cut: bool,
}

impl Danger {
    /// One line.
    pub fn words(&self) -> String {
        let Self { subject, before, after, is_cut } = self;
        let verb = if *is_cut { "cut" } else { "move" };
        format!("it would {verb} {subject}: {before} now, {after} afterwards")
    }
}

/// What the plan would change for the controlling connections and for the
/// default route of each family.
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
        let Some(destination) = nobodys(live, ipv6) else { continue };
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

/// An address whose way is the default route of this host.
fn nobodys(live: &HostRouting, ipv6: bool) -> Option<IpAddr> {
    let specific = |address: IpAddr| {
        let routed = live
            .routes
            .iter()
            .any(|route| !is_default(route.destination) && route.destination.contains(address));
        let mut links = live.interfaces.iter().flat_map(|interface| &interface.addresses);
        routed || links.any(|known| known.value.contains(address))
    };
    let all = NOBODYS.iter().filter_map(|text| text.parse::<IpAddr>().ok());
    all.filter(|address| address.is_ipv6() == ipv6).find(|address| !specific(*address))
}

fn compare(subject: String, before: &Verdict<'_>, after: &Verdict<'_>) -> Option<Danger> {
    if before == after {
        return None;
    }
    let is_cut = matches!(after, Verdict::NoRoute | Verdict::Refused(_) | Verdict::Unknown(_));
    Some(Danger { subject, before: words(before), after: words(after), is_cut })
}

fn words(verdict: &Verdict<'_>) -> String {
    match verdict {
        Verdict::Local => "to this host itself".to_owned(),
        Verdict::Link(interface) => format!("on {interface}"),
        Verdict::Gateways(ways, _) => {
            let way = |interface: Option<&str>, via: IpAddr| match interface {
                Some(interface) => format!("by {via} on {interface}"),
                None => format!("by {via}"),
            };
            let ways: Vec<String> = ways.iter().map(|hop| way(hop.interface, hop.via)).collect();
            ways.join(" or ")
        }
        Verdict::Refused(word) => (*word).to_owned(),
        Verdict::NoRoute => "no route".to_owned(),
        Verdict::Unknown(words) => format!("a rule that is not understood ({words})"),
    }
}

/// What the host would route by after a plan.
pub fn applied(live: &HostRouting, plan: &Plan) -> HostRouting {
    let mut after = live.clone();
    for step in &plan.steps {
        let desired = step.desired.as_deref();
        match &step.setting {
            Setting::Nexthop { id } => {
                after.nexthops.retain(|nexthop| nexthop.id != *id);
                after.nexthops.extend(desired.and_then(|text| Nexthop::from_words(*id, text).ok()));
            }
            setting @ Setting::Route { table, destination, metric } => {
                after.routes.retain(|route| route.setting() != *setting);
                let read = |text| RouteEntry::from_words(*table, *destination, *metric, text).ok();
                after.routes.extend(desired.and_then(read));
            }
            setting @ Setting::Rule { ipv6, priority, selector } => {
                after.rules.retain(|rule| rule.setting().as_ref() != Some(setting));
                let read = |text| RuleEntry::from_words(*ipv6, *priority, selector, text).ok();
                after.rules.extend(desired.and_then(read));
            }
            Setting::Address { interface, prefix } => {
                let found = after.interfaces.iter_mut().find(|known| known.name == *interface);
                let Some(RoutingInterface { addresses, .. }) = found else { continue };
                addresses.retain(|address| address.value != *prefix);
                if desired.is_some() {
                    addresses.push(Located::from(*prefix));
                }
            }
            _ => {}
        }
    }
    // Routes that go by a nexthop object go with it.
    let ids: Vec<u32> = after.nexthops.iter().map(|nexthop| nexthop.id).collect();
    after.routes.retain(|route| match route.action {
        RouteAction::Nexthop(id) => ids.contains(&id),
        _ => true,
    });
    after
}
