//! Next hops.

use super::*;

#[test]
fn a_gateway_outside_every_network() {
    let id = "gateway:range:outside-every-subnet";
    let text = "address ib1 10.10.0.201/24\nroute default via 10.10.1.91 dev ib1 table 1\n";
    assert_eq!(lines(text, id), [2]);
    assert_eq!(lines(&text.replace("10.10.1.91", "10.10.0.91"), id), NONE);
    // In a network of another interface than the given one.
    let other =
        "address ib1 10.10.0.201/24\naddress ib2 10.10.1.201/24\nroute default via 10.10.1.91 dev ib1\n";
    assert_eq!(lines(other, id), [3]);
    assert_eq!(lines(&other.replace("dev ib1", ""), id), NONE);
    // A route without gateway makes it a neighbour.
    assert_eq!(lines(&format!("{text}route 10.10.1.0/24 dev ib1\n"), id), NONE);
    // Without addresses, by the other gateways of the interface.
    let bare =
        "route 10.100.0.0/16 via 10.10.0.11,10.10.0.12 dev ib1\nroute default via 10.10.1.91 table 1\n";
    assert_eq!(lines(bare, id), [2]);
    assert_eq!(lines(&bare.replace("10.10.1.91", "10.10.0.91"), id), NONE);
    // A kernel that has it took it: `onlink`, which routing documents do not hold.
    let whole = Subject { is_whole: true, ..host("h", text) };
    let report = report_of(&[whole]);
    let found = report.findings.iter().find(|finding| finding.id == id).unwrap();
    assert_eq!(found.severity, Severity::Note);
    assert_eq!(lines("route fd00::/64 via fe80::1 dev ib1\naddress ib1 fd01::1/64\n", id), NONE);
}

#[test]
fn a_gateway_that_the_multipath_route_lacks() {
    let id = "gateway:routing:missing-from-multipath";
    // It has a table as the others have.
    let lacking =
        SERVER.replace("via 10.10.0.11,10.10.0.12 dev ib1\n", "via 10.10.0.11,10.10.0.13 dev ib1\n");
    let lacking = format!("{lacking}route default via 10.10.0.13 dev ib1 table 3\n");
    assert_eq!(lines(&lacking, id), [8]);
    assert_eq!(lines(SERVER, id), NONE);
    // It has a rule as the others have.
    let rules = "rule priority 1 from 10.10.0.11 table 1\nrule priority 2 from 10.10.0.12 table 2\n\
                 rule priority 3 from 10.10.0.13 table 3\nroute 10.100.0.0/16 via 10.10.0.11,10.10.0.13 dev ib1\n";
    assert_eq!(lines(rules, id), [4]);
    // A table of another network has nothing to do with it.
    let management =
        format!("{SERVER}address eth0 192.168.0.2/24\nroute default via 192.168.0.1 dev eth0 table 9\n");
    assert_eq!(lines(&management, id), NONE);
}

#[test]
fn a_gateway_listed_twice() {
    let id = "gateway:wasteful:listed-twice";
    let text = "route 10.100.0.0/16 via 10.10.0.11,10.10.0.12,10.10.0.11 dev ib1\n";
    let report = report_of(&[host("h", text)]);
    let found: Vec<_> = report.findings.iter().filter(|finding| finding.id == id).collect();
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("2 of 3 shares"), "{}", found[0].message);
    assert_eq!(lines("route 10.100.0.0/16 via 10.10.0.11,10.10.0.12 dev ib1\n", id), NONE);
}

#[test]
fn a_next_hop_without_interface() {
    let id = "gateway:routing:no-interface";
    let two = "address ib1 10.10.0.201/24\naddress ib2 10.10.0.202/24\nroute default via 10.10.0.11\n";
    assert_eq!(lines(two, id), [3]);
    assert_eq!(lines(&two.replace("10.10.0.11", "10.10.0.11 dev ib1"), id), NONE);
    // The kernel takes the one that is on the network; with one interface there is no other.
    assert_eq!(lines(&two.replace("10.10.0.202", "10.10.9.202"), id), NONE);
    assert_eq!(lines("address ib1 10.10.0.201/24\nroute default via 10.10.0.11\n", id), NONE);
}

#[test]
fn a_nexthop_that_is_not_there() {
    let id = "gateway:range:unknown-nexthop";
    let mut subject = host("h", "");
    subject
        .routing
        .routes
        .push(RouteEntry { action: RouteAction::Nexthop(7), ..route(&["default", "dev", "x"], None) });
    assert_eq!(lines_of(std::slice::from_ref(&subject), id), [0]);
    subject.routing.nexthops.push(clearstream_schema::routing::Nexthop {
        id: 7,
        target: clearstream_schema::routing::NexthopTarget::Blackhole,
        protocol: 0,
        place: None,
    });
    assert_eq!(lines_of(&[subject], id), NONE);
}
