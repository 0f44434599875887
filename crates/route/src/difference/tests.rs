use clearstream_schema::routing::{
    ConnectionMark, GroupMember, Hop, Located, Resilient, RouteAction, RoutingInterface, RuleAction,
    RuleSelector,
};

use super::*;

const OURS: u8 = 117;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn route(text: &str, table: u32, action: RouteAction, protocol: u8) -> RouteEntry {
    let destination = prefix(text);
    RouteEntry { destination, table, metric: 0, action, source: None, mtu: None, protocol, place: None }
}

fn by(via: &str) -> RouteAction {
    let (via, interface) = (via.parse().unwrap(), Some("ib0".to_owned()));
    RouteAction::Gateways(vec![Hop { via, interface, weight: 1, place: None }])
}

fn nexthop(id: u32, via: &str) -> Nexthop {
    let target = NexthopTarget::Gateway { via: via.parse().unwrap(), interface: "ib0".to_owned() };
    Nexthop { id, target, protocol: OURS, place: None }
}

fn group(id: u32, ids: &[u32], bucket_count: Option<u16>) -> Nexthop {
    let members = ids.iter().map(|id| GroupMember { id: *id, weight: 1 }).collect();
    let resilient =
        bucket_count.map(|bucket_count| Resilient { bucket_count, idle_seconds: 60, unbalanced_seconds: 0 });
    Nexthop { id, target: NexthopTarget::Group { members, resilient }, protocol: OURS, place: None }
}

fn rule(from: &str, number: u32) -> RuleEntry {
    let selector = RuleSelector { from: Some(prefix(from)), ..RuleSelector::default() };
    RuleEntry {
        ipv6: false,
        priority: Some(number),
        selector,
        action: RuleAction::Table(number),
        protocol: OURS,
        place: None,
    }
}

fn interface() -> RoutingInterface {
    RoutingInterface {
        name: "ib0".to_owned(),
        addresses: vec![Located::from(prefix("10.10.0.200/24"))],
        mtu: Some(Located::from(2044)),
        ..RoutingInterface::default()
    }
}

/// A server with an address for each of two gateways.
fn wanted() -> HostRouting {
    let mut link = interface();
    link.addresses.push(Located::from(prefix("10.10.0.211/32")));
    HostRouting {
        host: "sn1".to_owned(),
        interfaces: vec![link],
        nexthops: vec![
            group(7013, &[7001, 7002], Some(120)),
            nexthop(7001, "10.10.0.1"),
            nexthop(7002, "10.10.0.2"),
        ],
        routes: vec![
            route("10.100.0.0/16", MAIN_TABLE, RouteAction::Nexthop(7013), OURS),
            route("10.100.0.0/16", 7001, by("10.10.0.1"), OURS),
        ],
        rules: vec![rule("10.10.0.211/32", 7001)],
        sysctls: BTreeMap::from([("net.ipv4.fib_multipath_hash_policy".to_owned(), "1".to_owned().into())]),
        ..HostRouting::default()
    }
}

fn bare() -> Current {
    let routing = HostRouting {
        host: "sn1".to_owned(),
        interfaces: vec![
            RoutingInterface { name: "lo".to_owned(), ..RoutingInterface::default() },
            interface(),
        ],
        routes: vec![route("0.0.0.0/0", MAIN_TABLE, by("10.10.0.254"), 4)],
        sysctls: BTreeMap::from([("net.ipv4.fib_multipath_hash_policy".to_owned(), "0".to_owned().into())]),
        ..HostRouting::default()
    };
    current(routing)
}

fn current(routing: HostRouting) -> Current {
    let addresses = routing.interfaces.iter().flat_map(|link| {
        link.addresses.iter().map(|address| LiveAddress {
            interface: link.name.clone(),
            prefix: address.value,
            protocol: if address.value.length == 32 { OURS } else { 0 },
            makes_no_route: false,
            is_secondary: false,
        })
    });
    Current { addresses: addresses.collect(), routing, mark_table: None, kernel: "6.18.44".to_owned() }
}

fn plan(current: &Current, routing: &HostRouting) -> Result<Plan, DifferenceError> {
    difference(current, &Wanted { fabric: "test", routing, reasons: &[], protocol: OURS })
}

fn settings(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| step.setting.to_string()).collect()
}

fn text(value: &Option<Value>) -> Option<String> {
    value.as_ref().map(Value::to_string)
}

#[test]
fn from_nothing_each_step_finds_what_it_needs() {
    let plan = plan(&bare(), &wanted()).unwrap();
    assert_eq!(
        settings(&plan),
        [
            "net.ipv4.fib_multipath_hash_policy",
            "ib0 address 10.10.0.211/32",
            "nexthop 7001",
            "nexthop 7002",
            "nexthop 7013",
            "route 10.100.0.0/16 table 7001",
            "route 10.100.0.0/16 table 254",
            "rule 7001 from 10.10.0.211",
        ]
    );
    let route = &plan.steps[6];
    assert_eq!((&route.current, text(&route.desired).as_deref()), (&None, Some("nhid 7013 proto 117")));
}

#[test]
fn what_is_as_wanted_has_no_steps_regardless_of_origin() {
    let mut there = wanted();
    there.interfaces.insert(0, RoutingInterface { name: "lo".to_owned(), ..RoutingInterface::default() });
    there.routes.push(route("0.0.0.0/0", MAIN_TABLE, by("10.10.0.254"), 4));
    assert_eq!(settings(&plan(&current(there.clone()), &wanted()).unwrap()), Vec::<String>::new());
    for route in &mut there.routes {
        route.protocol = 4;
    }
    for rule in &mut there.rules {
        rule.protocol = 0;
    }
    assert_eq!(settings(&plan(&current(there), &wanted()).unwrap()), Vec::<String>::new());
}

#[test]
fn what_is_ours_and_not_wanted_goes_in_the_reverse_order() {
    let mut there = wanted();
    there.routes.push(route("0.0.0.0/0", MAIN_TABLE, by("10.10.0.254"), 4));
    let nothing =
        HostRouting { host: "sn1".to_owned(), interfaces: vec![interface()], ..HostRouting::default() };
    let plan = plan(&current(there), &nothing).unwrap();
    assert_eq!(
        settings(&plan),
        [
            "rule 7001 from 10.10.0.211",
            "route 10.100.0.0/16 table 254",
            "route 10.100.0.0/16 table 7001",
            "nexthop 7013",
            "nexthop 7001",
            "nexthop 7002",
            "ib0 address 10.10.0.211/32",
        ]
    );
    assert!(plan.steps.iter().all(|step| step.desired.is_none() && step.current.is_some()));
}

#[test]
fn a_gateway_that_changed_is_replaced_in_place() {
    let mut there = wanted();
    there.nexthops[2] = nexthop(7002, "10.10.0.9");
    let plan = plan(&current(there), &wanted()).unwrap();
    assert_eq!(settings(&plan), ["nexthop 7002"]);
    assert_eq!(text(&plan.steps[0].current).as_deref(), Some("via 10.10.0.9 dev ib0 proto 117"));
    assert_eq!(text(&plan.steps[0].desired).as_deref(), Some("via 10.10.0.2 dev ib0 proto 117"));
}

#[test]
fn what_others_hold_is_named() {
    let held = |change: &dyn Fn(&mut HostRouting)| {
        let mut there = bare();
        change(&mut there.routing);
        plan(&there, &wanted()).unwrap_err().to_string()
    };
    let message = held(&|there| there.routes.push(route("10.100.0.0/16", MAIN_TABLE, by("10.10.0.77"), 4)));
    assert!(
        message.contains("route 10.100.0.0/16 table 254 belongs to another owner (via 10.10.0.77"),
        "{message}"
    );
    let message = held(&|there| there.routes.push(route("192.0.2.0/24", 7001, by("10.10.0.77"), 4)));
    assert!(message.contains("table 7001 belongs to another owner"), "{message}");
    let message = held(&|there| there.nexthops.push(Nexthop { protocol: 3, ..nexthop(7001, "10.10.0.77") }));
    assert!(message.contains("nexthop 7001 belongs to another owner"), "{message}");
    let message = held(&|there| there.rules.push(RuleEntry { protocol: 0, ..rule("10.9.9.9/32", 7001) }));
    assert!(message.contains("from 10.9.9.9 lookup 7001") && message.contains("[numbers]"), "{message}");
    let message = held(&|there| there.nexthops.push(group(7013, &[7001], None)));
    assert!(message.contains("no kernel changes in place"), "{message}");
    let message = held(&|there| there.interfaces.retain(|link| link.name == "lo"));
    assert!(message.contains("no interface \"ib0\" (it has lo)"), "{message}");
}

/// inet_forward_change in net/ipv4/devinet.c.
#[test]
fn what_forwarding_takes_along_is_in_the_journal() {
    let mut there = bare();
    for (key, value) in [
        ("net.ipv4.ip_forward", "0"),
        ("net.ipv4.conf.all.accept_redirects", "0"),
        ("net.ipv4.conf.eth1.forwarding", "1"),
        ("net.ipv4.conf.ib0.forwarding", "0"),
    ] {
        there.routing.sysctls.insert(key.to_owned(), value.to_owned().into());
    }
    let mut gateway = HostRouting { interfaces: vec![interface()], ..HostRouting::default() };
    gateway.sysctls.insert("net.ipv4.ip_forward".to_owned(), "1".to_owned().into());
    let plan = plan(&there, &gateway).unwrap();
    let shown: Vec<[String; 2]> =
        plan.steps.iter().map(|step| [step.setting.to_string(), text(&step.desired).unwrap()]).collect();
    assert_eq!(
        shown,
        [
            ["net.ipv4.ip_forward", "1"],
            ["net.ipv4.conf.all.accept_redirects", "0"],
            ["net.ipv4.conf.eth1.forwarding", "1"],
        ]
    );
}

#[test]
fn link_addresses_for_marks_are_requested_and_resolved() {
    let mut routing = wanted();
    routing.rules[0].selector = RuleSelector { mark: Some((7001, u32::MAX)), ..RuleSelector::default() };
    routing.connection_marks.push(ConnectionMark {
        interface: "ib0".to_owned(),
        link_address: String::new(),
        gateway: "gw1".to_owned(),
        mark: 7001,
    });
    let message = plan(&bare(), &routing).unwrap_err().to_string();
    assert!(message.contains("link address of gateway gw1 on ib0"), "{message}");
    let via: std::net::IpAddr = "10.10.0.1".parse().unwrap();
    assert_eq!(unknown_gateways(&routing), [(via, "ib0".to_owned())]);
    let neighbour = clearstream_netlink::Neighbour {
        interface: "ib0".to_owned(),
        address: via,
        link_address: Some("02:00:00:00:00:01".to_owned()),
        failed: false,
        is_fixed: false,
    };
    learn_marks(&mut routing, &[neighbour]);
    assert!(unknown_gateways(&routing).is_empty());
    let plan = plan(&bare(), &routing).unwrap();
    let table =
        plan.steps.iter().find(|step| matches!(step.setting, Setting::NetfilterTable { .. })).unwrap();
    let text = text(&table.desired).unwrap();
    assert!(text.contains("ether saddr 02:00:00:00:00:01 ct mark set 0x1b59"), "{text}");
}
