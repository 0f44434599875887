//! `clearstream route plan` as people and scripts see it.

use std::{fs, path::Path};

use crate::common::{assert_valid, run};

/// The document is the published one, and holds the hosts that were requested.
#[test]
fn json_is_as_published() {
    for name in ["gateways-6", "cumulus-wolf", "dual-stack"] {
        assert_valid("route-plan", &run(&["route", "plan", name, "--json"]).json());
    }
    // The scale of ten thousand hosts is tested where the planner is.
    let arguments = ["cumulus-wolf", "--class", "service", "--host", "nid00007", "--json"];
    let document = run(&[["route", "plan"].as_slice(), &arguments].concat()).json();
    let hosts = document["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 7);
    assert_eq!(hosts[0]["routing"]["host"], "nid00007");
    assert_eq!(document["routes"][0]["proof"]["outcome"], "symmetric");
}

#[test]
fn people_see_what_each_host_gets_and_why() {
    let shown = run(&["route", "plan", "cumulus-wolf", "--host", "nsd1"]);
    for expected in [
        "return path alias; recommended: none",
        "each reply takes the gateway of its request",
        "rule 7001 from 10.10.0.211 table 7001",
        "route 10.100.0.0/16 via 10.10.0.11 table 7001",
        "packets from 10.10.0.211 are replies to what came over sn1",
        "83.3 %",
        "CONFIG_IP_MULTIPLE_TABLES",
    ] {
        assert!(shown.ok().contains(expected), "{expected}\n{}", shown.stdout);
    }
}

#[test]
fn ends_with_the_documented_codes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fabrics/gateways-6.toml");
    let good = fs::read_to_string(good).unwrap();
    fs::write(&path, good.replace("10.10.0.[11-16]", "10.10.0.[11-15]")).unwrap();
    let line = 1 + good.lines().position(|line| line.contains("10.10.0.[11-16]")).unwrap();
    let place = format!("bad.toml:{line}: class[0].link[1].addresses: 5 IPv4 addresses for 6 hosts");
    run(&["route", "plan", path.to_str().unwrap()]).refused(2, &[&place]);
    run(&["route", "plan", "nowhere"]).refused(9, &["built in are gateways-6"]);
    run(&["route", "plan", "gateways-6", "--host", "gw7"]).refused(9, &["did you mean `gw"]);
    run(&["route", "plan", "gateways-6", "--class", "servers"]).refused(9, &["gateway, storage"]);
    run(&["route", "plan", "./nowhere.toml"]).refused(7, &["nowhere.toml"]);
    run(&["route", "plan", "gateways-6", "--flows", "0"]).refused_by_usage("--flows");
}
