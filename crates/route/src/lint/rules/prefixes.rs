//! Lengths of the prefixes of interfaces: one that is too long leaves hosts of the link
//! out, one that is too short takes another network for the link.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_routing::lookup::{Packet, Verdict};
use clearstream_schema::{
    prefix::Prefix,
    routing::RouteAction,
    tune::{Finding, FindingClass, Severity},
};

use super::{
    super::{
        Facts, With, finding,
        view::{covers, overlap},
    },
    links::{On, by_network},
};

type Networks<'v, 'a> = BTreeMap<Prefix, Vec<On<'v, 'a>>>;

/// A prefix longer than that of the fabric's network, or than that of most others on
/// the link.
pub(super) fn leaves_hosts_out(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let networks = by_network(facts);
    for (network, members) in &networks {
        let by_others = wider_of_others(&networks, *network);
        for on in members {
            let containing = facts.fabric.networks.iter().filter(|it| it.prefix.contains(on.address));
            let by_fabric = containing.map(|it| it.prefix.network()).max_by_key(|prefix| prefix.length);
            let Some(wide) = by_fabric.or(by_others).filter(|wide| wide.length < network.length) else {
                continue;
            };
            if !reaches(on, wide) {
                found.push(too_long(on, *network, wide, by_fabric.is_some(), &networks));
            }
        }
    }
}

/// A prefix so short that a network beyond a router lies in it: its hosts are taken for
/// neighbours.
pub(super) fn swallows(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let networks = by_network(facts);
    for (wide, members) in &networks {
        for on in members {
            let Some(own) = meant(facts, &networks, on, *wide) else { continue };
            let remote = networks.iter().find(|(remote, others)| {
                is_swallowed(on, *wide, own, **remote)
                    && others.iter().all(|other| other.number != on.number)
                    && is_beyond(facts, &networks, own, **remote)
            });
            let fabric = facts.fabric.networks.iter().map(|network| network.prefix.network());
            let by_fabric = || fabric.clone().find(|remote| is_swallowed(on, *wide, own, *remote));
            let example = remote.and_then(|(_, others)| {
                others.iter().find(|other| other.host.subject.name != on.host.subject.name)
            });
            let Some(remote) = remote.map(|(remote, _)| *remote).or_else(by_fabric) else { continue };
            if goes_to_link(on, remote) {
                found.push(too_short(on, *wide, own, remote, example));
            }
        }
    }
}

/// The network that an address is meant to be in: that of the fabric, or the longer one of
/// most other hosts with addresses there.
fn meant(facts: &Facts<'_>, networks: &Networks<'_, '_>, on: &On<'_, '_>, wide: Prefix) -> Option<Prefix> {
    let is_finer = |network: &Prefix| network.length > wide.length && network.contains(on.address);
    let by_fabric = facts.fabric.networks.iter().map(|network| network.prefix.network());
    let hosts = |members: &[On<'_, '_>]| members.iter().map(|on| on.number).collect::<BTreeSet<_>>().len();
    let same = networks.get(&wide).map_or(0, |members| {
        // Of those with the short prefix, the ones on this link.
        members.iter().map(|on| on.number).collect::<BTreeSet<_>>().len()
    });
    let by_others = || {
        let finer = networks.iter().filter(|(network, members)| is_finer(network) && hosts(members) >= same);
        finer.map(|(network, _)| *network).max_by_key(|network| network.length)
    };
    by_fabric.filter(is_finer).max_by_key(|network| network.length).or_else(by_others)
}

fn is_swallowed(on: &On<'_, '_>, wide: Prefix, own: Prefix, remote: Prefix) -> bool {
    remote.length > wide.length
        && wide.contains(remote.address)
        && !remote.contains(on.address)
        && !overlap(remote, own)
}

/// Whether a given host forwards between two networks, and does not reply for the other
/// one's hosts (`proxy_arp`).
fn is_beyond(facts: &Facts<'_>, networks: &Networks<'_, '_>, own: Prefix, remote: Prefix) -> bool {
    let Some(near) = networks.get(&own) else { return false };
    near.iter().any(|router| {
        let ipv6 = own.address.is_ipv6();
        let is_on = router.host.attached.iter().any(|(_, network)| *network == remote);
        let leads = is_on || router.host.may_lead(router.address, remote);
        leads
            && (router.host.node.forwards(None, ipv6) == Some(true)
                || facts.senders.contains_key(&router.address))
            && !router.host.node.is_proxy(&router.interface.name, ipv6)
    })
}

/// Whether the host takes a network for its link.
fn goes_to_link(on: &On<'_, '_>, remote: Prefix) -> bool {
    let Some(destination) = super::filters::some_address(remote, &on.host.own) else { return false };
    let packet = Packet { source: None, destination, mark: 0, input: None };
    on.host.node.lookup.find(&packet).verdict == Verdict::Link(&on.interface.name)
}

fn too_short(
    on: &On<'_, '_>,
    wide: Prefix,
    own: Prefix,
    remote: Prefix,
    example: Option<&On<'_, '_>>,
) -> Finding {
    let mine = Prefix { address: on.address, length: wide.length };
    let example = example
        .map_or_else(String::new, |other| format!(" ({} of {})", other.address, other.host.subject.name));
    let message = format!(
        "{mine} takes in {remote}{example}, which is another network: its hosts are taken for neighbours, the \
         gateways get no packet for them, and sends fail with \"No route to host\""
    );
    let mut addresses = on.interface.addresses.iter();
    let place = addresses.find(|address| address.value == mine).and_then(|address| address.place.as_ref());
    finding(on.host, "address", FindingClass::Routing, "swallows-a-network", Severity::Error, message)
        .of(mine.to_string())
        .at(place)
        .on(&on.interface.name)
        .advise(format!("write {}", Prefix { address: on.address, length: own.length }))
        .sourced("ip-address(8); RFC 1122, section 3.3.1.1")
}

/// The wider network that most of the hosts are on; none where a host is on both by
/// two interfaces, which are then two links.
fn wider_of_others(networks: &Networks<'_, '_>, network: Prefix) -> Option<Prefix> {
    let hosts = |members: &[On<'_, '_>]| members.iter().map(|on| on.number).collect::<BTreeSet<_>>().len();
    let mine = networks.get(&network)?;
    let is_other_link = |wide: &[On<'_, '_>]| {
        let other = |on: &On<'_, '_>, mine: &On<'_, '_>| {
            mine.number == on.number && mine.interface.name != on.interface.name
        };
        wide.iter().any(|on| mine.iter().any(|mine| other(on, mine)))
    };
    let wider = (1..network.length).filter_map(|length| {
        let wide = Prefix { address: network.address, length }.network();
        let members = networks.get(&wide)?;
        let is_meant = hosts(members) > hosts(mine)
            && members.iter().any(|on| !network.contains(on.address))
            && !is_other_link(members);
        is_meant.then_some((hosts(members), wide))
    });
    wider.max().map(|(_, wide)| wide)
}

/// Another address or a route makes the whole network the host's link.
fn reaches(on: &On<'_, '_>, wide: Prefix) -> bool {
    on.host.attached.iter().any(|(_, attached)| covers(*attached, wide))
        || on.host.routing.routes.iter().any(|route| {
            covers(route.destination, wide)
                && matches!(&route.action, RouteAction::Link { interface } if *interface == on.interface.name)
        })
}

fn too_long(
    on: &On<'_, '_>,
    network: Prefix,
    wide: Prefix,
    by_fabric: bool,
    networks: &Networks<'_, '_>,
) -> Finding {
    let others = if by_fabric { "the network of the fabric" } else { "the network of most hosts there" };
    let out = networks.get(&wide).into_iter().flatten().find(|other| !network.contains(other.address));
    let example =
        out.map_or_else(String::new, |other| format!(" ({} of {})", other.address, other.host.subject.name));
    let own = Prefix { address: on.address, length: network.length };
    let message = format!(
        "{own} is part of {wide} only, {others}: the rest of it{example} is no neighbour of this host, and \
         what goes there takes another route or none"
    );
    let mut addresses = on.interface.addresses.iter();
    let place = addresses.find(|address| address.value == own).and_then(|address| address.place.as_ref());
    finding(on.host, "address", FindingClass::Routing, "leaves-hosts-out", Severity::Warning, message)
        .of(own.to_string())
        .at(place)
        .on(&on.interface.name)
        .advise(format!("write {}", Prefix { address: on.address, length: wide.length }))
        .sourced("ip-address(8); RFC 1122, section 3.3.1.1")
}
