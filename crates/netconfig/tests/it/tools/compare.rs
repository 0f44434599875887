//! Two states of a host, compared.

use clearstream_schema::routing::{HostRouting, RouteAction};

/// Without names and places, in one order; without what neither the kernel nor
/// files return.
pub(crate) fn bare(routing: &HostRouting) -> HostRouting {
    let mut routing = routing.clone();
    routing.host.clear();
    for route in &mut routing.routes {
        route.place = None;
        // The kernel reads 0 as 1024 for IPv6 (RTNETLINK, IP6_RT_PRIO_USER).
        if route.destination.address.is_ipv6() && route.metric == 1024 {
            route.metric = 0;
        }
        if let RouteAction::Gateways(hops) = &mut route.action {
            hops.iter_mut().for_each(|hop| hop.place = None);
        }
    }
    routing.rules.iter_mut().for_each(|rule| rule.place = None);
    routing.nexthops.iter_mut().for_each(|nexthop| nexthop.place = None);
    routing.interfaces.iter_mut().for_each(|known| {
        known.link_address = None;
        known.addresses.sort_by_key(|address| address.value);
    });
    routing.interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    routing.routes.sort_by_key(|route| format!("{route:?}"));
    routing.rules.sort_by_key(|rule| format!("{rule:?}"));
    routing.nexthops.sort_by_key(|nexthop| nexthop.id);
    routing
}

/// As `bare`, without what `ip` does not show.
pub(crate) fn plain(routing: &HostRouting) -> HostRouting {
    let mut routing = bare(routing);
    routing.sysctls.clear();
    routing.connection_marks.clear();
    routing
}

/// What one plan has and the other has not, to see at a glance what differs.
pub(crate) fn difference(one: &HostRouting, other: &HostRouting) -> Vec<String> {
    let items = |routing: &HostRouting| -> Vec<String> {
        let mut items: Vec<String> = Vec::new();
        for known in &routing.interfaces {
            let (mtu, mode) = (known.mtu.as_ref().map(|mtu| mtu.value), known.infiniband_mode.as_ref());
            items.push(format!("{} mtu {mtu:?} mode {:?}", known.name, mode.map(|mode| mode.value)));
            items.extend(known.addresses.iter().map(|address| format!("{} {}", known.name, address.value)));
        }
        items.extend(routing.nexthops.iter().map(|nexthop| format!("{nexthop:?}")));
        items.extend(routing.routes.iter().map(|route| format!("{route:?}")));
        items.extend(routing.rules.iter().map(|rule| format!("{rule:?}")));
        items.extend(routing.connection_marks.iter().map(|mark| format!("{mark:?}")));
        items.extend(routing.sysctls.iter().map(|(key, value)| format!("{key}={}", value.value)));
        items
    };
    let (ours, theirs) = (items(one), items(other));
    let missing = |from: &[String], of: &[String], sign: &str| -> Vec<String> {
        from.iter().filter(|item| !of.contains(item)).map(|item| format!("{sign} {item}")).collect()
    };
    let mut all = missing(&ours, &theirs, "+");
    all.extend(missing(&theirs, &ours, "-"));
    if all.is_empty() && ours.len() != theirs.len() {
        all.push(format!("{} and {} items", ours.len(), theirs.len()));
    }
    all
}
