//! Lengths of the prefixes of interfaces: one that is too long leaves hosts of the link
//! out.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_schema::{
    prefix::Prefix,
    routing::RouteAction,
    tune::{Finding, FindingClass, Severity},
};

use super::{
    super::{Facts, With, finding, view::covers},
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
