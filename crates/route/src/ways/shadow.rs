//! A host as it will be with its plan: what of others leads packets of the fabric away all the
//! same.

use std::collections::BTreeMap;

use clearstream_routing::lookup::Lookup;
use clearstream_schema::routing::HostRouting;

use super::{Cause, Plan, Population, Way, questions};
use crate::fabric::{Fabric, HostId};

/// One line for each route or rule of others that comes before the plan's.
pub fn shadowed(fabric: &Fabric, host: HostId, wanted: &HostRouting, current: &HostRouting) -> Vec<String> {
    let protocol = fabric.file().numbers.protocol;
    let after = with_plan(current, wanted, protocol);
    let (live, planned) = (Lookup::new(&after), Lookup::new(wanted));
    let population = Population::new(fabric);
    let mut lines: BTreeMap<String, (Cause, String, usize)> = BTreeMap::new();
    for question in questions(fabric, &population, host, wanted, &after, true) {
        let found = question.ask(&live);
        let way = Way::of(&found.verdict);
        if matches!(way, Way::Unknown(_)) || way.is_as(&question.planned) || question.only_if.is_some() {
            continue;
        }
        let plan = question.ask(&planned);
        let Some(cause) = Cause::of(&found, Plan { found: &plan, protocol }) else { continue };
        let (_, _, count) =
            lines.entry(cause.what.clone()).or_insert((cause, format!("{question} go {way}"), 0));
        *count += 1;
    }
    let line = |(cause, first, count): (Cause, String, usize)| {
        let more =
            if count > 1 { format!(" (and {} more kinds of packets)", count - 1) } else { String::new() };
        format!("{first}{more} all the same: {}; {}", cause.description(), cause.advice)
    };
    lines.into_values().map(line).collect()
}

/// What the host routes by when the plan is in effect.
fn with_plan(current: &HostRouting, wanted: &HostRouting, protocol: u8) -> HostRouting {
    let mut after = current.clone();
    after.routes.retain(|live| {
        live.protocol != protocol && wanted.routes.iter().all(|route| route.setting() != live.setting())
    });
    after.routes.extend(wanted.routes.iter().cloned());
    after.rules.retain(|live| live.protocol != protocol);
    after.rules.extend(wanted.rules.iter().cloned());
    after.nexthops.retain(|live| wanted.nexthops.iter().all(|nexthop| nexthop.id != live.id));
    after.nexthops.extend(wanted.nexthops.iter().cloned());
    for interface in &wanted.interfaces {
        let Some(live) = after.interfaces.iter_mut().find(|live| live.name == interface.name) else {
            continue;
        };
        for address in &interface.addresses {
            if live.addresses.iter().all(|own| own.value.address != address.value.address) {
                live.addresses.push(address.clone());
            }
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{
        prefix::Prefix,
        routing::{Hop, MAIN_TABLE, RouteAction, RouteEntry, RoutingInterface},
    };

    use super::*;
    use crate::planner::Planner;

    /// A bare host of the fabric with one route of others.
    fn with_route(destination: &str, metric: u32) -> Vec<String> {
        let fabric = crate::fabric::load("gateways-6").unwrap();
        let host = fabric.find("compute-1").unwrap();
        let wanted = Planner::new(&fabric).routing(host);
        let interfaces = wanted.interfaces.iter().map(|interface| RoutingInterface {
            name: interface.name.clone(),
            addresses: interface.addresses.clone(),
            ..RoutingInterface::default()
        });
        let destination: Prefix = destination.parse().unwrap();
        let via = if destination.address.is_ipv6() { "fd64:100::91" } else { "10.100.0.91" };
        let interface = Some("compute0".to_owned());
        let hop = Hop { via: via.parse().unwrap(), interface, weight: 1, place: None };
        let route = RouteEntry {
            destination,
            table: MAIN_TABLE,
            metric,
            action: RouteAction::Gateways(vec![hop]),
            source: None,
            mtu: None,
            protocol: 16,
            place: None,
        };
        let interfaces = interfaces.collect();
        let current = HostRouting { interfaces, routes: vec![route], ..HostRouting::default() };
        shadowed(&fabric, host, &wanted, &current)
    }

    #[test]
    fn a_route_that_comes_before_the_plans_is_told_before_it_is_set() {
        for (destination, metric, text) in [
            ("fd64:10::/64", 100, "its metric 100 comes before the plan's 1024"),
            ("10.10.0.128/25", 0, "more exact than the plan's 10.10.0.0/24"),
        ] {
            let told = with_route(destination, metric);
            assert!(told.len() == 1 && told[0].contains(text) && told[0].contains("dhcp"), "{told:?}");
        }
        // A wider one, or one with a worse metric, changes nothing.
        for (destination, metric) in [("10.0.0.0/8", 0), ("fd64:10::/64", 2000), ("0.0.0.0/0", 0)] {
            assert_eq!(with_route(destination, metric), Vec::<String>::new());
        }
    }
}
