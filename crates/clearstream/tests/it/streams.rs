//! `--json-stream` of verbs that need a privilege or change a host, in labs:
//! every line keeps to its schema, changes are events, and the last line is the
//! document of `--json`. `tests/documents.rs` does the same for the others.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, Run, assert_published, clearstream, finish, program, run};
use crate::watched::Fabric;
use clearstream_testkit::lab::two_hosts;
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
    assert_eq!(last["payload"]["schema"], format!("clearstream.{document}"), "{verb}");
    assert!(before.iter().all(|event| !matches!(event["kind"].as_str(), Some("result" | "error"))));
    events
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["kind"] == kind).count()
}

/// Runs the program on the lab's host `here`, with journals of its own.
fn inside(lab: &Lab, journals: &Path, arguments: &[&str]) -> Run {
    let program = program().to_str().unwrap();
    let all = [&["lab", "exec", &lab.0, "here", "--", program], arguments, &["--json-stream"]].concat();
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
    let stream = |arguments: &[&str]| run(&[arguments, &["--json-stream"]].concat());

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
        events(&inside(&lab, &journals, &["plan", "apply", plan, "--yes"]), "plan apply", "applied");
    let changed = applied.last().unwrap()["payload"]["changed_count"].as_u64().unwrap();
    let settings: Vec<&str> = applied
        .iter()
        .filter(|event| event["kind"] == "change" && event["payload"]["action"] == "set")
        .map(|event| event["payload"]["setting"].as_str().unwrap())
        .collect();
    assert!(changed >= 2 && settings.len() as u64 >= changed, "{changed}: {settings:?}");
    assert!(settings.iter().any(|setting| setting.contains("tcp_wmem")), "{settings:?}");

    let verified = events(&inside(&lab, &journals, &["plan", "verify"]), "plan verify", "verification");
    assert_eq!(count(&verified, "change"), 0);
    let reverted = events(&inside(&lab, &journals, &["plan", "revert"]), "plan revert", "reverted");
    assert_eq!(reverted[0]["payload"]["name"], "reverting", "{}", reverted[0]);
    events(&inside(&lab, &journals, &["plan", "recover"]), "plan recover", "recovered");
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

#[test]
fn root_routes_are_verified_and_gateways_drained_as_documents() {
    let fabric = Fabric::up("e2e-documents", 2, "return-path = \"none\"");
    fabric.apply();
    let verified = fabric.route("c1", &["verify", "--json"]).json();
    assert_eq!(verified["schema"], "clearstream.verification");
    let checks = verified["checks"].as_array().unwrap();
    assert!(!checks.is_empty() && checks.iter().all(|check| check["holds"] == true), "{verified}");
    events(&fabric.route("c1", &["verify", "--json-stream"]), "route verify", "verification");
    // A setting that another program removed is a failed check, and the document is complete.
    fabric.exec("c1", "sysctl -q -w net.ipv4.fib_multipath_hash_policy=0");
    let differs = fabric.route("c1", &["verify", "--json"]);
    assert_eq!(differs.code(), 8, "{}", differs.stderr);
    let document: Value = serde_json::from_str(&differs.stdout).unwrap();
    assert_published(&document);
    assert!(document["checks"].as_array().unwrap().iter().any(|check| check["holds"] == false));

    let _watch = fabric.watch("c1", &[]);
    let drained = |document: &Value| document["ways"][0]["gateways"][0]["drained"].clone();
    for verb in ["drain", "undrain"] {
        let stream = events(
            &fabric.route("c1", &[verb, "gw1", "--json-stream"]),
            &format!("route {verb}"),
            "watch-status",
        );
        let document = fabric.route("c1", &[verb, "gw1", "--json"]).json();
        assert_eq!(document["schema"], "clearstream.watch-status");
        assert_eq!(drained(&document), verb == "drain", "{document}");
        assert_eq!(drained(&stream.last().unwrap()["payload"]), verb == "drain");
        if verb == "drain" {
            assert_eq!(fabric.used("c1"), ["10.100.0.12"]);
        }
    }
    let unknown = fabric.route("c1", &["drain", "gw9", "--json"]);
    let document: Value = serde_json::from_str(&unknown.stdout).unwrap();
    assert_published(&document);
    assert_eq!(document["schema"], "clearstream.error");
}

/// The program beside a loader of the test's own, so that the kernel's list, which all hosts of
/// this machine share, stays as it is: `extras/bpf/tests/it/live.rs` loads in earnest.
fn congestion_control(folder: &Path, loader: Option<&str>, arguments: &[&str]) -> Run {
    let alone = folder.join("clearstream");
    if !alone.exists() {
        fs::copy(program(), &alone).unwrap();
    }
    let beside = folder.join("clearstream-bpf");
    let _ = fs::remove_file(&beside);
    if let Some(script) = loader {
        fs::write(&beside, script).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(alone);
    command.arg("cc").args(arguments).env("PATH", folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap(), Duration::from_secs(60))
}

#[test]
fn loading_a_congestion_control_is_a_document_and_so_is_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    let cc = |loader, arguments: &[&str]| congestion_control(folder.path(), loader, arguments);
    for action in ["load", "unload"] {
        let verb = format!("cc {action}");
        let loader = Some("#!/bin/sh\n[ \"$2\" = htcp ]\n");
        let document = cc(loader, &[action, "htcp", "--json"]).json();
        assert_eq!(document["schema"], "clearstream.congestion-control-change", "{verb}");
        assert_eq!(document["algorithm"], "htcp", "{verb}");
        events(&cc(loader, &[action, "htcp", "--json-stream"]), &verb, "congestion-control-change");
        let failed =
            cc(Some("#!/bin/sh\necho refused by the kernel >&2; exit 5\n"), &["unload", "htcp", "--json"]);
        failed.refused(5, &["refused by the kernel"]);
        // Nothing can be loaded or unloaded without its loader, or of another name.
        for (arguments, code) in [(["unload", "htcp", "--json"], 5), ([action, "nonesuch", "--json"], 9)] {
            let failed = cc(None, &arguments);
            failed.refused(code, &[]);
            let document: Value = serde_json::from_str(&failed.stdout).unwrap();
            assert_published(&document);
            assert_eq!(
                (&document["schema"], &document["exit_code"]),
                (&"clearstream.error".into(), &code.into())
            );
        }
    }
}
