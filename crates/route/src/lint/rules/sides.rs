//! Both ends of a path: the gateways of each, and whether replies return by the
//! gateway of the request.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    ptr,
};

use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteEntry, RuleAction, RuleEntry},
    tune::{Finding, FindingClass, Severity},
};

use super::{
    super::{
        Facts, View, With, finding, ip_syntax,
        view::{ResolvedHop, overlap},
    },
    policy::KERNEL_TABLES,
    weights,
};
use crate::walk::meeting_share;

/// A gateway by the name that both sides use, and its share of the flows, 0 to 1.
type Share<'f> = (&'f str, f64);

/// Tables for each gateway that no packet of this host reaches, beside a
/// multipath route that all of them take.
pub(super) fn own_tables_unused(facts: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    if !tables_never_reached(facts, host) {
        return;
    }
    for (route, hops) in host.multipaths().filter(|(_, hops)| !facts.is_nobody(hops)) {
        let count = u32::try_from(hops.len()).unwrap_or(u32::MAX);
        let share = 1.0 - 1.0 / f64::from(count);
        let why = "no packet of this host reaches the tables that were made for each gateway".to_owned();
        found.push(asymmetric_finding(facts, host, route, &hops, share, &why));
    }
}

fn tables_never_reached(facts: &Facts<'_>, host: &View<'_>) -> bool {
    let single: BTreeSet<(u32, IpAddr)> = host
        .routing
        .routes
        .iter()
        .filter(|route| !KERNEL_TABLES.contains(&route.table))
        .filter_map(|route| match &host.hops(route)[..] {
            [hop] => Some((route.table, hop.via)),
            _ => None,
        })
        .collect();
    let gateways: BTreeSet<IpAddr> = single.iter().map(|(_, via)| *via).collect();
    if gateways.len() < 2 || host.routing.rules.is_empty() && !host.is_whole() {
        return false;
    }
    let leads = |rule: &RuleEntry| {
        let RuleAction::Table(table) = rule.action else { return false };
        single.iter().any(|(own, _)| *own == table) && super::policy::may_match(facts, host, rule)
    };
    !host.routing.rules.iter().any(leads)
}

/// Both sides choose among the gateways, each for itself.
pub(super) fn asymmetric(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    let mut unreached: HashMap<*const View<'_>, bool> = HashMap::new();
    for (left, right) in facts.pairs() {
        let (server, client) = facts.server_first(left, right);
        let mut has_unreached =
            |host| *unreached.entry(ptr::from_ref(host)).or_insert_with(|| tables_never_reached(facts, host));
        if has_unreached(server)
            || has_unreached(client)
            || facts.fabric.wants_no_return_path(client.attached.iter().map(|(_, network)| *network))
        {
            continue;
        }
        let Some((route, hops, share)) = worst_return(facts, client, server) else { continue };
        if worst_return(facts, server, client).is_none() {
            continue;
        }
        // One for each host and route, regardless of the clients.
        if !reported.insert((server.subject.name.clone(), route.destination, route.table)) {
            continue;
        }
        let why =
            format!("{} and {} each choose by a hash of their own", client.subject.name, server.subject.name);
        found.push(asymmetric_finding(facts, server, route, &hops, share, &why));
    }
}

/// The route by which `server` replies to `client`, and the largest share of flows
/// that return by another gateway; absent when replies of some address of the
/// server return by the gateway of the request.
fn worst_return<'a>(
    facts: &Facts<'a>,
    client: &View<'a>,
    server: &View<'a>,
) -> Option<(&'a RouteEntry, Vec<ResolvedHop<'a>>, f64)> {
    let mut worst: Option<(&RouteEntry, Vec<ResolvedHop<'_>>, f64)> = None;
    let mut seen = HashSet::new();
    for at in server.reachable() {
        for from in client.reachable_like(at) {
            let (Some((by, there)), Some((route, hops))) =
                (client.sends_over(None, at), server.sends_over(Some(at), from))
            else {
                continue;
            };
            let vias = |hops: &[ResolvedHop<'_>]| hops.iter().map(|hop| hop.via).collect::<Vec<_>>();
            if !seen.insert((ptr::from_ref(by), ptr::from_ref(route), vias(&hops))) {
                continue;
            }
            if !join(facts, &there, at) || !join(facts, &hops, from) {
                continue;
            }
            let share = share_elsewhere(facts, client, server, &there, &hops)?;
            if worst.as_ref().is_none_or(|(.., worst)| share > *worst) {
                worst = Some((route, hops, share));
            }
        }
    }
    worst
}

/// Whether next hops may be on the network of an address themselves. What goes on over further
/// routers is not decided by them: the first ones of both ends need not be the same.
fn join(facts: &Facts<'_>, hops: &[ResolvedHop<'_>], far: IpAddr) -> bool {
    hops.iter().all(|hop| {
        let owner = facts.owner(hop.via);
        owner.is_none_or(|owner| !owner.knows_addresses(None, far) || owner.is_attached(far, None))
    })
}

/// The same for some address of a host, where any is known.
fn lead_straight(facts: &Facts<'_>, hops: &[ResolvedHop<'_>], to: &View<'_>) -> bool {
    let mut far = to.reachable().peekable();
    far.peek().is_none() || far.any(|far| join(facts, hops, far))
}

/// Share of flows whose reply takes another gateway than the request; absent
/// when none do, or when it cannot be determined.
fn share_elsewhere(
    facts: &Facts<'_>,
    client: &View<'_>,
    server: &View<'_>,
    there: &[ResolvedHop<'_>],
    back: &[ResolvedHop<'_>],
) -> Option<f64> {
    if replies_by_mark(server) || have_equal_seeds(client, server) {
        return None;
    }
    // What nobody forwards has no reply.
    if facts.is_nobody(there) || facts.is_nobody(back) {
        return None;
    }
    let (Some(there), Some(back)) = (shares(facts, there), shares(facts, back)) else {
        // Gateways cannot be matched: equal shares are assumed.
        let count = u32::try_from(back.len()).ok()?;
        return (count > 1).then(|| 1.0 - 1.0 / f64::from(count));
    };
    let same = meeting_share(&there, &back);
    (same < 0.999).then_some(1.0 - same)
}

/// Connections are marked, or rules by mark lead to single gateways; the firewall
/// that sets marks is not read.
fn replies_by_mark(server: &View<'_>) -> bool {
    let leads = |rule: &RuleEntry| {
        let RuleAction::Table(table) = rule.action else { return false };
        let routes = server.tables.get(&table).map_or(&[][..], Vec::as_slice);
        rule.selector.mark.is_some() && routes.iter().copied().any(|route| server.hops(route).len() == 1)
    };
    !server.routing.connection_marks.is_empty() || server.routing.rules.iter().any(leads)
}

/// Gateways by name with their shares; absent when one is not known.
fn shares<'f>(facts: &'f Facts<'_>, hops: &[ResolvedHop<'_>]) -> Option<Vec<Share<'f>>> {
    let all: f64 = hops.iter().map(|hop| f64::from(hop.weight)).sum();
    hops.iter().map(|hop| Some((facts.gateway_name(hop.via)?, f64::from(hop.weight) / all))).collect()
}

/// The whole share of each gateway; one may be there twice.
fn by_name<'f>(shares: &[Share<'f>]) -> BTreeMap<&'f str, f64> {
    let mut whole = BTreeMap::new();
    for (name, share) in shares {
        *whole.entry(*name).or_default() += share;
    }
    whole
}

/// Both use the same hash.
fn have_equal_seeds(left: &View<'_>, right: &View<'_>) -> bool {
    left.hash_seed().is_some() && left.hash_seed() == right.hash_seed()
}

/// Replies that come back by another gateway than the request took.
fn asymmetric_finding(
    facts: &Facts<'_>,
    host: &View<'_>,
    route: &RouteEntry,
    hops: &[ResolvedHop<'_>],
    share: f64,
    why: &str,
) -> Finding {
    let percent = (share * 100.0).round();
    let stateful = hops.iter().find_map(|hop| facts.stateful_gateway(hop.via));
    let (class, cause, severity, harm) = match stateful {
        Some(name) => (
            FindingClass::Unsafe,
            "asymmetric-through-stateful",
            Severity::Error,
            format!("; {name} keeps connection state and drops what it saw no beginning of"),
        ),
        None => (
            FindingClass::Routing,
            "asymmetric",
            Severity::Warning,
            ": firewalls on the gateways would drop them, and the loss of one gateway hits flows of both \
             directions"
                .to_owned(),
        ),
    };
    let by = match hops {
        [only] => format!("{} alone", facts.gateway_name(only.via).unwrap_or("one gateway")),
        _ => format!("any of {} gateways", hops.len()),
    };
    let message = format!(
        "replies leave by {by}, whichever the request came by ({why}): about {percent} % of the connections \
         return by another one{harm}"
    );
    finding(host, "return", class, cause, severity, message)
        .of(ip_syntax::route(route))
        .at(route.place.as_ref().or_else(|| hops.first().and_then(|hop| hop.place)))
        .advise(
            "give the servers an address for each gateway with a rule and a table, or mark connections by the \
             gateway that they came by (`clearstream route plan` shows the cost of each)",
        )
        .sourced("measured: 84 % of 300 flows over six gateways; ip-sysctl.rst")
}

/// Gateways, weights and order that the two sides do not share.
pub(super) fn gateways_differ(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let mut weighed = weights::Weighed::new(facts);
    for (left, right) in facts.pairs() {
        let (Some(there), Some(back)) = (widest(left, right), widest(right, left)) else { continue };
        // A next hop that does not lead to the other side is reported by the
        // simulation.
        if [&there, &back].iter().any(|multipath| has_wrong_hop(facts, multipath))
            || !lead_straight(facts, &there.1, right)
            || !lead_straight(facts, &back.1, left)
        {
            continue;
        }
        let sides = [(left, &there), (right, &back)];
        let named = (shares(facts, &there.1), shares(facts, &back.1));
        match named {
            (Some(mine), Some(theirs)) => {
                named_differ(&sides, &mine, &theirs, found);
                weighed.compare(&sides);
            }
            // Behind default routes are routers of two networks, which need not be alike.
            _ if [&there, &back].iter().all(|(route, _)| route.destination.length > 0) => {
                counts_differ(&sides, found);
            }
            _ => {}
        }
    }
    weighed.accuse(found);
}

fn has_wrong_hop(facts: &Facts<'_>, (route, hops): &(&RouteEntry, Vec<ResolvedHop<'_>>)) -> bool {
    hops.iter().any(|hop| {
        let owner = facts.owner(hop.via);
        owner.is_some_and(|owner| !owner.may_lead(hop.via, route.destination))
    })
}

pub(super) type Side<'s, 'v, 'a> = (&'s View<'a>, &'v (&'a RouteEntry, Vec<ResolvedHop<'a>>));

/// The multipath route with the most gateways that one host has to another.
fn widest<'a>(from: &View<'a>, to: &View<'a>) -> Option<(&'a RouteEntry, Vec<ResolvedHop<'a>>)> {
    let leads_there = |route: &RouteEntry| {
        let destination = route.destination;
        if to.knows_addresses(None, destination.address) {
            return to.reachable().any(|own| destination.contains(own));
        }
        destination.length > 0 && !from.attached.iter().any(|(_, network)| overlap(*network, destination))
    };
    from.multipaths().filter(|(route, _)| leads_there(route)).max_by_key(|(_, hops)| hops.len())
}

fn named_differ(
    sides: &[Side<'_, '_, '_>; 2],
    mine: &[Share<'_>],
    theirs: &[Share<'_>],
    found: &mut Vec<Finding>,
) {
    let (left, right) = (by_name(mine), by_name(theirs));
    let [(left_host, left_multipath), (right_host, right_multipath)] = sides;
    for (host, multipath, other, lacking) in [
        (left_host, left_multipath, right_host, lacking(&right, &left)),
        (right_host, right_multipath, left_host, lacking(&left, &right)),
    ] {
        if !lacking.is_empty() {
            let message = format!(
                "{} goes by {} too, and this route does not: what comes by it returns by another gateway, \
                 and its link on this side is half idle",
                other.subject.name,
                list(&lacking)
            );
            found.push(side_finding(
                host,
                multipath.0,
                "one-side-only",
                message,
                "name the same gateways on both sides",
            ));
        }
    }
    let is_same_set = left.keys().eq(right.keys());
    if is_same_set
        && weights::are_alike(&left, &right)
        && have_equal_seeds(left_host, right_host)
        && mine.iter().map(|(name, _)| name).ne(theirs.iter().map(|(name, _)| name))
    {
        let message = format!(
            "its gateways stand in another order than those of {}: equal seeds give equal gateways only \
             where the orders are equal too",
            right_host.subject.name
        );
        let advice = "write the gateways in one order on all hosts";
        found.push(side_finding(left_host, left_multipath.0, "order-differs", message, advice));
    }
}

/// Gateways of `all` that are not in `some`.
fn lacking<'f>(all: &BTreeMap<&'f str, f64>, some: &BTreeMap<&'f str, f64>) -> Vec<&'f str> {
    all.keys().copied().filter(|name| !some.contains_key(name)).collect()
}

/// Compares numbers of gateways, where their addresses cannot be matched.
fn counts_differ(sides: &[Side<'_, '_, '_>; 2], found: &mut Vec<Finding>) {
    let [(left_host, left), (right_host, right)] = sides;
    let (less, more) = if left.1.len() < right.1.len() {
        ((left_host, left), (right_host, right))
    } else {
        ((right_host, right), (left_host, left))
    };
    if less.1.1.len() < more.1.1.len() {
        let message = format!(
            "{} gateways here and {} in \"{}\" of {}: what comes by one that is not here returns by another",
            less.1.1.len(),
            more.1.1.len(),
            ip_syntax::route(more.1.0),
            more.0.subject.name
        );
        let advice = "name the same gateways on both sides";
        found.push(side_finding(less.0, less.1.0, "one-side-only", message, advice));
        return;
    }
    let weights = |hops: &[ResolvedHop<'_>]| {
        let mut weights: Vec<u16> = hops.iter().map(|hop| hop.weight).collect();
        weights.sort_unstable();
        let least = weights.first().copied().unwrap_or(1).max(1);
        weights.into_iter().map(|weight| f64::from(weight) / f64::from(least)).collect::<Vec<_>>()
    };
    if weights(&left.1) != weights(&right.1) {
        let message = format!(
            "some gateways have another weight than in the route of {}: their share of one direction is not \
             that of the other, and the narrower one fills first",
            right_host.subject.name
        );
        let advice = "write the same weights on both sides";
        found.push(side_finding(left_host, left.0, "weights-differ", message, advice));
    }
}

pub(super) fn side_finding(
    host: &View<'_>,
    route: &RouteEntry,
    cause: &str,
    message: String,
    advice: &str,
) -> Finding {
    finding(host, "gateway", FindingClass::Routing, cause, Severity::Warning, message)
        .of(ip_syntax::route(route))
        .at(route.place.as_ref())
        .advise(advice)
        .sourced("ip-route(8), ip-sysctl.rst")
}

/// A multipath route to a network on which none of the other hosts is.
pub(super) fn not_the_other_network(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let mut reported = BTreeSet::new();
    for (host, other) in facts.pairs().flat_map(|(left, right)| [(left, right), (right, left)]) {
        let Some(far) = far_addresses(host, other) else { continue };
        let used_tables = host.tables_of_rules();
        let is_reached = |address: &IpAddr| {
            host.is_attached(*address, None)
                || host.routing.routes.iter().any(|route| {
                    let is_searched = route.table == MAIN_TABLE || used_tables.contains(&route.table);
                    is_searched && route.destination.contains(*address) && !host.hops(route).is_empty()
                })
        };
        if far.iter().any(is_reached) {
            continue;
        }
        for (route, hops) in host.multipaths().filter(|(route, _)| route.destination.length > 0) {
            let is_other_family = !far.iter().any(|far| far.is_ipv4() == route.destination.address.is_ipv4());
            if is_other_family
                || facts.has_address_in(route.destination)
                || !reported.insert((host.subject.name.clone(), route.destination))
            {
                continue;
            }
            let message = format!(
                "{} has none of the hosts on the other side of its {} gateways: {} is reached from there and \
                 is in {}, to which this host has no route",
                route.destination,
                hops.len(),
                other.subject.name,
                list(networks(&far)),
            );
            found.push(
                finding(
                    host,
                    "route",
                    FindingClass::Routing,
                    "not-the-other-network",
                    Severity::Error,
                    message,
                )
                .of(ip_syntax::route(route))
                .at(route.place.as_ref())
                .advise(format!("write {}", list(networks(&far))))
                .sourced("the other hosts' routes"),
            );
        }
    }
}

/// Addresses of the other side: those of `other` where it has a route to `host`
/// over gateways; where they are not known, its gateways, which are its neighbours.
fn far_addresses(host: &View<'_>, other: &View<'_>) -> Option<BTreeSet<IpAddr>> {
    let is_back = |route: &&RouteEntry| {
        route.destination.length > 0
            && host.reachable().any(|own| route.destination.contains(own))
            && !other.hops(route).is_empty()
    };
    let back = other.main().iter().copied().find(is_back)?;
    let own: BTreeSet<IpAddr> = other.reachable_like(back.destination.address).collect();
    Some(if own.is_empty() { other.hops(back).iter().map(|hop| hop.via).collect() } else { own })
}

/// The usual networks of addresses, for a message.
fn networks(addresses: &BTreeSet<IpAddr>) -> BTreeSet<Prefix> {
    let network = |address: &IpAddr| {
        Prefix { address: *address, length: if address.is_ipv4() { 24 } else { 64 } }.network()
    };
    addresses.iter().map(network).collect()
}
