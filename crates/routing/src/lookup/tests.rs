use std::collections::BTreeMap;

use clearstream_schema::routing::{
    Located, MAIN_TABLE, RouteAction, RoutingInterface, RuleAction, RuleSelector,
    kernel::{AbsentNetwork, AbsentRule},
};

use super::*;

fn route(destination: &str, table: u32, via: &str) -> RouteEntry {
    let hop = clearstream_schema::routing::Hop {
        via: via.parse().unwrap(),
        interface: Some("e0".to_owned()),
        weight: 1,
        place: None,
    };
    RouteEntry {
        destination: destination.parse().unwrap(),
        table,
        metric: 0,
        action: RouteAction::Gateways(vec![hop]),
        source: None,
        mtu: None,
        protocol: 3,
        place: None,
    }
}

fn interface(name: &str, address: &str) -> RoutingInterface {
    let addresses = vec![Located::from(address.parse::<Prefix>().unwrap())];
    RoutingInterface { name: name.to_owned(), addresses, ..RoutingInterface::default() }
}

/// A host with an interface in a VRF, as its kernel shows it.
fn with_vrf() -> HostRouting {
    let link = RouteAction::Link { interface: "e1".to_owned() };
    let own = RouteEntry { action: link, protocol: 2, ..route("10.9.0.0/24", 10, "10.9.0.1") };
    let l3mdev = RuleEntry {
        ipv6: false,
        priority: Some(1000),
        selector: RuleSelector { other: vec!["l3mdev".to_owned()], ..RuleSelector::default() },
        action: RuleAction::Table(0),
        protocol: 2,
        place: None,
    };
    HostRouting {
        interfaces: vec![interface("e0", "10.0.0.1/24"), interface("e1", "10.9.0.1/24")],
        routes: vec![own, route("0.0.0.0/0", 10, "10.9.0.254"), route("0.0.0.0/0", MAIN_TABLE, "10.0.0.254")],
        rules: vec![l3mdev],
        kernel: KernelFacts {
            absent_networks: vec![AbsentNetwork {
                interface: "e1".to_owned(),
                network: "10.9.0.0/24".parse().unwrap(),
            }],
            vrf_members: BTreeMap::from([("e1".to_owned(), 10), ("blue".to_owned(), 10)]),
            ..KernelFacts::default()
        },
        ..HostRouting::default()
    }
}

#[test]
fn packets_of_a_vrf_go_by_its_table_and_others_by_main() {
    let routing = with_vrf();
    let lookup = Lookup::new(&routing);
    let of = |destination: &str, input: Option<&str>, output: Option<&str>| {
        let packet = Packet { source: None, destination: destination.parse().unwrap(), mark: 0, input };
        lookup.find_of(&packet, &Kind { output, ..Kind::default() })
    };
    let by = |found: &Found<'_>| match &found.verdict {
        Verdict::Gateways(hops, _) => hops[0].via.to_string(),
        Verdict::Link(name) => (*name).to_owned(),
        other => format!("{other:?}"),
    };
    for (destination, input, output, wanted, table) in [
        ("192.0.2.1", Some("e1"), None, "10.9.0.254", 10),
        ("10.9.0.7", Some("e1"), None, "e1", 10),
        ("192.0.2.1", None, Some("blue"), "10.9.0.254", 10),
        ("192.0.2.1", Some("e0"), None, "10.0.0.254", MAIN_TABLE),
        ("192.0.2.1", None, None, "10.0.0.254", MAIN_TABLE),
        // The networks of the VRF are not in the main table.
        ("10.9.0.7", None, None, "10.0.0.254", MAIN_TABLE),
    ] {
        let found = of(destination, input, output);
        assert_eq!((by(&found).as_str(), found.table), (wanted, table), "{destination} {input:?} {output:?}");
    }
}

#[test]
fn own_rules_and_networks_that_are_gone_are_what_led_past() {
    let mut routing = with_vrf();
    routing.rules.clear();
    routing.routes.clear();
    let network = Lookup::new(&routing).find(&Packet {
        source: None,
        destination: "10.9.0.7".parse().unwrap(),
        mark: 0,
        input: None,
    });
    assert_eq!(network.verdict, Verdict::NoRoute);
    assert!(matches!(network.passed, Some(Passed::Network(absent)) if absent.interface == "e1"));
    routing.kernel.absent_rules = vec![AbsentRule { priority: 32_766, ipv6: false }];
    let lookup = Lookup::new(&routing);
    let near = lookup.find(&Packet::sent("10.0.0.1".parse().unwrap(), "10.0.0.7".parse().unwrap()));
    assert_eq!((&near.verdict, near.passed), (&Verdict::NoRoute, Some(Passed::Absent(32_766, false))));
}

#[test]
fn of_one_metric_the_preferred_router_is_taken() {
    let of = |is_high: Option<bool>| {
        let (first, second) =
            (route("fd09::/64", MAIN_TABLE, "fd00::1"), route("fd09::/64", MAIN_TABLE, "fd00::2"));
        let preference = is_high.map(|is_high| clearstream_schema::routing::kernel::RoutePreference {
            destination: second.destination,
            table: second.table,
            metric: second.metric,
            action: second.action.clone(),
            is_high,
        });
        let kernel = KernelFacts { preferences: preference.into_iter().collect(), ..KernelFacts::default() };
        let routing = HostRouting { routes: vec![first, second], kernel, ..HostRouting::default() };
        let found =
            Lookup::new(&routing).find(&Packet::sent("fd00::9".parse().unwrap(), "fd09::1".parse().unwrap()));
        match found.verdict {
            Verdict::Gateways(hops, _) => hops.iter().map(|hop| hop.via.to_string()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(Some(true)), ["fd00::2"]);
    assert_eq!(of(Some(false)), ["fd00::1"]);
    assert_eq!(of(None), ["fd00::1", "fd00::2"]);
}

/// As `ip rule` of Linux 6.18 shows them after these commands.
#[test]
fn rules_without_priority_come_before_the_second_that_is_there() {
    let rule = |priority, ipv6| RuleEntry {
        ipv6,
        priority,
        selector: RuleSelector::default(),
        action: RuleAction::Table(5),
        protocol: 0,
        place: None,
    };
    for (given, wanted) in [
        (vec![rule(None, false), rule(None, false), rule(None, true)], vec![32_765, 32_764, 32_765]),
        (vec![rule(Some(100), false), rule(None, false)], vec![100, 99]),
        (vec![rule(Some(0), false), rule(None, false)], vec![0, 0]),
    ] {
        assert_eq!(priorities(&given), wanted);
    }
}

#[test]
fn what_a_group_of_interfaces_suppresses_is_not_known() {
    let mut routing = with_vrf();
    routing.rules[0].selector = RuleSelector {
        other: ["suppress_ifgroup", "3"].map(str::to_owned).into(),
        ..RuleSelector::default()
    };
    routing.rules[0].action = RuleAction::Table(MAIN_TABLE);
    routing.rules[0].priority = Some(5);
    let found =
        Lookup::new(&routing).find(&Packet::sent("10.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap()));
    assert_eq!(found.verdict, Verdict::Unknown("suppress_ifgroup".to_owned()));
}
