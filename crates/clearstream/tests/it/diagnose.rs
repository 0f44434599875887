//! `clearstream diagnose` end to end: limits that a busy machine makes too, records, interruption.
#![allow(clippy::print_stdout, reason = "what this machine cannot make is printed")]

use std::{fs, path::Path, time::Duration};

use serde_json::Value;

use crate::{
    common::{clearstream, finish, run, signal},
    limits::assert_named_first,
};

#[test]
fn root_a_receive_buffer_that_is_too_small_is_named_first() {
    assert_named_first("rcvbuf");
}

#[test]
fn root_pacing_is_named_first() {
    assert_named_first("pacing");
}

#[test]
fn root_a_hop_that_drops_large_packets_is_named_first() {
    assert_named_first("black-hole");
}

/// A control group that may use half a core, made by hand; the quota is named,
/// and with it the group.
#[test]
fn root_a_quota_of_a_control_group_is_named() {
    let root = Path::new("/sys/fs/cgroup");
    let unified = root.join("cgroup.controllers").exists();
    let name = format!("clearstream-quota-{}", std::process::id());
    let group = if unified { root.join(&name) } else { root.join("cpu").join(&name) };
    if fs::create_dir(&group).is_err() {
        println!("no control group can be made here");
        return;
    }
    let set = if unified {
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        fs::write(group.join("cpu.max"), "50000 100000")
    } else {
        fs::write(group.join("cpu.cfs_quota_us"), "50000")
    };
    if set.is_ok() {
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\"/cgroup.procs; exec \"$@\""])
            .arg(&group)
            .arg(env!("CARGO_BIN_EXE_clearstream"))
            .args(["diagnose", "localhost", "--json", "--budget", "5s", "-t", "2s", "-O", "300ms"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let document = finish(command.spawn().unwrap(), Duration::from_secs(60)).json();
        let found = &document["primary"]["found"];
        assert_eq!(found["cause"]["kind"], "cpu-quota", "{:#}", document["primary"]);
        assert_eq!(found["cause"]["quota_millicores"], 500);
        assert!(found["cause"]["group"].as_str().unwrap().ends_with(&name));
        assert_eq!(found["fault"], true);
    } else {
        println!("this machine has no CPU quotas");
    }
    fs::remove_dir(&group).unwrap();
}

/// Loopback as it is: whatever the machine does meanwhile, no program and no
/// path is at fault.
#[test]
fn loopback_accuses_nobody() {
    let document =
        run(&["diagnose", "localhost", "--json", "--budget", "5s", "-t", "2s", "-O", "500ms"]).json();
    let fault = document["primary"]["found"]["fault"].as_bool();
    assert_ne!(fault, Some(true), "{:#}", document["primary"]);
    let stages = document["stages"].as_array().unwrap();
    assert!(stages.iter().filter(|stage| stage["limiting"] == true).count() <= 1, "{stages:#?}");
}

#[test]
fn a_record_is_diagnosed_without_a_host() {
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/records/clearstream-40ge");
    let document = run(&["diagnose", "--from", record, "--json"]).json();
    assert_eq!(document["schema"], "clearstream.diagnosis");
    assert!(document["observed_bps"].as_f64().unwrap() > 0.0);
    assert!(document["stages"].as_array().unwrap().len() >= 12);
    let page = run(&["diagnose", "--from", record]);
    assert!(page.ok().contains("what each stage can carry"), "{}", page.stdout);
    run(&["diagnose", "--from", record, "--trial", "999999"]).refused(9, &["999999"]);
    run(&["diagnose", "--from", "/nonexistent/run"]).refused(9, &["/nonexistent/run"]);
    run(&["diagnose", "localhost", "--protocol", "udp"]).refused(2, &["TCP"]);
    run(&["diagnose", "localhost", "-t", "60s"]).refused(2, &["--budget"]);
}

#[test]
fn an_interrupted_diagnosis_explains_what_there_is() {
    let child = clearstream(&["diagnose", "localhost", "--json"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(6));
    signal(child.id(), "INT");
    let ended = finish(child, Duration::from_secs(20));
    assert_eq!(ended.code(), 130, "{}", ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["schema"], "clearstream.diagnosis");
    assert_eq!(document["notices"][0]["id"], "interrupted");
}
