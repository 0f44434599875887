//! `clearstream route prove` with the whole binary: plans that `route apply`
//! made, in labs whose hosts hash with seeds of their own.

use crate::common;
use std::{fs, path::PathBuf};

use crate::common::{Lab, assert_valid, program, run};
use serde_json::Value;

const HOSTS: [&str; 6] = ["compute-1", "compute-2", "gw1", "gw2", "gw3", "storage-1"];

/// Two compute hosts, three gateways and a storage host on two switches.
fn lab_text(name: &str) -> String {
    let hosts: String = HOSTS
        .iter()
        .map(|host| {
            let router = if host.starts_with("gw") { "router = true\n" } else { "" };
            format!("[[host]]\nname = \"{host}\"\n{router}")
        })
        .collect();
    format!(
        r#"
schema = "clearstream.lab"
version = 1
name = "{name}"
title = "three gateways"
{hosts}
[[switch]]
name = "compute-net"
mtu = 1500
ends = [
  {{ host = "compute-1", interface = "compute0", addresses = ["10.100.0.1/16", "fd64:100::1/64"] }},
  {{ host = "compute-2", interface = "compute0", addresses = ["10.100.0.2/16", "fd64:100::2/64"] }},
  {{ host = "gw1", interface = "compute0", addresses = ["10.100.0.91/16", "fd64:100::91/64"] }},
  {{ host = "gw2", interface = "compute0", addresses = ["10.100.0.92/16", "fd64:100::92/64"] }},
  {{ host = "gw3", interface = "compute0", addresses = ["10.100.0.93/16", "fd64:100::93/64"] }},
]
[[switch]]
name = "storage-net"
mtu = 1500
ends = [
  {{ host = "gw1", interface = "storage0", addresses = ["10.10.0.11/24", "fd64:10::11/64"] }},
  {{ host = "gw2", interface = "storage0", addresses = ["10.10.0.12/24", "fd64:10::12/64"] }},
  {{ host = "gw3", interface = "storage0", addresses = ["10.10.0.13/24", "fd64:10::13/64"] }},
  {{ host = "storage-1", interface = "storage0", addresses = ["10.10.0.201/24", "fd64:10::201/64"] }},
]
"#
    )
}

fn fabric_text(return_path: &str) -> String {
    format!(
        r#"
schema = "clearstream.fabric"
version = 1
name = "three"
[[network]]
name = "compute"
prefixes = ["10.100.0.0/16", "fd64:100::/64"]
mtu = 1500
[[network]]
name = "storage"
prefixes = ["10.10.0.0/24", "fd64:10::/64"]
mtu = 1500
[[class]]
name = "gateway"
role = "gateway"
hosts = ["gw[1-3]"]
[[class.link]]
network = "compute"
interface = "compute0"
addresses = ["10.100.0.[91-93]", "fd64:100::[91-93]"]
[[class.link]]
network = "storage"
interface = "storage0"
addresses = ["10.10.0.[11-13]", "fd64:10::[11-13]"]
[[class]]
name = "storage"
role = "storage"
hosts = ["storage-1"]
[[class.link]]
network = "storage"
interface = "storage0"
addresses = ["10.10.0.201", "fd64:10::201"]
alias-addresses = ["10.10.0.[211-213]", "fd64:10::[301-303]"]
[[class]]
name = "compute"
role = "compute"
hosts = ["compute-[1-2]"]
[[class.link]]
network = "compute"
interface = "compute0"
addresses = ["10.100.0.[1-2]", "fd64:100::[1-2]"]
[[route]]
between = ["compute", "storage"]
via = ["gateway"]
return-path = "{return_path}"
"#
    )
}

struct Three {
    lab: Lab,
    fabric: PathBuf,
    _folder: tempfile::TempDir,
}

impl Three {
    /// The lab with the plan applied on every host.
    fn new(name: &str, return_path: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lab = folder.path().join(format!("{name}.toml"));
        fs::write(&lab, lab_text(name)).unwrap();
        let fabric = folder.path().join("three.toml");
        fs::write(&fabric, fabric_text(return_path)).unwrap();
        let three = Self { lab: Lab::up(&lab, name), fabric, _folder: folder };
        HOSTS.into_iter().for_each(|host| three.apply(host));
        three
    }

    fn apply(&self, host: &str) {
        let (program, fabric) = (program().to_str().unwrap(), self.fabric.to_str().unwrap());
        let arguments = ["route", "apply", fabric, "--host", host, "--yes", "--force"];
        run(&[&["lab", "exec", &self.lab.0, host, "--", program], arguments.as_slice()].concat()).ok();
    }

    fn exec(&self, host: &str, line: &str) -> String {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        run(&[&["lab", "exec", &self.lab.0, host, "--"], arguments.as_slice()].concat()).ok().to_owned()
    }

    fn prove(&self, more: &[&str]) -> common::Run {
        let fabric = self.fabric.to_str().unwrap();
        let arguments = ["route", "prove", fabric, "--lab", &self.lab.0, "--flows", "300", "--json"];
        run(&[arguments.as_slice(), more].concat())
    }
}

fn document(text: &str) -> Value {
    let document = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"));
    assert_valid("route-proof", &document);
    document
}

/// IPv4 and IPv6, all with a reply, and none returned elsewhere.
fn assert_symmetric(document: &Value, path: &str) {
    assert_eq!(document["verdict"], "proven", "{:#}", document["findings"]);
    let routes = document["crossings"].as_array().unwrap();
    assert_eq!(routes.len(), 2);
    for route in routes {
        assert_eq!((&route["return_path"], &route["asymmetric_count"]), (&path.into(), &0.into()));
        assert!(route["judged_count"].as_u64().unwrap() >= 300);
        assert_eq!(route["judged_count"], route["answered_count"]);
    }
}

#[test]
fn root_marked_connections_of_an_applied_plan_return_as_they_came() {
    let three = Three::new("e2e-proof-mark", "connection-mark");
    let run = three.prove(&["--rate-time", "0s"]);
    assert_symmetric(&document(run.ok()), "connection-mark");
}

#[test]
fn root_addresses_of_an_applied_plan_return_as_they_came() {
    let three = Three::new("e2e-proof-alias", "alias");
    let run = three.prove(&["--rate-time", "0s"]);
    assert_symmetric(&document(run.ok()), "alias");
}

#[test]
fn root_a_proof_shows_shares_and_rates_and_fails_where_a_gateway_is_broken() {
    let three = Three::new("e2e-proof-none", "none");
    let run = three.prove(&["--rate-time", "200ms"]);
    let whole = document(run.ok());
    assert_eq!(whole["verdict"], "proven", "{:#}", whole["findings"]);
    let route = &whole["crossings"][0];
    let asymmetric = route["asymmetric_count"].as_f64().unwrap() / route["judged_count"].as_f64().unwrap();
    assert!((0.5..0.84).contains(&asymmetric), "2/3 are expected, not {asymmetric}");
    for gateway in route["gateways"].as_array().unwrap() {
        assert_eq!(
            (&gateway["path_mtu_bytes"], &gateway["reply_path_mtu_bytes"]),
            (&1500.into(), &1500.into())
        );
        assert!(gateway["rate"]["goodput_bps"].as_f64().unwrap() > 1e6, "{gateway:#}");
        assert!(gateway["forward_count"].as_u64().unwrap() > 60, "{gateway:#}");
    }
    three.exec("gw2", "sysctl -q -w net.ipv4.ip_forward=0");
    let run =
        three.prove(&["--rate-time", "0s", "--timeout", "1500ms", "--no-path-mtu", "--host", "compute-2"]);
    assert_eq!(run.code(), 8, "{}", run.stderr);
    let broken = document(&run.stdout);
    let findings = broken["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        assert_eq!(
            (&finding["id"], &finding["host"]),
            (&"not-forwarding".into(), &"gw2".into()),
            "{finding:#}"
        );
        assert!(finding["correction"].as_str().unwrap().contains("net.ipv4.ip_forward = 1 on gw2"));
    }
}

#[test]
fn a_proof_without_a_fabric_host_or_lab_is_refused() {
    run(&["route", "prove", "no-such-fabric"]).refused(9, &["no-such-fabric"]);
    run(&["route", "prove", "gateways-6", "--host", "nobody", "--lab", "x"]).refused(9, &["nobody"]);
    run(&["route", "prove", "gateways-6", "--lab", "not-running"]).refused(9, &["not-running"]);
}
