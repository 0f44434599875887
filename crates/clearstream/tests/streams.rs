//! `--json-stream` of verbs that need a privilege or change a host, in labs:
//! every line keeps to its schema, changes are events, and the last line is the
//! document of `--json`. `tests/documents.rs` does the same for the others.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{fs, path::Path, process::Stdio, time::Duration};

use clearstream_testkit::lab::two_hosts;
use common::{Lab, Run, assert_published, clearstream, finish, program, run};
use serde_json::Value;

/// The events of a verb that ended well, its document last.
fn events(run: &Run, verb: &str, document: &str) -> Vec<Value> {
    let events: Vec<Value> = run.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        assert_published(event);
        assert_eq!((&event["schema"], &event["workload"]), (&"clearstream.event".into(), &verb.into()));
    }
    let (last, before) = events.split_last().unwrap();
    assert_eq!(last["kind"], "result", "{last}");
    assert_published(&last["payload"]);
    if !last["payload"].is_array() {
        assert_eq!(last["payload"]["schema"], format!("clearstream.{document}"), "{verb}");
    }
    assert!(before.iter().all(|event| !matches!(event["kind"].as_str(), Some("result" | "error"))));
    events
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["kind"] == kind).count()
}

/// Runs the program on the lab's host `here`, with journals of its own.
fn inside(lab: &Lab, journals: &Path, words: &[&str]) -> Run {
    let program = program().to_str().unwrap();
    let all = [&["lab", "exec", &lab.0, "here", "--", program], words, &["--json-stream"]].concat();
    let mut command = clearstream(&all);
    command.env("CLEARSTREAM_PLANS", journals).env("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 22");
    command.stdin(Stdio::null());
    finish(command.spawn().unwrap(), Duration::from_secs(60))
}

#[test]
fn root_a_lab_streams_its_start_and_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("streams-{}", std::process::id());
    let file = folder.path().join("lab.toml");
    fs::write(&file, two_hosts(&name, "mtu = 1500")).unwrap();
    let stream = |words: &[&str]| run(&[words, &["--json-stream"]].concat());

    let started = events(&stream(&["lab", "up", file.to_str().unwrap()]), "lab up", "lab-state");
    let lab = Lab(name.clone());
    assert_eq!((&started[0]["kind"], &started[0]["payload"]["name"]), (&"state".into(), &"starting".into()));
    let shown = events(&stream(&["lab", "show", &name]), "lab show", "lab-state");
    assert_eq!(shown.last().unwrap()["payload"]["file"]["name"], name.as_str());
    events(&stream(&["lab", "down", &name]), "lab down", "lab-down");
    assert!(!run(&["lab", "list", "--json"]).ok().contains(&name));
    drop(lab);
}

#[test]
fn root_each_setting_that_a_plan_changes_is_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), &format!("changes-{}", std::process::id()));
    let plan = folder.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    let journals = folder.path().join("journals");

    events(
        &inside(&lab, &journals, &["tune", "plan", "--rate", "40Gb/s", "--rtt", "17ms", "--out", plan]),
        "tune plan",
        "plan",
    );
    let applied =
        events(&inside(&lab, &journals, &["tune", "apply", plan, "--yes"]), "tune apply", "applied");
    let changed = applied.last().unwrap()["payload"]["changed_count"].as_u64().unwrap();
    let settings: Vec<&str> = applied
        .iter()
        .filter(|event| event["kind"] == "change" && event["payload"]["action"] == "set")
        .map(|event| event["payload"]["setting"].as_str().unwrap())
        .collect();
    assert!(changed >= 2 && settings.len() as u64 >= changed, "{changed}: {settings:?}");
    assert!(settings.iter().any(|setting| setting.contains("tcp_wmem")), "{settings:?}");

    let verified = events(&inside(&lab, &journals, &["tune", "verify"]), "tune verify", "verification");
    assert_eq!(count(&verified, "change"), 0);
    let reverted = events(&inside(&lab, &journals, &["tune", "revert"]), "tune revert", "reverted");
    assert_eq!(reverted[0]["payload"]["name"], "reverting", "{}", reverted[0]);
    events(&inside(&lab, &journals, &["tune", "recover"]), "tune recover", "recovered");
}

#[test]
fn root_improve_streams_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), &format!("improved-{}", std::process::id()));
    let mut command = clearstream(&["improve", "--lab", &lab.0, "--yes", "--budget", "8s", "--json-stream"]);
    command.args(["-t", "500ms", "-O", "200ms", "--diagnosis-budget", "4s"]);
    command.env("CLEARSTREAM_PLANS", folder.path().join("plans"));
    let ended = finish(command.spawn().unwrap(), Duration::from_secs(120));
    let events = events(&ended, "improve", "improvement");
    assert!(count(&events, "progress") > 0, "{events:#?}");
    // What was kept or restored is in the document and among the events.
    let steps = events.last().unwrap()["payload"]["steps"].as_array().unwrap().len();
    assert_eq!(count(&events, "change"), steps);
}
