//! Several interfaces of one host on one network.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_routing::lookup::{Packet, Verdict};
use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::RoutingInterface,
    tune::{Finding, FindingClass, Severity},
};

use super::{
    super::{Facts, View, With, finding, view::is_of_the_link},
    filters::some_address,
};

/// Interfaces on one network of which one sends everything, while each replies to ARP for
/// the addresses of all (ip-sysctl.rst, `arp_filter`, `arp_ignore`). Silent where rules by
/// source lead each address to its interface, or where a sysctl keeps ARP apart.
pub(super) fn on_one_network(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut networks: BTreeMap<Prefix, Vec<(&RoutingInterface, Prefix)>> = BTreeMap::new();
    for interface in &host.routing.interfaces {
        for own in interface.addresses.iter().map(|own| own.value) {
            let network = own.network();
            if own.address.is_ipv4() && own != Prefix::host(own.address) && !is_of_the_link(network) {
                networks.entry(network).or_default().push((interface, own));
            }
        }
    }
    for (network, members) in networks {
        let names: BTreeSet<&str> = members.iter().map(|(interface, _)| interface.name.as_str()).collect();
        if names.len() < 2 || names.iter().all(|name| keeps_arp_apart(host, name)) {
            continue;
        }
        let Some(destination) = some_address(network, &host.own) else { continue };
        let idle = members.iter().filter_map(|(interface, own)| {
            let packet = Packet::sent(own.address, destination);
            match host.node.lookup.find(&packet).verdict {
                Verdict::Link(name) if name != interface.name => Some((name, interface.name.as_str(), own)),
                _ => None,
            }
        });
        let idle: Vec<(&str, &str, &Prefix)> = idle.collect();
        let Some((first, ..)) = idle.first() else { continue };
        let of: BTreeSet<&str> = idle.iter().map(|(_, name, _)| *name).collect();
        let message = format!(
            "{} are on {network}: {first} sends everything, also what has the address of {}, and replies to ARP \
             for all of them, so that what comes in takes one of them by chance",
            list(&names),
            list(&of),
        );
        let place =
            host.routing.interfaces.iter().flat_map(|it| &it.addresses).find(|at| at.value == *idle[0].2);
        found.push(
            finding(host, "link", FindingClass::Routing, "several-on-one-network", Severity::Note, message)
                .of(list(&names))
                .at(place.and_then(|address| address.place.as_ref()))
                .on(idle[0].1)
                .advise(format!(
                    "give each address a rule and a table that leaves by its own interface, and set arp_ignore \
                     to 1 and arp_announce to 2 on {}; or bond them",
                    list(&names)
                ))
                .sourced("ip-sysctl.rst (arp_filter, arp_ignore, arp_announce)"),
        );
    }
}

/// By the larger value of `all` and the interface (ip-sysctl.rst).
fn keeps_arp_apart(host: &View<'_>, interface: &str) -> bool {
    let of = |part: &str, key: &str| host.number(&format!("net.ipv4.conf.{part}.{key}")).unwrap_or(0);
    let escaped = interface.replace('.', "/");
    let own = |key: &str| {
        let own = host.number(&format!("net.ipv4.conf.{escaped}.{key}"));
        own.or_else(|| host.number(&format!("net.ipv4.conf.default.{key}"))).unwrap_or(0)
    };
    ["arp_filter", "arp_ignore"].iter().any(|key| of("all", key).max(own(key)) > 0)
}
