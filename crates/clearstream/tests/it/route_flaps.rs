//! What the kernel or another program takes from a host's routes comes back: with a watch all of it, without one as much
//! as a classic multipath route keeps.

use std::{thread::sleep, time::Duration};

use serde_json::Value;

use crate::{
    common::{assert_valid, eventually},
    watched::{Fabric, Flows, Watch},
};

const GATEWAYS: usize = 3;

/// As long as a switch port that is reset, at the least.
const DOWN: Duration = Duration::from_millis(1200);

fn loses_carrier(fabric: &Fabric) {
    fabric.fault(&["c1:compute0", "link-down"]);
    sleep(DOWN);
    fabric.fault(&["c1:compute0", "--clear"]);
}

fn events(watch: &Watch) -> (usize, usize) {
    (watch.of("lost").len(), watch.of("restored").len())
}

fn group(fabric: &Fabric) -> Option<Value> {
    let shown: Value = serde_json::from_str(&fabric.exec("c1", "ip -j nexthop")).unwrap();
    shown.as_array().unwrap().iter().find(|nexthop| nexthop["group"].is_array()).cloned()
}

fn is_whole(fabric: &Fabric) -> bool {
    let is_full = |group: Value| group["group"].as_array().unwrap().len() == GATEWAYS;
    let routes = fabric.exec("c1", "ip route show 10.10.0.0/24");
    group(fabric).is_some_and(is_full) && routes.contains("nhid") && routes.contains("metric 1")
}

#[test]
fn root_a_host_without_a_watch_outlives_a_lost_carrier_as_with_a_classic_route() {
    let fabric = Fabric::up("e2e-flap", GATEWAYS, "return-path = \"none\"");
    fabric.apply();
    let flows = Flows::start(&fabric);
    for host in ["c1:compute0", "gw1:compute0", "gw2:storage0"] {
        fabric.fault(&[host, "link-down"]);
        sleep(DOWN);
        fabric.fault(&[host, "--clear"]);
        eventually(Duration::from_secs(20), "flows go on", || flows.all_go_on());
    }
    // The kernel has taken the group away; what is left says so.
    assert!(!is_whole(&fabric));
    let verified = fabric.route("c1", &["verify", &fabric.file]);
    assert_ne!(verified.code(), 0, "{}", verified.stdout);
    fabric.route("c1", &["apply", &fabric.file, "--yes"]).ok();
    assert!(is_whole(&fabric));
    fabric.route("c1", &["verify", &fabric.file]).ok();
}

#[test]
fn root_a_watch_restores_whatever_takes_its_routes_once_and_not_what_is_reverted() {
    let fabric = Fabric::up("e2e-owned", GATEWAYS, "return-path = \"none\"");
    fabric.apply();
    // An operator's own entry, with the true link address.
    let shown: Value = serde_json::from_str(&fabric.exec("gw1", "ip -j link show compute0")).unwrap();
    let address = shown[0]["address"].as_str().unwrap().to_owned();
    let fixed = format!("ip neigh replace 10.100.0.11 lladdr {address} dev compute0 nud permanent");
    fabric.exec("c1", &fixed);
    let watch = fabric.watch("c1", &[]);
    let flows = Flows::start(&fabric);
    // It confirms neighbours every second.
    sleep(Duration::from_millis(1500));
    let neighbours = fabric.exec("c1", "ip neigh show 10.100.0.11");
    assert!(neighbours.contains("PERMANENT"), "{neighbours}");
    let away = [
        "ip link set compute0 down",
        "ip addr del 10.100.0.1/24 dev compute0",
        "ip route del 10.10.0.0/24",
        &format!("ip nexthop del id {}", group(&fabric).unwrap()["id"]),
    ];
    let back = [Some("ip link set compute0 up"), Some("ip addr add 10.100.0.1/24 dev compute0"), None, None];
    for (number, (away, back)) in away.into_iter().zip(back).enumerate() {
        fabric.exec("c1", away);
        if let Some(back) = back {
            eventually(Duration::from_secs(5), "it says so", || events(&watch).0 == number + 1);
            let health = fabric.route("c1", &["health", "--json"]).json();
            assert_valid("watch-status", &health);
            assert_eq!(health["ways"][0]["installed"], false, "{away}: {health}");
            assert_eq!(health["ways"][0]["gateways"][0]["used"], false, "{away}: {health}");
            assert!(fabric.route("c1", &["health"]).ok().contains("not installed"));
            fabric.exec("c1", back);
        }
        eventually(Duration::from_secs(5), "the routes are back", || is_whole(&fabric));
        eventually(Duration::from_secs(20), "flows go on", || flows.all_go_on());
        eventually(Duration::from_secs(5), "it says that", || {
            let health = fabric.route("c1", &["health", "--json"]).json();
            health["ways"][0]["installed"] == true
        });
    }
    // The address is named with what depends on it.
    for event in ["lost", "restored"] {
        let is_named =
            |event: &Value| event["what"].as_str().unwrap().contains("address 10.100.0.1 of compute0");
        assert_eq!(
            watch.of(event).iter().filter(|event| is_named(event)).count(),
            1,
            "{:?}",
            watch.of(event)
        );
    }
    let before = events(&watch).0;
    loses_carrier(&fabric);
    eventually(Duration::from_secs(5), "the routes are back", || is_whole(&fabric));
    eventually(Duration::from_secs(20), "flows go on", || flows.all_go_on());
    assert_eq!(events(&watch).0, before + 1, "one event for each: {:?}", watch.of("lost"));
    assert_eq!(watch.of("failed").len(), 0, "{:?}", watch.of("failed"));

    fabric.change("c1", &["revert"]).ok();
    sleep(Duration::from_millis(1500));
    assert_eq!(fabric.exec("c1", "ip route show 10.10.0.0/24").trim(), "");
    assert_eq!(fabric.exec("c1", "ip nexthop").trim(), "");
    let lost = watch.of("lost");
    assert!(lost.last().unwrap()["reason"].as_str().unwrap().contains("reverted"), "{lost:?}");
    for event in watch.events.lock().unwrap().iter() {
        assert_valid("watch-event", event);
    }
}

#[test]
fn root_with_address_resolution_off_a_host_works_with_the_watch_as_without() {
    let fabric = Fabric::up("e2e-noarp", GATEWAYS, "return-path = \"none\"");
    fabric.apply();
    let link_address = |host: &str| {
        let shown: Value = serde_json::from_str(&fabric.exec(host, "ip -j link show compute0")).unwrap();
        shown[0]["address"].as_str().unwrap().to_owned()
    };
    // It takes all entries away.
    for host in ["c1", "gw1", "gw2", "gw3"] {
        fabric.exec(host, "ip link set compute0 arp off");
    }
    for number in 1..=GATEWAYS {
        let gateway = format!("gw{number}");
        let (own, far) = (link_address("c1"), link_address(&gateway));
        for (host, address, link) in
            [("c1", format!("10.100.0.{}", 10 + number), far), (&*gateway, "10.100.0.1".to_owned(), own)]
        {
            fabric
                .exec(host, &format!("ip neigh replace {address} lladdr {link} dev compute0 nud permanent"));
        }
    }
    let flows = Flows::start(&fabric);
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    sleep(Duration::from_millis(1500));
    assert!(flows.all_go_on(), "{:?}", flows.quiet());
    let shown = fabric.exec("c1", "ip neigh show dev compute0");
    assert_eq!(shown.matches("PERMANENT").count(), GATEWAYS, "{shown}");
    assert!(watches.iter().all(|watch| watch.of("out").is_empty()), "{:?}", watches[0].of("out"));
}
