//! Splits a host's routing into the part that a tool can express and the rest.

use std::collections::BTreeSet;

use clearstream_schema::routing::{
    HostRouting, Nexthop, NexthopTarget, RouteAction, RouteEntry, RoutingInterface, RuleEntry,
};

use super::{HOOK, NETWORKD_CONF, RenderedFile};

/// What a tool can express. Each function returns the reason why not.
pub(crate) struct Grammar {
    /// Display name.
    pub(crate) name: &'static str,
    /// A route that goes out by gateways of one interface, or by none.
    pub(crate) route: fn(&RouteEntry) -> Option<&'static str>,
    pub(crate) rule: fn(&RuleEntry) -> Option<&'static str>,
    pub(crate) nexthop: fn(&Nexthop) -> Option<&'static str>,
    /// Whether next hops of a route, and members of a group, stay in their
    /// order. With a fixed hash seed both ends depend on it.
    pub(crate) keeps_order: Order,
    /// Whether routes and rules keep the number of their owner.
    pub(crate) owners: Owners,
}

/// Whether the numbers of owners (`proto`) can be expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owners {
    pub(crate) routes: bool,
    pub(crate) rules: bool,
}

/// Whether the order of next hops is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) routes: bool,
    pub(crate) groups: bool,
}

/// The two parts, and notices to the user.
pub(crate) struct Split {
    /// Part in the tool's files. Hops have their interface, and all interfaces have
    /// addresses.
    pub(crate) carried: HostRouting,
    /// Part in batches.
    pub(crate) rest: HostRouting,
    pub(crate) notices: Vec<String>,
}

pub(crate) fn split(routing: &HostRouting, grammar: &Grammar) -> Split {
    let mut split = Split {
        carried: HostRouting { host: routing.host.clone(), ..HostRouting::default() },
        rest: HostRouting { host: routing.host.clone(), ..HostRouting::default() },
        notices: Vec::new(),
    };
    let mut reasons = BTreeSet::new();
    interfaces(routing, &mut split, &mut reasons);
    nexthops(routing, grammar, &mut split, &mut reasons);
    let order_matters = routing.sysctls.contains_key(SEED);
    for route in &routing.routes {
        let hops_move = order_matters && !grammar.keeps_order.routes && hop_count(route) > 1;
        let carried = if hops_move { Err(MOVED) } else { carried_route(route, grammar, &split.carried) };
        match carried {
            Ok(route) => split.carried.routes.push(route),
            Err(reason) => {
                reasons.extend(Some(reason).filter(|reason| *reason != WITH_NEXTHOPS));
                split.rest.routes.push(route.clone());
            }
        }
    }
    for rule in &routing.rules {
        let is_there = home(&split.carried, rule.ipv6).is_some();
        let reason = if is_there { (grammar.rule)(rule) } else { Some(NO_PROFILE) };
        let part = if reason.is_none() { &mut split.carried } else { &mut split.rest };
        part.rules.push(rule.clone());
        reasons.extend(reason);
    }
    split.rest.connection_marks.clone_from(&routing.connection_marks);
    if !routing.connection_marks.is_empty() {
        reasons.insert("connection marks");
    }
    split.notices = reasons
        .into_iter()
        .map(|what| format!("{}: {what}: written for clearstream-routes.service beside it", grammar.name))
        .collect();
    split.notices.extend(lost_owners(&split.carried, grammar));
    split
}

/// The key whose presence means that both ends use one hash seed (ip-sysctl.rst).
const SEED: &str = "net.ipv4.fib_multipath_hash_seed";
const MOVED: &str = "next hops whose order counts because the hash seed is fixed";
/// Routes by nexthops go where these go, which has its own reason.
const WITH_NEXTHOPS: &str = "";
const NO_PROFILE: &str = "interfaces without an address of the family here";

/// A profile takes an interface over: without addresses it would remove those that
/// others have assigned.
fn interfaces(routing: &HostRouting, split: &mut Split, reasons: &mut BTreeSet<&'static str>) {
    for interface in &routing.interfaces {
        if !interface.addresses.is_empty() {
            split.carried.interfaces.push(interface.clone());
        } else if interface.mtu.is_some() || interface.infiniband_mode.is_some() {
            reasons.insert(NO_PROFILE);
            split.rest.interfaces.push(interface.clone());
        }
    }
}

/// Nexthops stay together: a group in one place and its members in another
/// would come and go at different times.
fn nexthops(
    routing: &HostRouting,
    grammar: &Grammar,
    split: &mut Split,
    reasons: &mut BTreeSet<&'static str>,
) {
    let is_foreign = |nexthop: &Nexthop| match &nexthop.target {
        NexthopTarget::Gateway { interface, .. } => {
            split.carried.interfaces.iter().all(|known| known.name != *interface)
        }
        _ => split.carried.interfaces.is_empty(),
    };
    let refused: BTreeSet<&'static str> = routing
        .nexthops
        .iter()
        .filter_map(|nexthop| {
            let is_group = matches!(nexthop.target, NexthopTarget::Group { .. });
            if is_foreign(nexthop) {
                Some(NO_PROFILE)
            } else if is_group && !grammar.keeps_order.groups && routing.sysctls.contains_key(SEED) {
                Some(MOVED)
            } else {
                (grammar.nexthop)(nexthop)
            }
        })
        .collect();
    let part = if refused.is_empty() { &mut split.carried } else { &mut split.rest };
    part.nexthops.clone_from(&routing.nexthops);
    reasons.extend(refused);
}

/// The route as the tool can express it, each hop with its interface.
fn carried_route(
    route: &RouteEntry,
    grammar: &Grammar,
    carried: &HostRouting,
) -> Result<RouteEntry, &'static str> {
    let mut route = route.clone();
    let ipv6 = route.destination.address.is_ipv6();
    let has =
        |name: &str| carried.interfaces.iter().any(|known| known.name == name && has_family(known, ipv6));
    let is_there = match &mut route.action {
        RouteAction::Link { interface } => has(interface),
        RouteAction::Gateways(hops) => {
            for hop in hops.iter_mut() {
                let on_link = |known: &&RoutingInterface| {
                    known.addresses.iter().any(|address| address.value.contains(hop.via))
                };
                if hop.interface.is_none() {
                    hop.interface = carried.interfaces.iter().find(on_link).map(|known| known.name.clone());
                }
            }
            let first = hops.first().and_then(|hop| hop.interface.clone());
            if hops.iter().any(|hop| hop.interface != first) {
                return Err("next hops on different interfaces");
            }
            first.is_some_and(|interface| has(&interface))
        }
        RouteAction::Nexthop(id) if carried.nexthops.iter().all(|known| known.id != *id) => {
            return Err(WITH_NEXTHOPS);
        }
        _ => home(carried, ipv6).is_some(),
    };
    if !is_there {
        return Err(NO_PROFILE);
    }
    match (grammar.route)(&route) {
        Some(reason) => Err(reason),
        None => Ok(route),
    }
}

fn lost_owners(carried: &HostRouting, grammar: &Grammar) -> Vec<String> {
    let owned_routes = carried.routes.iter().any(|route| route.protocol != 0)
        || carried.nexthops.iter().any(|nexthop| nexthop.protocol != 0);
    let owned_rules = carried.rules.iter().any(|rule| rule.protocol != 0);
    let lost = |what: &str| {
        format!(
            "{}: cannot express who owns {what} (protocol): the kernel will show its own number",
            grammar.name
        )
    };
    let mut notices = Vec::new();
    if owned_routes && !grammar.owners.routes {
        notices.push(lost("routes"));
    }
    if owned_rules && !grammar.owners.rules {
        notices.push(lost("rules"));
    }
    notices
}

/// Hook that loads the batches again when an interface has been down, for NetworkManager.
pub(crate) fn manager_hooks() -> Vec<RenderedFile> {
    vec![RenderedFile::program("etc/NetworkManager/dispatcher.d/50-clearstream-routes", HOOK)]
}

/// The same for systemd-networkd, which is kept from removing what the batches add.
pub(crate) fn networkd_hooks() -> Vec<RenderedFile> {
    vec![
        RenderedFile::program("etc/networkd-dispatcher/routable.d/50-clearstream-routes", HOOK),
        RenderedFile::text(
            "etc/systemd/networkd.conf.d/50-clearstream-routes.conf",
            NETWORKD_CONF.to_owned(),
        ),
    ]
}

/// The interface that a carried route goes out by.
fn interface_of(route: &RouteEntry) -> Option<&str> {
    match &route.action {
        RouteAction::Link { interface } => Some(interface),
        RouteAction::Gateways(hops) => hops.first()?.interface.as_deref(),
        _ => None,
    }
}

fn hop_count(route: &RouteEntry) -> usize {
    match &route.action {
        RouteAction::Gateways(hops) => hops.len(),
        _ => 0,
    }
}

/// The first interface with an address of a family: home of what has none.
fn home(carried: &HostRouting, ipv6: bool) -> Option<&RoutingInterface> {
    carried.interfaces.iter().find(|known| has_family(known, ipv6))
}

/// Whether an interface has an address of a family; the sections of tools for
/// families without address are switched off.
fn has_family(interface: &RoutingInterface, ipv6: bool) -> bool {
    interface.addresses.iter().any(|address| address.value.address.is_ipv6() == ipv6)
}

/// Routes that belong into the file of an interface.
pub(crate) fn routes_of<'a>(carried: &'a HostRouting, name: &'a str) -> impl Iterator<Item = &'a RouteEntry> {
    carried.routes.iter().filter(move |route| {
        let home = || home(carried, route.destination.address.is_ipv6()).map(|known| known.name.as_str());
        interface_of(route).or_else(home) == Some(name)
    })
}

/// Rules that belong into the file of an interface: that whose address they
/// are from, else the first one's.
pub(crate) fn rules_of<'a>(carried: &'a HostRouting, name: &'a str) -> impl Iterator<Item = &'a RuleEntry> {
    carried.rules.iter().filter(move |rule| {
        let owns = |known: &&RoutingInterface| {
            let from = rule.selector.from.map(|from| from.address);
            known.addresses.iter().any(|address| Some(address.value.address) == from)
        };
        let home = carried.interfaces.iter().find(owns).or_else(|| home(carried, rule.ipv6));
        home.is_some_and(|known| known.name == name)
    })
}
