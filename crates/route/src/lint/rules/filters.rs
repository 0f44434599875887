//! Sysctls without which routes have no effect: reverse path filters, forwarding,
//! the hash that chooses a gateway.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_routing::{
    multipath::ports_are_hashed,
    node::{Received, ReverseFilter},
};
use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::{Place, RouteEntry, RuleAction},
    tune::{Finding, FindingClass, Severity},
};
use clearstream_tune::KernelVersion;

use super::super::{Facts, View, With, finding, ip_syntax};

/// A filter that drops what comes from a network by the gateways that lead to it: one
/// finding for each network and reason, whatever number of interfaces drop it.
pub(super) fn reverse_path(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut together: BTreeMap<(Prefix, u8, Option<u32>), Vec<&str>> = BTreeMap::new();
    for drop in drops(host) {
        let filter = if drop.filter == ReverseFilter::Strict { 1 } else { 2 };
        let interfaces = together.entry((drop.network, filter, drop.by_mark)).or_default();
        interfaces.push(drop.interface);
    }
    for ((network, filter, by_mark), interfaces) in together {
        let filter = if filter == 1 { ReverseFilter::Strict } else { ReverseFilter::Loose };
        found.push(match by_mark {
            Some(mark) => mark_not_checked(host, &interfaces, network, mark),
            None => dropped(host, &interfaces, network, filter),
        });
    }
}

/// Whether such a finding is about packets that arrive on an interface.
pub(in crate::lint) fn is_reported(host: &View<'_>, interface: &str) -> bool {
    drops(host).iter().any(|drop| drop.interface == interface)
}

/// Packets that a filter drops.
struct Drop<'a> {
    interface: &'a str,
    network: Prefix,
    filter: ReverseFilter,
    /// The mark whose rule has the route back.
    by_mark: Option<u32>,
}

fn drops<'a>(host: &View<'a>) -> Vec<Drop<'a>> {
    let mut seen = BTreeSet::new();
    let mut drops = Vec::new();
    for (interface, network) in arrivals(host) {
        let filter = host.node.reverse_filter(interface);
        let network = network.network();
        // There is no such filter for IPv6 (ip-sysctl has it for ipv4 alone).
        if filter == ReverseFilter::Off || !network.address.is_ipv4() || !seen.insert((interface, network)) {
            continue;
        }
        let marks = usable_marks(host);
        let passes = |mark: u32| passes(host, interface, network, mark, filter);
        let has_mark_checked = host.node.validates_mark(interface);
        if passes(0) || has_mark_checked && marks.iter().any(|mark| passes(*mark)) {
            continue;
        }
        let by_mark = marks.iter().copied().find(|mark| passes(*mark));
        drops.push(Drop { interface, network, filter, by_mark });
    }
    drops
}

/// Interfaces and the networks from which packets arrive there: those that
/// some route reaches over gateways on it, and those that it is on.
fn arrivals<'a>(host: &View<'a>) -> Vec<(&'a str, Prefix)> {
    let mut arrivals = Vec::new();
    for (route, hop) in host.all_hops() {
        if route.destination.length > 0
            && let Some(interface) = host.interface_of(&hop)
        {
            arrivals.push((interface, route.destination));
        }
    }
    arrivals.extend(&host.attached);
    arrivals
}

/// Marks of rules that refer to a table.
fn usable_marks(host: &View<'_>) -> Vec<u32> {
    let with_table = host.routing.rules.iter().filter(|rule| matches!(rule.action, RuleAction::Table(_)));
    with_table.filter_map(|rule| rule.selector.mark).map(|(mark, mask)| mark & mask).collect()
}

/// Whether packets of a network to one of the host's addresses pass.
fn passes(host: &View<'_>, interface: &str, network: Prefix, mark: u32, filter: ReverseFilter) -> bool {
    let Some(source) = some_address(network, &host.own) else { return true };
    let mut mine: Vec<Option<IpAddr>> =
        host.own_like(source).filter(|own| !own.is_loopback()).map(Some).collect();
    if mine.is_empty() {
        mine.push(None);
    }
    let received = |destination| Received { source, destination, mark, input: interface, output: None };
    mine.into_iter().any(|destination| host.node.passes(filter, &received(destination)))
}

/// An address in a network that is none of the host's own.
pub(super) fn some_address(network: Prefix, own: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let base = network.network().address;
    let nth = |offset: u32| match base {
        IpAddr::V4(base) => IpAddr::V4(u32::from(base).wrapping_add(offset).into()),
        IpAddr::V6(base) => IpAddr::V6(u128::from(base).wrapping_add(u128::from(offset)).into()),
    };
    let candidates = (0..64).map(|offset| nth((offset + 1) % 64));
    candidates.into_iter().find(|address| network.contains(*address) && !own.contains(address))
}

/// The strictest setting of a filter on an interface, with its place.
pub(in crate::lint) fn filter_place<'a>(
    host: &View<'a>,
    interface: &str,
    name: &str,
) -> (String, Option<&'a Place>) {
    let escaped = interface.replace('.', "/");
    let keys = [escaped.as_str(), "all", "default"].map(|part| format!("net.ipv4.conf.{part}.{name}"));
    let of = |key: &String| host.number(key).filter(|value| *value > 0).and_then(|_| host.sysctl(key));
    let strictest = keys
        .iter()
        .filter_map(|key| of(key).map(|value| (key, value)))
        .max_by_key(|(_, value)| value.value.trim().parse::<i64>().unwrap_or(0));
    strictest.map_or_else(
        || (keys[0].clone(), None),
        |(key, value)| (format!("{key} = {}", value.value.trim()), value.place.as_ref()),
    )
}

fn dropped(host: &View<'_>, interfaces: &[&str], network: Prefix, filter: ReverseFilter) -> Finding {
    let (interface, names) = (interfaces[0], list(interfaces));
    let (setting, place) = filter_place(host, interface, "rp_filter");
    let is_strict = filter == ReverseFilter::Strict;
    let number = if is_strict { 1 } else { 2 };
    let reason = if is_strict {
        format!("the return path to {network} does not leave by {names}")
    } else {
        format!("there is no return path to {network}")
    };
    let message = format!(
        "packets from {network} that arrive on {names} are dropped without a trace but the counter \
         TcpExtIPReversePathFilter: {reason}, and the filter in effect there is {number}, the larger of all \
         and {names}"
    );
    let loose_helps = is_strict && passes(host, interface, network, 0, ReverseFilter::Loose);
    let advice = if loose_helps {
        format!("add a route to {network} over {names}, or set the filter of all and {names} to 2")
    } else {
        format!("add a route to {network} over {names}")
    };
    finding(host, "rp_filter", FindingClass::Routing, "will-drop", Severity::Error, message)
        .of(setting)
        .at(place)
        .on(interface)
        .advise(advice)
        .sourced("ip-sysctl.rst; net/ipv4/fib_frontend.c, __fib_validate_source")
}

fn mark_not_checked(host: &View<'_>, interfaces: &[&str], network: Prefix, mark: u32) -> Finding {
    let (interface, names) = (interfaces[0], list(interfaces));
    let (setting, place) = filter_place(host, interface, "rp_filter");
    let message = format!(
        "only the rule for mark {mark:#x} has a return path to {network} by {names}, and the reverse path \
         filter ignores the mark unless src_valid_mark is 1: packets from there are dropped"
    );
    finding(host, "src_valid_mark", FindingClass::Routing, "will-drop", Severity::Error, message)
        .of(setting)
        .at(place)
        .on(interface)
        .advise(format!(
            "set net.ipv4.conf.{interface}.src_valid_mark to 1 and restore the mark where packets arrive, or \
             add a route to {network} to the main table"
        ))
        .sourced("ip-sysctl.rst; net/ipv4/fib_frontend.c, fib_validate_source")
}

/// A gateway that does not forward.
pub(super) fn forwarding(facts: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for is_ipv4 in [true, false] {
        let Some(reason) = why_gateway(facts, host, is_ipv4) else { continue };
        let keys: &[&str] = if is_ipv4 {
            &["net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"]
        } else {
            &["net.ipv6.conf.all.forwarding"]
        };
        let sysctl = keys.iter().find_map(|key| host.sysctl(key).map(|value| (*key, value)));
        let off_interface = interface_off(host, is_ipv4);
        let (key, what, place) = match (sysctl, off_interface) {
            (Some((_, value)), Some((interface, place))) if value.value.trim() == "1" => {
                let family = if is_ipv4 { "ipv4" } else { "ipv6" };
                let key = format!("net.{family}.conf.{interface}.forwarding");
                (key, "is 0".to_owned(), place)
            }
            (Some((_, value)), _) if value.value.trim() == "1" => continue,
            (Some((key, value)), _) => {
                (key.to_owned(), format!("is {}", value.value.trim()), value.place.as_ref())
            }
            (None, _) => (keys[0].to_owned(), "is not set, and the kernel's default is 0".to_owned(), None),
        };
        let severity = if sysctl.is_some() || host.is_whole() { Severity::Error } else { Severity::Warning };
        let message = format!(
            "{reason}, and {key} {what}: it takes packets for others and drops them, while it still replies \
             to ARP and ping, so that neighbours go on sending"
        );
        found.push(
            finding(host, keys[0], FindingClass::Routing, "gateway-does-not-forward", severity, message)
                .at(place)
                .advise(format!("set {key} to 1"))
                .sourced("ip-sysctl.rst"),
        );
    }
}

/// An interface whose packets IPv4 does not forward; of IPv6 `all` alone decides
/// (ip-sysctl.rst, `forwarding`).
fn interface_off<'a>(host: &View<'a>, is_ipv4: bool) -> Option<(&'a str, Option<&'a Place>)> {
    let family = if is_ipv4 { "ipv4" } else { return None };
    host.attached.iter().filter(|(_, network)| network.address.is_ipv4() == is_ipv4).find_map(|(name, _)| {
        let value = host.sysctl(&format!("net.{family}.conf.{}.forwarding", name.replace('.', "/")))?;
        (value.value.trim() == "0").then_some((*name, value.place.as_ref()))
    })
}

/// Why a host has to forward.
fn why_gateway(facts: &Facts<'_>, host: &View<'_>, is_ipv4: bool) -> Option<String> {
    if !host.own.is_empty() && !host.own.iter().any(|own| own.is_ipv4() == is_ipv4) {
        return None;
    }
    let named = facts.fabric.is_gateway(&host.subject.name) || facts.fabric.is_gateway(&host.routing.host);
    if named && (is_ipv4 || facts.fabric.networks.iter().any(|it| it.prefix.address.is_ipv6())) {
        return Some("the fabric has this host as a gateway".to_owned());
    }
    let (other, sender) = facts.sender_to(host, is_ipv4)?;
    Some(format!(
        "{} sends \"{}\" to it ({})",
        other.subject.name,
        ip_syntax::route(sender.route),
        sender.via
    ))
}

/// A hash that sends all flows of a pair of hosts over one gateway.
pub(super) fn hash_policy(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for is_ipv4 in [true, false] {
        let family = if is_ipv4 { "ipv4" } else { "ipv6" };
        let mut routes =
            host.multipaths().filter(|(route, _)| route.destination.address.is_ipv4() == is_ipv4);
        let Some((route, hops)) = routes.next() else { continue };
        let kernel = host.subject.settings.as_ref().and_then(|state| state.kernel);
        let key = format!("net.{family}.fib_multipath_hash_policy");
        // IPv4 chose by lookup before 4.4 and has the key since 4.12.
        if kernel.is_some_and(|kernel| kernel < KernelVersion::new(4, 4, 0)) {
            continue;
        }
        let read = |key: &str| host.sysctl(key).map(|value| value.value.as_str());
        let hashes_ports = ports_are_hashed(family == "ipv6", read);
        let setting = host.sysctl(&key);
        let (severity, what) = match setting.map(|value| value.value.trim()) {
            _ if hashes_ports == Some(true) => continue,
            Some("3") => {
                (Severity::Warning, format!("is 3, and net.{family}.fib_multipath_hash_fields has no ports"))
            }
            Some(value) => (Severity::Warning, format!("is {value}")),
            None if host.routing.sysctls.is_empty() => {
                (Severity::Note, "was not given, and the kernel's default is 0".to_owned())
            }
            None => (Severity::Warning, "is not set, and the kernel's default is 0".to_owned()),
        };
        found.push(policy_finding(
            host,
            &key,
            route,
            hops.len(),
            severity,
            &what,
            setting.and_then(|it| it.place.as_ref()),
        ));
    }
}

fn policy_finding(
    host: &View<'_>,
    key: &str,
    route: &RouteEntry,
    count: usize,
    severity: Severity,
    what: &str,
    place: Option<&Place>,
) -> Finding {
    let message = format!(
        "it {what}: the hash takes addresses and no ports, so all flows between two hosts go by one of the \
         {count} gateways of \"{}\"; with few servers some gateways carry nothing",
        ip_syntax::route(route)
    );
    let mut finding = finding(host, key, FindingClass::Routing, "ignores-ports", severity, message)
        .at(place.or(route.place.as_ref()))
        .advise(format!("set {key} to 1"))
        .sourced("ip-sysctl.rst; measured: 240 of 240 flows on one of six gateways");
    finding.value = host.sysctl(key).map(|value| value.value.clone());
    finding
}
