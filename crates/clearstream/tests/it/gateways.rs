//! A study of gateways in a lab, with the whole binary: a gateway fails, with
//! and without `route watch`.

use std::{fs, path::Path, time::Duration};

use crate::common::{Lab, assert_valid, children, clearstream, eventually, finish, run, signal};
use serde_json::Value;

/// A gateway is out after `down-count` rounds and the probe timeout, 3 x 20 ms + 60 ms
/// (`WatchSettings::default`), and a flow over it gets a response at TCP's next
/// retransmission: 0.2, 0.6, 1.4, 3.0 or 6.2 s after the loss (RFC 6298). A flow is
/// stuck without a response in the last second. 9 s leave the retransmission at 6.2 s in
/// the trial, so that a watch on a busy machine may take 50 times that bound.
const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "e2e-gateways"
title = "a study of a test"
[[experiment]]
name = "failover"
title = "a gateway stops forwarding"
workload = "gateways"
figure = "gateways"
[experiment.gateways]
flows = 36
settle = "1s"
duration = "9s"
failure = "not-forwarding"
gateway = "gw5"
return-path = "none"
[experiment.factors]
watch = [false, true]
"#;

/// The built-in lab under a name of its own.
fn lab(folder: &Path, name: &str) -> Lab {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs/gateways-6.toml"));
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text.unwrap().replace("name = \"gateways-6\"", &format!("name = \"{name}\""))).unwrap();
    Lab::up(&path, name)
}

fn trials(runs: &Path) -> Vec<Value> {
    let record = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(record.join("trials.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn root_a_failing_gateway_is_measured_with_and_without_watch_and_the_lab_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = lab(folder.path(), "e2e-gateways");
    let (study, runs) = (folder.path().join("study.toml"), folder.path().join("runs"));
    fs::write(&study, STUDY).unwrap();
    let inside = |host: &str, line: &str| {
        let arguments = ["lab", "exec", "e2e-gateways", host, "--"].into_iter().chain(line.split(' '));
        run(&arguments.collect::<Vec<&str>>()).ok().to_owned()
    };
    let before = ["ip nexthop", "ip route", "ip rule", "sysctl -n net.ipv4.fib_multipath_hash_policy"];
    let before =
        before.map(|line| ["compute-1", "gw5", "storage-1"].map(|host| (host, line, inside(host, line))));
    let arguments = ["study", "run", study.to_str().unwrap(), "--lab", "e2e-gateways", "--runs"];
    let arguments: Vec<&str> = arguments.into_iter().chain([runs.to_str().unwrap()]).collect();
    let child = clearstream(&arguments).spawn().unwrap();
    finish(child, Duration::from_secs(180)).ok();
    for trial in trials(&runs) {
        assert_valid("trial", &trial);
        let summary = &trial["outcome"]["measured"]["detail"]["document"];
        assert_eq!(
            (&summary["flow_count"], &summary["unanswered_count"]),
            (&36.into(), &0.into()),
            "{trial}"
        );
        let carried: u64 = summary["gateways"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["forward_count"].as_u64().unwrap())
            .sum();
        assert_eq!(carried, 36, "every flow is seen at one gateway");
        // Seeds differ: five of six return elsewhere on average, and never none of 36.
        assert!(summary["other_return_count"].as_u64().unwrap() > 10, "{summary}");
        let effect = &summary["failure"];
        assert_eq!(effect["fault"], serde_json::json!({"host": "gw5", "kind": "no-forwarding"}));
        let (hit, stuck) = (effect["hit_count"].as_u64().unwrap(), effect["stuck_count"].as_u64().unwrap());
        assert!(hit > 0, "{effect}");
        assert_eq!(stuck, if trial["factors"]["watch"] == true { 0 } else { hit }, "{effect}");
        assert_eq!(effect["spared_stuck_count"], 0, "{effect}");
    }
    for (host, line, text) in before.into_iter().flatten() {
        assert_eq!(inside(host, line), text, "{host}: {line}");
    }
    assert!(run(&["lab", "fault", "e2e-gateways", "--clear"]).ok().contains("no fault to clear"));
}

/// What is measured is gateways that are watched: without the watch it is something else.
#[test]
fn root_a_trial_whose_watch_ends_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = lab(folder.path(), "e2e-unwatched");
    let (study, runs) = (folder.path().join("study.toml"), folder.path().join("runs"));
    fs::write(&study, STUDY.replace("[false, true]", "[true]")).unwrap();
    let arguments = ["study", "run", study.to_str().unwrap(), "--lab", "e2e-unwatched", "--runs"];
    let child = clearstream(&[&arguments[..], &[runs.to_str().unwrap()]].concat()).spawn().unwrap();
    let watches = || -> Vec<u32> {
        let is_watch = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("\0route\0watch\0")
        };
        children(child.id()).into_iter().filter(is_watch).collect()
    };
    eventually(Duration::from_secs(60), "the watches run", || !watches().is_empty());
    signal(watches()[0], "KILL");
    let ended = finish(child, Duration::from_secs(180));
    assert_eq!(ended.code(), 8, "{}", ended.stderr);
    let trial = trials(&runs).remove(0);
    let failed = trial["outcome"]["failed"]["message"].as_str().unwrap_or_else(|| panic!("{trial}"));
    assert!(failed.contains("route watch ended before the end of the experiment on "), "{failed}");
}

#[test]
fn gateways_fail_in_a_lab_only() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let arguments = ["study", "run", "native-client", "--to", "localhost", "--runs", runs.to_str().unwrap()];
    run(&arguments).refused(2, &["--lab gateways-6"]);
    assert!(!runs.exists());
}
