//! `clearstream place` and `flow --steer` as a person runs them.

use crate::common;
use std::fs;

use crate::common::{Lab, assert_valid, run};
use serde_json::Value;

const SERVER_48: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/magny-cours-igb.tar.gz");
/// "Verifying the RSS hash calculation", Microsoft.
const KEY: &str = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

#[test]
fn ranks_the_cores_of_a_captured_host() {
    let ranking = run(&["place", "rank", "eth1", "--from", SERVER_48, "--json"]).json();
    assert_valid("ranking", &ranking);
    let readers = &ranking["roles"][1];
    assert_eq!(readers["role"], "reader");
    assert_eq!(readers["cores"][0]["node"], 5, "the node of the interface");
    assert_ne!(readers["cores"][0]["core"], ranking["interrupt_core"], "not the interrupt core itself");
    let text = run(&["place", "rank", "eth1", "--from", SERVER_48, "--role", "reader"]).stdout;
    assert!(text.contains("shared cache") && !text.contains("Writer"), "{text}");
    run(&["place", "rank", "eth7", "--from", SERVER_48]).refused(9, &["eth7", "eth1"]);
    run(&["place", "rank", "eth1", "--from", SERVER_48, "--interrupt-core", "48"]).refused(2, &["48"]);
}

#[test]
fn plans_a_captured_host_and_writes_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let arguments = ["place", "plan", "eth1", "--flows", "3", "--from", SERVER_48, "--json", "--out"];
    let placement = run(&[&arguments[..], &[path.to_str().unwrap()]].concat()).json();
    assert_valid("placement", &placement);
    let written: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(written, placement["plan"]);
    assert_eq!(written["schema"], "clearstream.plan");
    let steps = written["steps"].as_array().unwrap();
    assert_eq!(steps[0]["setting"]["file"], "proc/irq/81/smp_affinity_list");
    let text = run(&["place", "plan", "eth1", "--flows", "3", "--from", SERVER_48]).stdout;
    assert!(text.contains("--banirq=81") && text.contains("30-35 -> 30"), "{text}");
    let text = run(&["place", "plan", "eth0", "--flows", "3", "--from", SERVER_48]).stdout;
    assert!(text.contains("RPS spreads packets in software"), "{text}");
}

/// The measured first ports of each of 8 queues.
#[test]
fn finds_ports_for_a_key_that_was_typed() {
    let base = ["place", "ports", "--source", "192.0.2.1", "--address", "198.51.100.2", "--key", KEY];
    let ports = run(&[&base[..], &["--queue-count", "8", "--flows", "8", "--json"]].concat()).json();
    assert_valid("ports", &ports);
    for (flow, port) in [32_773, 32_772, 32_781, 32_780, 32_769, 32_768, 32_777, 32_776].iter().enumerate() {
        let found = &ports["flows"][flow];
        // A socket of this machine may hold the first one.
        assert!(found["source_port"].as_u64().unwrap() >= *port, "{found}");
        assert_eq!(found["receive_queue"].as_u64().unwrap(), flow as u64);
    }
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("seen");
    // Sockets of other tests, in TIME_WAIT for a minute, hold some of them.
    let members: String = (40_001..41_000).map(|port| format!("{port} 1\n")).collect();
    fs::write(&table, format!("40000 0\n{members}")).unwrap();
    let table = table.to_str().unwrap();
    let narrow = [&base[..], &["--queue-count", "2", "--path-table", table, "--members"]].concat();
    let ports = run(&[&narrow[..], &["1", "--json"]].concat()).json();
    assert!((40_001..41_000).contains(&ports["flows"][0]["source_port"].as_u64().unwrap()), "{ports}");
    run(&[&narrow[..], &["2"]].concat()).refused(2, &["path member 2", "ip_local_port_range"]);
    fs::write(table, "40000\n").unwrap();
    run(&[&narrow[..], &["1"]].concat()).refused(2, &["line 1", "40000 1"]);
    run(&[&base[..6], &["--key", "6d5a", "--queue-count", "8"]].concat()).refused(5, &["2 bytes"]);
}

#[test]
fn without_a_key_the_missing_capability_is_named() {
    let without_address = run(&[
        "place",
        "ports",
        "--from-receiver",
        SERVER_48,
        "--interface",
        "eth1",
        "--source",
        "192.0.2.1",
    ]);
    without_address.refused(2, &["--address"]);
    let base =
        ["place", "ports", "--from-receiver", SERVER_48, "--source", "192.0.2.1", "--address", "192.0.2.2"];
    run(&[&base[..], &["--interface", "eth1"]].concat()).refused(5, &["eth1 (igb)", "hash key"]);
    run(&base).refused(2, &["which interface", "eth1"]);
}

/// Loopback has no NIC: the flow runs, and reports that it was not steered.
#[test]
fn a_flow_that_cannot_be_steered_runs_all_the_same() {
    let flow =
        run(&["flow", "localhost", "--steer", "-t", "300ms", "-O", "0s", "-i", "100ms", "--json"]).json();
    let notices = flow["summary"]["notices"].as_array().unwrap();
    let notice = notices.iter().find(|notice| notice["id"] == "steer-unavailable").unwrap();
    assert!(notice["message"].as_str().unwrap().contains("hash key"), "{notice}");
    assert_eq!(flow["summary"]["requested"]["steer"], true);
    run(&["flow", "localhost", "--steer", "--direction", "reverse"]).refused(2, &["--direction forward"]);
    run(&["flow", "localhost", "--steer", "--source-port", "40000"]).refused_by_usage("--steer");
}

#[test]
fn flows_take_the_source_ports_of_a_list() {
    let free = clearstream_testkit::listening::free_port;
    let list = [free(), free()];
    let text = format!("{},{}", list[0], list[1]);
    let arguments = ["flow", "localhost", "-P", "2", "-t", "200ms", "-O", "0s", "-i", "100ms", "--json"];
    let flow = run(&[&arguments[..], &["--source-ports", &text]].concat()).json();
    for (at, port) in list.iter().enumerate() {
        let local = flow["summary"]["client_settings"]["flows"][at]["local"].as_str().unwrap();
        assert!(local.ends_with(&format!(":{port}")), "{local} for {port}");
    }
    run(&[&arguments[..], &["--source-ports", "40000"]].concat()).refused(2, &["1 ports for 2 flows"]);
}

/// A plan for a veth, written by hand from its steps, moves the softirq of a
/// flow away from the sender's core, where a veth leaves it, to the planned one.
#[test]
fn root_a_placement_in_a_lab_moves_the_softirq_to_the_planned_core() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("e2e-place.toml");
    let host = |name: &str, address: &str| {
        format!("[[link.ends]]\nhost = \"{name}\"\ninterface = \"eth0\"\naddresses = [\"{address}/24\"]\n")
    };
    let lab = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"e2e-place\"\ntitle = \"placement\"\n\
         [[host]]\nname = \"here\"\n[[host]]\nname = \"there\"\n[[link]]\nmtu = 9000\n{}{}",
        host("here", "10.0.0.1"),
        host("there", "10.0.0.2")
    );
    fs::write(&file, lab).unwrap();
    let _lab = Lab::up(&file, "e2e-place");
    let program = common::program().to_str().unwrap();
    let inside =
        |arguments: &[&str]| run(&[&["lab", "exec", "e2e-place", "there", "--"], arguments].concat());
    let placement = inside(&[program, "place", "plan", "eth0", "--json"]).json();
    assert_eq!(placement["method"], "software", "a veth has no interrupts");
    let planned = placement["queues"][0]["cores"][0].as_u64().unwrap();
    let reader = placement["flows"][0]["reader_core"].as_u64().unwrap();
    assert_ne!(planned, reader, "this test needs two cores");
    // The sender on the reader's core: without RPS packets would be processed there.
    let core = reader.to_string();
    let incoming = || {
        let arguments = ["flow", "--lab", "e2e-place", "-t", "600ms", "-O", "200ms", "-i", "200ms", "--json"];
        let cores = ["--sender-cores", &core, "--receiver-cores", &core];
        let flow = run(&[&arguments[..], &cores].concat()).json();
        let intervals = flow["intervals"].as_array().unwrap().clone();
        let last = &intervals.last().unwrap()["server"]["flows"][0];
        last["incoming_core"].as_u64().unwrap()
    };
    assert_eq!(incoming(), reader, "before");
    for step in placement["plan"]["steps"].as_array().unwrap() {
        let path = format!("/{}", step["setting"]["file"].as_str().unwrap());
        let write = format!("echo {} > {path}", step["desired"].as_str().unwrap());
        inside(&["sh", "-c", &write]).ok();
    }
    assert_eq!(incoming(), planned, "after");
    let second = inside(&[program, "place", "plan", "eth0", "--json"]).json();
    assert_eq!(second["plan"]["steps"], Value::Array(vec![]), "everything is in its place");
}
