//! Runs of studies with the whole binary: kills, slips, a full disk, a lab that is changed and put back.

use crate::common;
use std::{fs, time::Duration};

use crate::common::{Lab, alive, assert_valid, children, clearstream, eventually, finish, run};
use clearstream_testkit::lab::two_hosts;

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "e2e"
title = "a study of a test"
[flow]
duration = "600ms"
warm-up = "200ms"
interval = "200ms"
pacing = "100Mb/s"
[[experiment]]
name = "flows"
title = "one and two flows"
workload = "flow"
figure = "throughput"
repetitions = 3
[experiment.factors]
flows = [1, 2]
"#;

#[test]
fn root_a_study_changes_the_lab_and_puts_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let lab = folder.path().join("e2e-mtu.toml");
    fs::write(&lab, two_hosts("e2e-mtu", "mtu = 9000\n")).unwrap();
    let _lab = Lab::up(&lab, "e2e-mtu");
    let study = folder.path().join("mtu.toml");
    let text =
        STUDY.replace("flows = [1, 2]", "mtu = [1500, 9000]").replace("repetitions = 3", "repetitions = 1");
    fs::write(&study, text).unwrap();
    let runs = folder.path().join("runs");
    run(&["study", "run", study.to_str().unwrap(), "--lab", "e2e-mtu", "--runs", runs.to_str().unwrap()])
        .ok();
    let record = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    for line in fs::read_to_string(record.join("trials.jsonl")).unwrap().lines() {
        let trial: serde_json::Value = serde_json::from_str(line).unwrap();
        let segment =
            trial["outcome"]["measured"]["detail"]["document"]["client_settings"]["flows"][0]["segment_bytes"].as_u64().unwrap();
        // IPv4 and TCP headers with time stamps take 52 bytes (RFC 791, RFC 9293, RFC 7323).
        assert_eq!(segment + 52, trial["factors"]["mtu"].as_u64().unwrap(), "{trial}");
    }
    let mtu = run(&["lab", "exec", "e2e-mtu", "there", "--", "cat", "/sys/class/net/eth0/mtu"]);
    assert_eq!(mtu.ok().trim(), "9000");
}

#[test]
fn a_killed_study_is_resumed_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("e2e.toml");
    fs::write(&study, STUDY).unwrap();
    let runs = folder.path().join("runs");
    let (study, runs_text) = (study.to_str().unwrap(), runs.to_str().unwrap());
    let arguments = ["study", "run", study, "--to", "localhost", "--runs", runs_text];

    let mut first = clearstream(&arguments).spawn().unwrap();
    let trials = || {
        let run = fs::read_dir(&runs).ok()?.flatten().next()?.path();
        Some((fs::read_to_string(run.join("trials.jsonl")).ok()?.lines().count(), run))
    };
    eventually(Duration::from_secs(30), "two trials are recorded", || {
        trials().is_some_and(|(count, _)| count >= 2)
    });
    let agents = children(first.id());
    first.kill().unwrap();
    first.wait().unwrap();
    eventually(Duration::from_secs(10), "the agents end", || agents.iter().all(|agent| !alive(*agent)));

    let (_, run_folder) = trials().unwrap();
    let before = fs::read_to_string(run_folder.join("trials.jsonl")).unwrap();
    let resume = ["--resume", run_folder.to_str().unwrap()];
    let otherwise = |options: &[&str], expected: &[&str]| {
        run(&[arguments.as_slice(), &resume, options].concat()).refused(2, expected);
    };
    otherwise(&["--seed", "5"], &["it ran with --seed 1, not 5", "leave these options out"]);
    otherwise(&["--quick", "--budget", "9s"], &["mode standard, not quick", "without --budget"]);
    let elsewhere = folder.path().to_str().unwrap();
    run(&[&["study", "run", study, "--to", "localhost", "--runs", elsewhere], &resume[..]].concat())
        .refused(2, &["leave --runs out"]);
    let unchanged = fs::read_to_string(run_folder.join("trials.jsonl")).unwrap();
    assert_eq!(unchanged, before, "nothing was run");
    let resumed = run(&[arguments.as_slice(), &["--resume", run_folder.to_str().unwrap()]].concat());
    resumed.ok();
    let after = fs::read_to_string(run_folder.join("trials.jsonl")).unwrap();
    assert!(after.starts_with(before.lines().next().unwrap()), "what was recorded is kept");
    let mut numbers: Vec<u64> = after
        .lines()
        .map(|line| {
            let trial: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_valid("trial", &trial);
            trial["trial"].as_u64().unwrap()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5], "2 levels x 3 repetitions, each once");
    let document = serde_json::from_str(&fs::read_to_string(run_folder.join("run.json")).unwrap()).unwrap();
    assert_valid("run", &document);

    let page = fs::read_to_string(run_folder.join("report.html")).unwrap();
    assert!(page.contains("one and two flows"));
    let out = folder.path().join("trials.csv");
    run(&["report", run_folder.to_str().unwrap(), "--format", "csv", "--out", out.to_str().unwrap()]).ok();
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 7, "a heading and six trials");
}

#[test]
fn a_dry_run_lists_trials_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let study = folder.path().join("e2e.toml");
    fs::write(&study, STUDY).unwrap();
    let text = run(&[
        "study",
        "run",
        study.to_str().unwrap(),
        "--to",
        "localhost",
        "--dry-run",
        "--runs",
        runs.to_str().unwrap(),
    ]);
    assert!(text.ok().contains("6 trials"), "{}", text.stdout);
    assert!(!runs.exists());
}

#[test]
fn a_study_file_with_a_slip_names_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("slip.toml");
    fs::write(&study, STUDY.replace("repetitions", "repetition")).unwrap();
    let path = study.to_str().unwrap();
    run(&["study", "run", path, "--to", "localhost"]).refused(2, &["slip.toml:16", "`repetitions`"]);
    fs::write(&study, STUDY.replace("flows = [1, 2]", "windw = [1, 2]")).unwrap();
    run(&["study", "run", path, "--to", "localhost"]).refused(2, &["windw", "window"]);
    run(&["study", "run", "nonesuch", "--to", "localhost"]).refused(9, &["nonesuch", "clearstream-40ge"]);
}

#[test]
fn root_a_full_disk_ends_the_study_and_keeps_the_trials() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let study = folder.path().join("e2e.toml");
    fs::write(&study, STUDY.replace("repetitions = 3", "repetitions = 200").replace("200ms", "20ms"))
        .unwrap();
    // A namespace of its own holds the small disk, so that nothing stays mounted.
    let script = format!(
        "mount -t tmpfs -o size=400k none {disk} && {program} study run {study} --to localhost --runs {disk}/runs; \
         code=$?; cat {disk}/runs/*/trials.jsonl | wc -l; exit $code",
        disk = disk.display(),
        program = common::program().display(),
        study = study.display(),
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let run = finish(command.spawn().unwrap(), Duration::from_secs(60));
    assert_eq!(run.code(), 7, "{}\n{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("no space left"), "{}", run.stderr);
    let kept: u32 = run.stdout.lines().last().unwrap().trim().parse().unwrap();
    assert!(kept >= 1, "{}", run.stdout);
}
