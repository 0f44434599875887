//! Outlines of hosts, read by the reader of fabric files.

use std::path::Path;

use clearstream_schema::{
    fabric::{HostRole, ReturnPath},
    routing::HostRouting,
};

use clearstream_netconfig::read;

use super::*;
use crate::{
    fabric::{self, Fabric},
    lint,
};

fn corrected() -> Vec<HostRouting> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/configs/paper-corrected");
    let mut hosts = read::folder(&folder).unwrap().hosts;
    hosts.sort_by(|left, right| left.host.cmp(&right.host));
    hosts
}

fn parsed(hosts: &[HostRouting]) -> Fabric {
    let text = outline(hosts, "site").unwrap();
    fabric::parse(Path::new("site.toml"), &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn a_whole_fabric_comes_back() {
    let hosts = corrected();
    let fabric = parsed(&hosts);
    let names: Vec<&str> = fabric.gateways().iter().map(|gateway| gateway.name.as_str()).collect();
    assert_eq!(names, ["sn1", "sn2", "sn3", "sn4", "sn5", "sn6"]);
    let file = fabric.file();
    assert_eq!(file.networks.len(), 2);
    let storage = file.classes.iter().find(|class| class.role == HostRole::Storage).unwrap();
    assert_eq!(storage.hosts, ["nsd1"]);
    assert_eq!(storage.links[0].addresses, ["10.10.0.201"]);
    assert_eq!(storage.links[0].alias_addresses, ["10.10.0.[211-216]"]);
    let gateways = file.classes.iter().find(|class| class.role == HostRole::Gateway).unwrap();
    assert_eq!(gateways.links.len(), 2);
    assert_eq!(file.routes[0].return_path, ReturnPath::Alias);
    // What was written describes the hosts that it came from.
    let subjects: Vec<lint::Subject> = hosts
        .into_iter()
        .map(|routing| lint::Subject { name: routing.host.clone(), routing, ..lint::Subject::default() })
        .collect();
    let report = lint::lint(&subjects, Some(&fabric), &clearstream_lint::MuteList::default());
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

/// Without the gateways, the routes of both sides name them.
#[test]
fn a_pair_of_hosts_is_enough() {
    let pair: Vec<HostRouting> =
        corrected().into_iter().filter(|host| !host.host.starts_with("sn")).collect();
    assert_eq!(pair.len(), 2);
    let text = outline(&pair, "site").unwrap();
    assert!(text.contains("none of these gateways was captured"), "{text}");
    let fabric = parsed(&pair);
    assert_eq!(fabric.gateways().len(), 6);
    let third = &fabric.gateways()[2];
    let of: Vec<String> =
        (0..2).filter_map(|link| fabric.address(third.host, link, false)).map(|it| it.to_string()).collect();
    assert!(of.contains(&"10.10.0.13".to_owned()) && of.contains(&"10.100.0.93".to_owned()), "{of:?}");
}

#[test]
fn hosts_without_gateway_are_refused_with_their_names() {
    let one: Vec<HostRouting> = corrected().into_iter().filter(|host| host.host == "sn1").collect();
    // A gateway alone is on two networks and forwards, which is enough for two
    // networks; without its sysctls it cannot be recognised as one.
    let mut silent = one.clone();
    silent[0].sysctls.clear();
    let error = outline(&silent, "x").unwrap_err().to_string();
    assert!(error.contains("sn1"), "{error}");
    assert_eq!(outline(&[], "x").unwrap_err(), OutlineError::NoGateway { hosts: String::new() });
}
