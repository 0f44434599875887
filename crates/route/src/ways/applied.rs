//! Routing that a plan of single settings has, for packets to be looked up where no fabric says who
//! is at the other end.

use std::net::IpAddr;

use clearstream_schema::{
    plan::{Plan, Setting, Step, Value},
    prefix::Prefix,
    routing::{HostRouting, Located, MAIN_TABLE, NexthopTarget, RouteAction, RouteEntry},
};

/// What the host has by an applied plan: routes and rules of the plan alone; interfaces, and what it
/// did not need to set, of the host itself.
pub fn applied(plan: &Plan, live: &HostRouting) -> HostRouting {
    let mut wanted = HostRouting {
        host: live.host.clone(),
        interfaces: live.interfaces.clone(),
        nexthops: live.nexthops.clone(),
        sysctls: live.sysctls.clone(),
        ..HostRouting::default()
    };
    plan.steps.iter().for_each(|step| take(step, &mut wanted));
    // Packets from other addresses of the host may have ways of their own.
    let gateways: Vec<IpAddr> = gateways(&wanted).collect();
    let by_rule: Vec<Prefix> = wanted.rules.iter().filter_map(|rule| rule.selector.from).collect();
    for interface in &mut wanted.interfaces {
        interface.addresses.retain(|own| {
            gateways.iter().any(|via| own.value.contains(*via))
                || by_rule.iter().any(|from| from.contains(own.value.address))
        });
    }
    wanted
}

fn gateways(routing: &HostRouting) -> impl Iterator<Item = IpAddr> {
    let of_routes = routing.routes.iter().filter_map(|route| match &route.action {
        RouteAction::Gateways(hops) => Some(hops.iter().map(|hop| hop.via)),
        _ => None,
    });
    let of_nexthops = routing.nexthops.iter().filter_map(|nexthop| match nexthop.target {
        NexthopTarget::Gateway { via, .. } => Some(via),
        _ => None,
    });
    of_routes.flatten().chain(of_nexthops)
}

/// Protocol number of the plan's objects: of its routes, or of any.
pub fn protocol(routing: &HostRouting) -> u8 {
    routing.routes.first().map(|route| route.protocol).unwrap_or_default()
}

fn take(step: &Step, wanted: &mut HostRouting) {
    // What a plan removes is none of its objects; what is no value of its setting cannot be applied.
    let Some(value) = step.desired.clone() else { return };
    match (&step.setting, value) {
        (Setting::Route { table, destination, metric }, Value::Route(value)) => {
            wanted.routes.push(value.at(*table, *destination, *metric));
        }
        (Setting::Nexthop { id }, Value::Nexthop(value)) => {
            wanted.nexthops.retain(|live| live.id != *id);
            wanted.nexthops.push(value.at(*id));
        }
        (Setting::Rule { ipv6, priority, selector }, Value::Rule(value)) => {
            wanted.rules.push(value.at(*ipv6, *priority, selector));
        }
        (Setting::Sysctl(key), Value::Text(text)) => {
            wanted.sysctls.insert(key.clone(), Located::from(text));
        }
        _ => {}
    }
}

/// Routes of the main table by gateways.
pub(super) fn led_by_gateways(routing: &HostRouting) -> impl Iterator<Item = &RouteEntry> {
    let is_group = |id: u32| {
        let found = routing.nexthops.iter().find(|nexthop| nexthop.id == id);
        found.is_some_and(|nexthop| !matches!(nexthop.target, NexthopTarget::Blackhole))
    };
    routing.routes.iter().filter(move |route| {
        route.table == MAIN_TABLE
            && match &route.action {
                RouteAction::Gateways(_) => true,
                RouteAction::Nexthop(id) => is_group(*id),
                _ => false,
            }
    })
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{
        plan::{Effect, PLAN_SCHEMA, PlanHost},
        routing::RoutingInterface,
    };

    use super::{
        super::{Way, questions_of},
        *,
    };

    #[test]
    fn a_plan_is_asked_about_by_its_own_destinations_and_the_hosts_addresses() {
        let step = |setting: Setting, text: &str| Step {
            current: None,
            desired: Some(Value::of(&setting, text)),
            setting,
            reason: String::new(),
            effect: Effect::Now,
        };
        let route = |metric| Setting::Route {
            table: MAIN_TABLE,
            destination: "10.10.0.0/24".parse().unwrap(),
            metric,
        };
        let steps = vec![
            step(Setting::Nexthop { id: 1 }, "via 10.100.0.91 dev e0 proto 117"),
            step(Setting::Nexthop { id: 2 }, "via 10.100.0.92 dev e0 proto 117"),
            step(Setting::Nexthop { id: 3 }, "group 1/2 proto 117"),
            step(route(0), "nhid 3 proto 117"),
            // The one that stands by for it.
            step(route(1), "proto 117 via 10.100.0.91 dev e0"),
        ];
        let plan = Plan {
            schema: PLAN_SCHEMA.to_owned(),
            version: 1,
            purpose: String::new(),
            host: PlanHost { name: String::new(), kernel: String::new() },
            steps,
            advice: Vec::new(),
        };
        let own = Located::from("10.100.0.1/16".parse::<Prefix>().unwrap());
        let elsewhere = Located::from("192.0.2.1/24".parse::<Prefix>().unwrap());
        let interface = RoutingInterface {
            name: "e0".to_owned(),
            addresses: vec![own, elsewhere],
            ..RoutingInterface::default()
        };
        let live = HostRouting { interfaces: vec![interface], ..HostRouting::default() };
        let wanted = applied(&plan, &live);
        assert_eq!(protocol(&wanted), 117);
        let asked = questions_of(&wanted, &live);
        let sources: Vec<_> = asked.iter().map(|question| question.source.map(|it| it.to_string())).collect();
        assert_eq!(sources, [None, Some("10.100.0.1".to_owned())]);
        for question in asked {
            assert!(matches!(&question.planned, Way::Hops(hops) if hops.len() == 2), "{question:?}");
        }
    }
}
