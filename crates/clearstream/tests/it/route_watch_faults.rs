//! `clearstream route watch` and gateways that are neither dead nor well: one
//! protocol or a share of the packets is dropped, or they are back and no
//! established flow uses them.

use crate::common;
use std::time::Duration;

use crate::common::{assert_valid, eventually, run};
use crate::watched::{Fabric, Flows, Watch};
use serde_json::Value;

/// Has a gateway drop some of what it forwards.
fn drop_some(fabric: &Fabric, gateway: &str, which: &str) {
    let chain = format!(
        "table inet e2e {{ chain f {{ type filter hook forward priority 0; policy accept; {which} drop;\n}}\n}}"
    );
    let output = fabric.command(gateway, &["nft", &chain]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Why each watch withdrew a gateway.
fn reasons(watches: &[Watch], gateway: &str) -> Vec<Value> {
    let outs = watches.iter().flat_map(|watch| watch.of("out"));
    outs.filter(|event| event["gateway"] == gateway).map(|event| event["reason"].clone()).collect()
}

#[test]
fn root_a_gateway_that_drops_tcp_alone_or_a_third_of_everything_is_withdrawn() {
    let fabric = Fabric::up("e2e-watch-tcp", 4, "return-path = \"none\"");
    fabric.apply();
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    let flows = Flows::start(&fabric);
    drop_some(&fabric, "gw1", "meta l4proto tcp");
    eventually(Duration::from_secs(10), "both sides withdraw gw1", || reasons(&watches, "gw1").len() >= 2);
    assert!(
        reasons(&watches, "gw1").iter().all(|reason| reason == "no-tcp"),
        "{:?}",
        reasons(&watches, "gw1")
    );
    eventually(Duration::from_secs(10), "flows go on", || flows.all_go_on());
    drop_some(&fabric, "gw2", "numgen random mod 100 < 30");
    eventually(Duration::from_secs(15), "both sides withdraw gw2", || reasons(&watches, "gw2").len() >= 2);
    eventually(Duration::from_secs(15), "flows go on", || flows.all_go_on());
    for host in ["c1", "s1"] {
        let used = fabric.used(host);
        assert!(used.len() == 2, "only gw3 and gw4 are left: {used:?}");
    }
    // One that drops TCP is not restored for its replies by UDP.
    assert_eq!(watches[0].of("in"), Vec::<Value>::new());
    let health = fabric.route("c1", &["health", "--json"]).json();
    assert_valid("watch-status", &health);
    assert_eq!(health["ways"][0]["tcp_heard"], true);
    for event in watches.iter().flat_map(|watch| watch.events.lock().unwrap().clone()) {
        assert_valid("watch-event", &event);
    }
}

/// Faults that small probes from one port do not meet. Each in both directions, so that both sides have to find it.
#[test]
fn root_gateways_that_drop_large_packets_or_some_ports_are_withdrawn() {
    let fabric = Fabric::up("e2e-watch-gray", 4, "return-path = \"none\"");
    fabric.apply();
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    let large = || {
        let health = fabric.route("c1", &["health", "--json"]).json();
        (health["ways"][0]["large_target_count"].clone(), health["ways"][0]["large_bytes"].clone())
    };
    eventually(Duration::from_secs(10), "replies to large probes", || large() == (1.into(), 9000.into()));
    let found = |gateway: &str, which: &str, fit: &[&str]| {
        drop_some(&fabric, gateway, which);
        eventually(Duration::from_secs(20), which, || reasons(&watches, gateway).len() >= 2);
        let found = reasons(&watches, gateway);
        assert!(found.iter().all(|reason| fit.iter().any(|fit| reason == fit)), "{which}: {found:?}");
    };
    found("gw1", "ip length > 1300", &["no-large"]);
    // Every fourth port, in either direction: that of the watch is 7117.
    found("gw2", "th dport 7117 th sport & 3 == 2", &["some-ports"]);
    found("gw3", "tcp sport & 7 == 3", &["some-ports"]);
    assert_eq!(fabric.used("c1"), ["10.100.0.14"]);
    let kernel_learnt = fabric.exec("c1", "ip route get 10.10.0.201");
    assert!(!kernel_learnt.contains("mtu"), "{kernel_learnt}");
    for event in watches.iter().flat_map(|watch| watch.events.lock().unwrap().clone()) {
        assert_valid("watch-event", &event);
    }
}

/// Gateways whose own link takes smaller packets say so by ICMP: to be withdrawn for that must not leave the host with
/// that MTU. When no gateway carries them, the rest is judged.
#[test]
fn root_a_smaller_mtu_is_found_and_not_learnt() {
    let fabric = Fabric::up("e2e-watch-mtu", 2, "return-path = \"none\"");
    fabric.apply();
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    fabric.exec("gw1", "ip link set storage0 mtu 1400");
    eventually(Duration::from_secs(20), "c1 withdraws gw1", || reasons(&watches[..1], "gw1") == ["no-large"]);
    let learnt = fabric.exec("c1", "ip route get 10.10.0.201");
    assert!(!learnt.contains("mtu"), "{learnt}");
    fabric.exec("gw2", "ip link set storage0 mtu 1400");
    let remark = "no remote host responds to packets of 9000 bytes, so only small ones are judged";
    eventually(Duration::from_secs(30), remark, || fabric.route("c1", &["health"]).ok().contains(remark));
    eventually(Duration::from_secs(30), "gw1 is restored", || fabric.used("c1").len() == 2);
}

/// Buckets of a host's group that lead to a gateway, as `ip` shows them.
fn buckets(fabric: &Fabric, host: &str, via: &str) -> (usize, usize) {
    let nexthops: Value = serde_json::from_str(&fabric.exec(host, "ip -j nexthop")).unwrap();
    let id =
        nexthops.as_array().unwrap().iter().find(|nexthop| nexthop["gateway"] == via).unwrap()["id"].clone();
    let shown = fabric.exec(host, "ip nexthop bucket show");
    let wanted = format!(" nhid {id}");
    let count = shown.lines().filter(|line| line.trim_end().ends_with(&wanted)).count();
    (count, shown.lines().count())
}

/// Segments of flows that a gateway has forwarded since the last query.
fn forwarded(fabric: &Fabric, gateway: &str) -> u64 {
    let listed: Value =
        serde_json::from_str(&fabric.exec(gateway, "nft -j list counter inet e2e flows")).unwrap();
    listed["nftables"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|item| item["counter"]["packets"].as_u64())
        .unwrap()
}

/// Flows are never idle: without the unbalanced timer no bucket would move.
#[test]
fn root_a_gateway_that_returned_carries_established_flows() {
    let fabric = Fabric::up("e2e-watch-back", 3, "return-path = \"none\"\n[numbers]\nunbalanced-seconds = 2");
    fabric.apply();
    let watches = [fabric.watch("c1", &[]), fabric.watch("s1", &[])];
    // Hardly one of the 120 buckets without a flow: 120 / e^(400 / 120) are four.
    let flows = Flows::start_many(&fabric, 400, "0.2");
    assert!(buckets(&fabric, "c1", "10.100.0.11").0 > 30);
    fabric.fault(&["gw1", "kill"]);
    eventually(Duration::from_secs(10), "gw1 is removed", || !reasons(&watches, "gw1").is_empty());
    eventually(Duration::from_secs(10), "flows go on", || flows.all_go_on());
    eventually(Duration::from_secs(5), "no bucket leads to it", || {
        buckets(&fabric, "c1", "10.100.0.11").0 == 0
    });
    run(&["lab", "fault", &fabric.lab.0, "--clear"]).ok();
    eventually(Duration::from_secs(20), "both sides see the share restored", || {
        watches.iter().all(|watch| !watch.of("rebalanced").is_empty())
    });
    let event = &watches[0].of("rebalanced")[0];
    assert_valid("watch-event", event);
    let (count, total) = buckets(&fabric, "c1", "10.100.0.11");
    assert_eq!(
        (event["bucket-count"].as_u64(), event["bucket-total"].as_u64()),
        (Some(count as u64), Some(total as u64))
    );
    assert!(count * 3 >= total - 3, "{count} of {total}");
    // Busy sockets have looked up their route again: a third of 400 flows sends five requests a second each.
    let count = [
        "nft",
        "table inet e2e {\ncounter flows { }\nchain f { type filter hook forward priority 0; tcp dport 5555 counter name flows;\n}\n}",
    ];
    let output = fabric.command("gw1", &count).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually(Duration::from_secs(10), "flows use gw1", || forwarded(&fabric, "gw1") > 20);
    assert!(flows.all_go_on(), "{:?}", flows.quiet());
}

/// The terminal of a watch was stopped with Ctrl-S: the gateway that dies is
/// withdrawn all the same, and the watch can be ended.
#[test]
fn root_a_watch_whose_output_is_not_read_goes_on() {
    let fabric = Fabric::up("e2e-watch-unread", 3, "return-path = \"none\"");
    fabric.apply();
    let state = fabric.folder.path().join("state");
    let (_reader, output) = common::full_pipe();
    let arguments = ["route", "watch", &fabric.file, "--json", "--state", state.to_str().unwrap()];
    let mut command =
        fabric.command("c1", &[&[common::program().to_str().unwrap()], &arguments[..]].concat());
    let mut watch = command.stdout(output).spawn().unwrap();
    for interface in ["compute0", "storage0"] {
        fabric.exec("gw1", &format!("ip link set {interface} down"));
    }
    eventually(Duration::from_secs(30), "gw1 is withdrawn", || fabric.used("c1").len() == 2);
    common::signal(watch.id(), "TERM");
    eventually(Duration::from_secs(20), "the watch ends", || watch.try_wait().unwrap().is_some());
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}
