//! A study of gateways with the whole binary: what it is refused for, and a watch that ends. `tests/accept/gateways.rs`
//! has the effect of a watch.

pub(crate) mod scene;

use std::{fs, time::Duration};

use self::scene::{STUDY, lab, trials};
use crate::common::{children, clearstream, eventually, finish, run, signal};

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
