//! `study run --before --after` and `study compare` with the whole binary.

use crate::common;
use std::{fs, path::PathBuf, time::Duration};

use crate::common::{assert_valid, clearstream, eventually, finish, run, signal};

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "pairs"
title = "pairs of a test"
[flow]
duration = "300ms"
warm-up = "100ms"
interval = "100ms"
pacing = "100Mb/s"
[[experiment]]
name = "flows"
title = "one flow"
workload = "flow"
figure = "throughput"
repetitions = 2
"#;

/// Runs the study between two commands that write their names into a file.
fn between(folder: &tempfile::TempDir, after: &str) -> (common::Run, PathBuf) {
    let study = folder.path().join("pairs.toml");
    fs::write(&study, STUDY).unwrap();
    let log = folder.path().join("log");
    let runs = folder.path().join("runs");
    let before = format!("echo before >> {}", log.display());
    let after = format!("echo after >> {}; {after}", log.display());
    let arguments =
        ["study", "run", study.to_str().unwrap(), "--to", "localhost", "--runs", runs.to_str().unwrap()];
    let ended = run(&[arguments.as_slice(), &["--before", &before, "--after", &after]].concat());
    let made = fs::read_dir(&runs).unwrap().flatten().next().unwrap().path();
    (ended, made)
}

#[test]
fn two_commands_are_measured_in_pairs_and_the_first_is_left_in_effect() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, made) = between(&folder, "true");
    let text = ended.ok();
    assert!(text.contains("(2 pairs, range"), "{text}");
    let prose = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(prose.contains("2 pairs of trials have a probability by chance of 0.5 at least"), "{text}");
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let runs: Vec<&str> = log.lines().collect();
    assert_eq!(runs.last(), Some(&"before"), "restored: {runs:?}");
    assert!(
        runs.contains(&"after") && runs.windows(2).all(|pair| pair[0] != pair[1]),
        "alternately: {runs:?}"
    );
    let document = serde_json::from_str(&fs::read_to_string(made.join("run.json")).unwrap()).unwrap();
    assert_valid("run", &document);

    let made = made.to_str().unwrap();
    let compared = run(&["study", "compare", made, "treatment=before", "treatment=after"]);
    for line in compared.ok().lines() {
        assert!(line.chars().count() <= 80 || line.contains(made), "{line}");
    }
    assert!(
        compared.stdout.contains("* range of fewer than six pairs: proves nothing"),
        "{}",
        compared.stdout
    );
    run(&["study", "compare", made, "treatment=before", "treatment=later"])
        .refused(9, &["has no treatment=later; it has treatment="]);
    run(&["study", "compare", made, "treatment=before"]).refused(2, &["write two"]);
    // The same run on both sides: nothing is claimed, and the notice names what would help.
    let same = run(&["study", "compare", made, made, "--json"]).json();
    assert_eq!(same["notices"][0]["id"], "one-run-each");
    assert!(same["cells"].as_array().unwrap().iter().all(|cell| cell["verdict"] == "unknown"), "{same}");
}

/// The operator's terminal has gone: what was measured is kept, and the rest runs
/// later.
#[test]
fn a_hangup_ends_a_study_that_is_resumed_later() {
    let folder = tempfile::tempdir().unwrap();
    let (study, runs) = (folder.path().join("hangup.toml"), folder.path().join("runs"));
    fs::write(&study, STUDY.replace("repetitions = 2", "repetitions = 8")).unwrap();
    let arguments = ["study", "run", study.to_str().unwrap(), "--to", "localhost"];
    let begin = [arguments.as_slice(), &["--runs", runs.to_str().unwrap()]].concat();
    let child = clearstream(&begin).spawn().unwrap();
    let record = || Some(fs::read_dir(&runs).ok()?.flatten().next()?.path());
    let trials = || fs::read_to_string(record()?.join("trials.jsonl")).ok();
    eventually(Duration::from_secs(30), "a trial is recorded", || {
        trials().is_some_and(|trials| trials.lines().count() > 0)
    });
    signal(child.id(), "HUP");
    let ended = finish(child, Duration::from_secs(30));
    assert_eq!(ended.code(), 130, "{}", ended.stderr);
    assert!(ended.stderr.contains("--resume"), "{}", ended.stderr);
    let before = trials().unwrap();
    let made = record().unwrap();
    let resume = [arguments.as_slice(), &["--resume", made.to_str().unwrap()]].concat();
    run(&resume).ok();
    let after = trials().unwrap();
    // What was cut short is repeated.
    let is_whole = |line: &&str| line.contains("\"measured\":{\"complete\":true");
    let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["trial"].as_u64();
    let kept = before.lines().filter(is_whole).count();
    assert!((1..8).contains(&kept), "it ended before all was measured: {kept}");
    assert!(before.lines().filter(is_whole).all(|line| after.contains(line)), "what was measured is kept");
    let mut numbers: Vec<u64> = after.lines().filter(is_whole).filter_map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7], "each once");
}

#[test]
fn a_command_that_fails_fails_its_trials_and_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, made) = between(&folder, "echo no such key >&2; exit 3");
    assert_eq!(ended.code(), 8, "{}", ended.stderr);
    let trials = fs::read_to_string(made.join("trials.jsonl")).unwrap();
    assert_eq!(trials.matches("exit status: 3: no such key").count(), 2, "{trials}");
    assert_eq!(
        trials.matches("\"measured\":{\"complete\":true").count(),
        2,
        "those of the other command ran: {trials}"
    );
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log.lines().last(), Some("before"));
}
