//! Names in routes that the host does not have: a source address, an
//! interface, a gateway that is the host itself.

use std::collections::BTreeSet;

use clearstream_schema::{
    human::list,
    routing::{Place, RouteAction, RouteEntry, files::Loader},
    tune::{Finding, FindingClass, Severity},
};

use super::super::{Facts, View, With, finding, ip_syntax};

/// A preferred source address that is none of the host's own.
pub(super) fn source(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for route in &host.routing.routes {
        let Some(source) = route.source.filter(|_| lacks_source(host, route)) else { continue };
        let own = list(host.own_like(source).filter(|own| !own.is_loopback()));
        let message = format!(
            "{source} is no address of this host ({own}): the kernel refuses the route (\"Invalid argument\"), \
             and what it was to carry takes another route or none"
        );
        found.push(
            finding(host, "route", FindingClass::Range, "no-such-source", Severity::Error, message)
                .of(ip_syntax::route(route))
                .at(route.place.as_ref())
                .advise(format!("write \"src\" with an address of this host, one of {own}, or leave it out"))
                .sourced("ip-route(8); net/ipv4/fib_semantics.c, fib_valid_prefsrc"),
        );
    }
}

/// Whether the source of a route is certain not to be there: addresses of the
/// interface that it leaves by are known, and it is not among the host's.
fn lacks_source<'a>(host: &View<'a>, route: &'a RouteEntry) -> bool {
    // A kernel that printed the route had taken it.
    if is_printed(host, route) {
        return false;
    }
    let Some(source) = route.source.filter(|source| !host.own.contains(source)) else { return false };
    let outputs: BTreeSet<&str> = match &route.action {
        RouteAction::Link { interface } => BTreeSet::from([interface.as_str()]),
        _ => host.hops(route).iter().filter_map(|hop| host.interface_of(hop)).collect(),
    };
    host.is_whole() || outputs.iter().any(|output| host.knows_addresses(Some(output), source))
}

/// An interface that the host does not have.
pub(super) fn interface(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for route in &host.routing.routes {
        let Some(missing) = lacks_interface(host, route) else { continue };
        if !seen.insert((missing.name, route.place.clone())) {
            continue;
        }
        let known = host.routing.interfaces.iter().map(|interface| &interface.name);
        let instead = missing.instead.map_or_else(|| list(known.filter(|name| *name != "lo")), str::to_owned);
        let refused = "the kernel refuses the route (\"Cannot find device\"), and what it was to carry takes another \
                       route or none";
        // Files may leave interfaces out.
        let (severity, message) = if host.is_whole() {
            (Severity::Error, format!("there is no interface {}: {refused}", missing.name))
        } else {
            let message = format!(
                "what was given has no interface {}, and {instead} is on the gateway's network: where it is not there, \
                 {refused}",
                missing.name
            );
            (Severity::Warning, message)
        };
        found.push(
            finding(host, "route", FindingClass::Range, "no-such-interface", severity, message)
                .of(ip_syntax::route(route))
                .at(missing.place.or(route.place.as_ref()))
                .on(missing.name)
                .advise(format!("write \"dev {instead}\""))
                .sourced("ip-route(8)"),
        );
    }
}

/// An interface that is not there.
struct Missing<'a> {
    name: &'a str,
    /// The one on the gateway's network.
    instead: Option<&'a str>,
    place: Option<&'a Place>,
}

/// An interface of a route that is certain not to be there: of a kernel's
/// routes any, of files one whose gateway is on another interface's network.
fn lacks_interface<'a>(host: &View<'a>, route: &'a RouteEntry) -> Option<Missing<'a>> {
    if is_printed(host, route) || !host.routing.files.nameless.is_empty() {
        return None;
    }
    let is_there = |name: &str| host.routing.interfaces.iter().any(|interface| interface.name == name);
    if let RouteAction::Link { interface } = &route.action {
        let is_missing = host.is_whole() && !is_there(interface);
        return is_missing.then_some(Missing { name: interface, instead: None, place: None });
    }
    host.hops(route).into_iter().find_map(|hop| {
        let name = hop.interface.filter(|name| !is_there(name))?;
        let instead = host.attached.iter().find(|(_, network)| network.contains(hop.via));
        let instead = instead.map(|(interface, _)| *interface);
        (host.is_whole() || instead.is_some()).then_some(Missing { name, instead, place: hop.place })
    })
}

/// A next hop that is the host's own address.
pub(super) fn own_gateway(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for (route, hop) in host.all_hops().filter(|(_, hop)| host.own.contains(&hop.via)) {
        if is_printed(host, route) || !seen.insert((hop.via, hop.place.cloned())) {
            continue;
        }
        let message = format!(
            "{} is this host's own address: the kernel refuses the route (\"Nexthop has invalid gateway\")",
            hop.via
        );
        found.push(
            finding(host, "gateway", FindingClass::Range, "own-address", Severity::Error, message)
                .of(ip_syntax::route(route))
                .at(hop.place.or(route.place.as_ref()))
                .advise("write the address of the gateway that leads there")
                .sourced("ip-route(8); net/ipv4/fib_semantics.c, fib_check_nh"),
        );
    }
}

/// Whether the kernel refuses a route for what it names.
pub(super) fn is_refused<'a>(host: &View<'a>, route: &'a RouteEntry) -> bool {
    lacks_source(host, route)
        || host.is_whole() && lacks_interface(host, route).is_some()
        || !is_printed(host, route) && host.hops(route).iter().any(|hop| host.own.contains(&hop.via))
}

/// Whether a kernel printed a route, which it had taken then, with the interfaces and addresses that it names.
fn is_printed(host: &View<'_>, route: &RouteEntry) -> bool {
    !host.is_whole() && host.loader(route.place.as_ref()) == Loader::Kernel
}
