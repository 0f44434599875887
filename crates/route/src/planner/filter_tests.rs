//! What a plan's hosts drop although their routes lead on: filters and forwarding, as
//! the kernel sees the packets.

use clearstream_schema::{
    fabric::ReturnPath,
    prefix::Prefix,
    route_plan::ProofOutcome,
    routing::{HostRouting, MAIN_TABLE, RouteAction, RouteEntry},
};

use super::Planner;
use crate::fabric::{self, Fabric};

/// What fails when one host of the lab of six gateways is changed, with the gateway.
fn failure(name: &str, change: fn(&mut HostRouting)) -> (Option<String>, String) {
    let mut file = fabric::load("gateways-6").unwrap().file().clone();
    file.routes[0].return_path = ReturnPath::ConnectionMark;
    let fabric = Fabric::new(file).unwrap();
    let planner = Planner::new(&fabric);
    assert_eq!(planner.prove(0).outcome, ProofOutcome::Symmetric);
    let proof = planner.prove_with(0, &|host| {
        let mut routing = planner.routing(host);
        if routing.host == name {
            change(&mut routing);
        }
        routing
    });
    let found = proof.counterexample.unwrap();
    (found.gateway, found.problem)
}

fn set(host: &mut HostRouting, key: &str) {
    host.sysctls.insert(key.to_owned(), "1".to_owned().into());
}

/// The mark is the connection's: an arriving packet has none (`ct mark set`, not
/// `meta mark set`), so that its source is validated by the main table even where
/// `src_valid_mark` is set.
#[test]
fn a_request_is_validated_without_the_mark_of_its_connection() {
    let (gateway, problem) = failure("storage-1", |host| {
        for route in host.routes.iter_mut().filter(|it| it.table == MAIN_TABLE) {
            route.action = RouteAction::Link { interface: "other0".to_owned() };
        }
        assert_eq!(host.sysctls["net.ipv4.conf.storage0.src_valid_mark"].value, "1");
        set(host, "net.ipv4.conf.storage0.rp_filter");
    });
    assert_eq!(gateway.as_deref(), Some("gw1"));
    let filter =
        "storage-1 drops it: its strict reverse path filter wants a route back to 10.100.0.1 by storage0";
    assert!(problem.starts_with(filter), "{problem}");
}

/// A gateway validates what it forwards, too (`ip_route_input_slow`).
#[test]
fn a_gateway_validates_what_it_forwards() {
    let (gateway, problem) = failure("gw2", |host| {
        host.routes.push(RouteEntry {
            destination: Prefix::host("10.100.0.3".parse().unwrap()),
            table: MAIN_TABLE,
            metric: 0,
            action: RouteAction::Link { interface: "storage0".to_owned() },
            source: None,
            mtu: None,
            protocol: 0,
            place: None,
        });
        set(host, "net.ipv4.conf.compute0.rp_filter");
    });
    assert_eq!(gateway.as_deref(), Some("gw2"));
    let filter = "gw2 drops it: its strict reverse path filter wants a route back to 10.100.0.3 by compute0";
    assert!(problem.starts_with(filter), "{problem}");
}

/// IPv4 forwards by the interface of arrival (ip-sysctl.rst, `forwarding`).
#[test]
fn a_gateway_forwards_by_the_interface_of_arrival() {
    let (gateway, problem) = failure("gw3", |host| {
        host.sysctls.insert("net.ipv4.conf.compute0.forwarding".to_owned(), "0".to_owned().into());
    });
    assert_eq!(gateway.as_deref(), Some("gw3"));
    assert_eq!(problem, "gw3 does not forward: net.ipv4.conf.compute0.forwarding is not 1");
}
