//! What a watch finds in the places of its plan that is not its own: it stays, is named once, and makes room for the
//! plan's when it goes.

use std::{thread::sleep, time::Duration};

use serde_json::Value;

use crate::{
    common::{assert_valid, eventually},
    watched::{Fabric, Watch},
};

fn health(fabric: &Fabric) -> Value {
    let health = fabric.route("c1", &["health", "--json"]).json();
    assert_valid("watch-status", &health);
    health
}

fn whats(watch: &Watch, event: &str) -> Vec<String> {
    watch.of(event).iter().map(|event| event["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn root_what_others_put_in_place_of_a_plans_routes_is_named_once_and_left() {
    let fabric = Fabric::up("e2e-held", 3, "return-path = \"none\"");
    fabric.apply();
    let shown: Value = serde_json::from_str(&fabric.exec("c1", "ip -j nexthop")).unwrap();
    let by_gateway = |nexthop: &&Value| nexthop["gateway"] == "10.100.0.11";
    let object = shown.as_array().unwrap().iter().find(by_gateway).unwrap()["id"].to_string();
    let watch = fabric.watch("c1", &[]);
    let cases = [
        (
            "ip route replace 10.10.0.0/24 via 10.100.0.12".to_owned(),
            ("ip route show 10.10.0.0/24".to_owned(), "10.10.0.0/24 via 10.100.0.12"),
            "route 10.10.0.0/24".to_owned(),
            "proto boot (via 10.100.0.12 dev compute0)",
            "ip route del 10.10.0.0/24 via 10.100.0.12".to_owned(),
            [false, false],
        ),
        (
            format!("ip nexthop replace id {object} via 10.100.0.12 dev compute0"),
            (format!("ip nexthop show id {object}"), "via 10.100.0.12"),
            format!("nexthop {object}"),
            "proto unspec (via 10.100.0.12 dev compute0)",
            format!("ip nexthop del id {object}"),
            // The others go on.
            [false, true],
        ),
    ];
    for (number, (there, (show, theirs), what, holder, away, used)) in cases.into_iter().enumerate() {
        fabric.exec("c1", &there);
        eventually(Duration::from_secs(5), "it says so", || whats(&watch, "held").len() == number + 1);
        assert_eq!(whats(&watch, "held")[number], what);
        assert_eq!(watch.of("held")[number]["holder"], holder);
        let status = health(&fabric);
        let path = &status["ways"][0];
        assert_eq!(path["installed"], false, "{status}");
        let missing = path["missing"].as_array().unwrap();
        let held = missing.iter().find(|missing| missing["what"] == *what).unwrap();
        assert_eq!(held["holder"], holder, "{status}");
        let is_used = |gateway: usize| path["gateways"][gateway]["used"].as_bool().unwrap();
        assert_eq!([is_used(0), is_used(1)], used, "{status}");
        let text = fabric.route("c1", &["health"]).ok().to_owned();
        assert!(text.contains("not installed") && text.contains(&format!("held by {holder}")), "{text}");
        // It looks every second.
        sleep(Duration::from_millis(1500));
        assert_eq!(whats(&watch, "held").len(), number + 1, "{:?}", watch.of("held"));
        assert!(fabric.exec("c1", &show).contains(theirs), "it is left alone");
        assert!(watch.of("repaired").is_empty(), "{:?}", watch.of("repaired"));
        fabric.exec("c1", &away);
        eventually(Duration::from_secs(5), "the plan's is back", || {
            whats(&watch, "restored").iter().any(|restored| restored.contains(&what))
        });
        eventually(Duration::from_secs(5), "it says that", || {
            health(&fabric)["ways"][0]["installed"] == true
        });
        assert_eq!(fabric.used("c1").len(), 3);
    }
    for event in watch.events.lock().unwrap().iter() {
        assert_valid("watch-event", event);
    }
}

#[test]
fn root_a_gateway_whose_address_another_host_has_is_withdrawn() {
    let fabric = Fabric::up("e2e-taken", 3, "return-path = \"none\"");
    fabric.apply();
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    eventually(Duration::from_secs(10), "it responds", || {
        let gateways = health(&fabric)["ways"][0]["gateways"].as_array().unwrap().clone();
        gateways.iter().all(|gateway| gateway["answered_count"].as_u64() > Some(20))
    });
    // Nobody has this link address: what a host that took the gateway's address and does not forward is.
    fabric.exec("c1", "ip neigh replace 10.100.0.11 lladdr 02:00:00:00:00:99 dev compute0 nud reachable");
    eventually(Duration::from_secs(10), "it is out", || {
        watches[0].of("out").iter().any(|out| out["gateway"] == "gw1")
    });
    assert!(watches[0].of("out").iter().all(|out| out["gateway"] == "gw1"), "{:?}", watches[0].of("out"));
}
