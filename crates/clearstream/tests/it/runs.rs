//! `clearstream runs`: a folder of runs, some of which must not be removed.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use crate::common::{assert_published, run};
use serde_json::{Value, json};

/// A run of a study that started on a day of November 2026; without an end where it may be running.
fn recorded(folder: &Path, study: &str, day: u32, ended: bool) -> String {
    let name = format!("{study}-{day:02}");
    let path = folder.join(&name);
    fs::create_dir_all(path.join("samples")).unwrap();
    let end = if ended { format!("\"ended\":\"2026-11-{day:02}T10:02:05Z\",") } else { String::new() };
    let text = format!(
        "{{\"schema\":\"clearstream.run\",\"version\":2,\"id\":\"{name}\",\"started\":\"2026-11-{day:02}T10:00:00Z\",{end}\
         \"program_version\":\"0.1.0\",\"mode\":\"quick\",\"seed\":1,\"study\":{{\"name\":\"{study}\"}},\
         \"hosts\":[{{\"name\":\"dtn1\"}},{{\"name\":\"dtn2\"}}],\"planned_trial_count\":2}}"
    );
    fs::write(path.join("run.json"), text).unwrap();
    fs::write(path.join("trials.jsonl"), "{}\n{}\n").unwrap();
    name
}

fn names(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = found.filter(|name| !name.starts_with('.')).collect();
    found.sort();
    found
}

#[test]
fn old_runs_are_removed_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    for day in 1..=4 {
        recorded(folder.path(), "nightly", day, true);
    }
    recorded(folder.path(), "weekly", 1, true);
    fs::write(folder.path().join("nightly-02/keep"), "").unwrap();
    recorded(folder.path(), "nightly", 0, false);
    fs::create_dir(folder.path().join("notes")).unwrap();

    let text = run(&["runs", "list", runs, "--study", "nightly", "-n", "3"]);
    let lines: Vec<&str> = text.ok().lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (line, parts) in lines[1..].iter().zip([
        ["nightly-04", "2026-11-04 10:00:00", "2 min 05 s", "dtn1, dtn2", "2 of 2", "complete"],
        ["nightly-03", "2026-11-03 10:00:00", "2 min 05 s", "dtn1, dtn2", "2 of 2", "complete"],
        ["nightly-02", "2026-11-02 10:00:00", "2 min 05 s", "dtn1, dtn2", "2 of 2", "complete"],
    ]) {
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }

    let prune = ["runs", "prune", runs, "--study", "nightly", "--keep", "1", "--json"];
    let planned = run(&prune).json();
    assert_eq!(planned["removed"], serde_json::json!(["nightly-03", "nightly-01"]));
    assert_eq!(names(folder.path()).len(), 7, "nothing is removed without --yes");
    let done = run(&[&prune[..], &["--yes"]].concat()).json();
    assert_eq!(done["removed"], planned["removed"]);
    for (name, reason) in [("nightly-02", "keep"), ("nightly-00", "no end")] {
        assert!(done["kept"][name].as_str().unwrap().contains(reason), "{done}");
    }
    assert_eq!(names(folder.path()), ["nightly-00", "nightly-02", "nightly-04", "notes", "weekly-01"]);

    // Untouched for two hours: it was killed.
    let two_hours_ago = SystemTime::now() - Duration::from_secs(7200);
    let stamp = format!("@{}", two_hours_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
    let abandoned = folder.path().join("nightly-00");
    let paths = ["run.json", "trials.jsonl", "samples", ""].map(|name| abandoned.join(name));
    assert!(Command::new("touch").arg("-d").arg(stamp).args(paths).status().unwrap().success());
    run(&[&prune[..], &["--yes"]].concat()).ok();
    assert_eq!(names(folder.path()), ["nightly-02", "nightly-04", "notes", "weekly-01"]);
    run(&["runs", "prune", runs]).refused_by_usage("--keep");
    run(&["runs", "list", "/nonexistent"]).refused(9, &["/nonexistent"]);
}

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "nightly"
title = "a round trip every night"
[[experiment]]
name = "pingpong"
title = "a round trip"
workload = "message"
figure = "bars"
repetitions = 3
[experiment.message]
sizes = "64B"
duration = "20ms"
warm-up = "5ms"
"#;

/// A real run, copied to each day of November 2026 with this median of its latency, in ns.
fn nights(folder: &Path, latencies: &[f64]) {
    let study = folder.join("nightly.toml");
    fs::write(&study, STUDY).unwrap();
    let first = folder.join("first");
    run(&["study", "run", study.to_str().unwrap(), "--to", "localhost", "--runs", first.to_str().unwrap()])
        .ok();
    let run = fs::read_dir(&first).unwrap().next().unwrap().unwrap().path();
    let runs = folder.join("runs");
    for (day, latency) in latencies.iter().enumerate() {
        let date = format!("2026-11-{:02}", day + 1);
        let copy = runs.join(format!("nightly-{date}"));
        fs::create_dir_all(copy.join("samples")).unwrap();
        let mut head: Value = serde_json::from_slice(&fs::read(run.join("run.json")).unwrap()).unwrap();
        head["id"] = json!(format!("nightly-{date}"));
        head["started"] = json!(format!("{date}T02:00:00Z"));
        head["ended"] = json!(format!("{date}T02:01:00Z"));
        fs::write(copy.join("run.json"), head.to_string()).unwrap();
        let trials = fs::read_to_string(run.join("trials.jsonl")).unwrap();
        let changed = trials.lines().zip([0.99, 1.0, 1.01]).map(|(line, factor)| {
            let mut trial: Value = serde_json::from_str(line).unwrap();
            trial["started"] = json!(format!("{date}T02:00:10Z"));
            let metrics = trial["outcome"]["measured"]["metrics"].as_array_mut().unwrap();
            let metric = metrics.iter_mut().find(|metric| metric["name"] == "latency").unwrap();
            metric["value"] = json!(latency * factor);
            trial.to_string() + "\n"
        });
        fs::write(copy.join("trials.jsonl"), changed.collect::<String>()).unwrap();
    }
}

/// Fourteen nights at some 20 us, then at 26: the change is named with its night.
#[test]
fn a_trend_names_the_run_since_which_the_level_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let night = |day: usize| if day < 14 { 20_000.0 } else { 26_000.0 } + [0.0, 300.0, -200.0][day % 3];
    nights(folder.path(), &(0..22).map(night).collect::<Vec<_>>());
    let runs = folder.path().join("runs");
    let runs = runs.to_str().unwrap();
    let found = run(&["runs", "trend", runs, "--json"]).json();
    assert_eq!(found["runs"].as_array().unwrap().len(), 22);
    let cells = found["cells"].as_array().unwrap();
    assert_eq!((cells.len(), cells[0]["metric"].as_str()), (1, Some("latency")));
    let change = &cells[0]["changes"];
    assert_eq!(change.as_array().unwrap().len(), 1, "{change}");
    assert_eq!(
        (&change[0]["run"], &change[0]["before"], &change[0]["after"]),
        (&json!(14), &json!(20_000.0), &json!(26_000.0))
    );
    let text = run(&["runs", "trend", runs]);
    let sentence = text.ok().lines().last().unwrap().to_owned();
    for part in ["20.0 us to 26.0 us", "+30.0 %", "nightly-2026-11-15"] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
    let few = run(&["runs", "trend", runs, "-n", "9"]);
    assert!(few.ok().contains("from 10 runs on"), "{}", few.stdout);
    run(&["runs", "trend", runs, "--metric", "latncy"]).refused(9, &["latency"]);
    run(&["runs", "trend", runs, "--study", "weekly"]).refused(9, &["weekly"]);
    run(&["runs", "trend", runs, "--experiment", "flows"]).refused(9, &["pingpong"]);

    let shown = run(&["runs", "show", &format!("{runs}/nightly-2026-11-15"), "--json"]).json();
    assert_eq!((&shown["study"], &shown["done_trial_count"]), (&json!("nightly"), &json!(3)));
    assert!(shown["headlines"][0].as_str().unwrap().contains("25.8 us"), "{shown}");
}

/// The first run becomes the reference, a slower one does not pass, and never becomes one.
#[test]
fn a_run_that_is_worse_than_the_last_good_one_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    nights(folder.path(), &[20_000.0, 20_500.0, 26_000.0, 20_200.0, 23_000.0, 15_000.0]);
    let runs = folder.path().join("runs");
    let check = |day: u32, more: &[&str]| {
        let name = format!("{}/nightly-2026-11-{day:02}", runs.display());
        let ended = run(&[&["study", "check", &name, "--json"], more].concat());
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_published(&document);
        assert_eq!(ended.code(), if document["passed"] == true { 0 } else { 10 }, "{}", ended.stderr);
        document
    };
    let first = check(1, &[]);
    assert_eq!((&first["passed"], &first["reference"]), (&json!(true), &Value::Null));
    assert_eq!(check(2, &[])["passed"], true);
    let slow = check(3, &[]);
    assert_eq!((&slow["passed"], &slow["reference"]), (&json!(false), &json!("nightly-2026-11-02")));
    assert_eq!(
        (&slow["cells"][0]["verdict"], &slow["cells"][0]["median"]),
        (&json!("worse"), &json!(26_000.0))
    );
    let next = check(4, &[]);
    assert_eq!((&next["passed"], &next["reference"]), (&json!(true), &json!("nightly-2026-11-02")));
    assert_eq!(next["good_runs"], json!(["nightly-2026-11-01"]));
    assert_eq!(check(5, &["--tolerance", "20%"])["passed"], true);
    // The run before was called good, and 26 us are still more.
    assert_eq!(check(3, &["--against", &format!("{}/nightly-2026-11-05", runs.display())])["passed"], false);
    let fast = check(6, &[]);
    assert_eq!((&fast["passed"], &fast["cells"][0]["verdict"]), (&json!(true), &json!("better")));
    let listed = run(&["runs", "list", runs.to_str().unwrap()]);
    for (day, state) in [(3, "complete, worse"), (4, "complete, good")] {
        let line = listed.ok().lines().find(|line| line.contains(&format!("-{day:02} "))).unwrap();
        assert!(line.contains(state), "{line}");
    }

    // A trial that failed, and a run without an end.
    let failed = runs.join("nightly-2026-11-06/trials.jsonl");
    let text = fs::read_to_string(&failed).unwrap();
    let mut trial: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    trial["outcome"] = json!({ "failed": { "kind": "unreachable", "message": "no such host" } });
    fs::write(&failed, format!("{trial}\n{}", text.split_once('\n').unwrap().1)).unwrap();
    let found = check(6, &[]);
    assert_eq!((&found["passed"], &found["failed_trial_count"]), (&json!(false), &json!(1)));
    run(&["study", "check", runs.to_str().unwrap(), "--tolerance", "many"]).refused_by_usage("percent");
    run(&["study", "check", folder.path().join("nowhere").to_str().unwrap()]).refused(9, &["nowhere"]);
}

/// systemd reads the units, and their command is one that `study run` accepts.
#[test]
fn a_study_is_scheduled_by_units_that_systemd_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("nightly.toml");
    fs::write(&study, STUDY).unwrap();
    let (out, study) = (folder.path().to_str().unwrap(), study.to_str().unwrap());
    let schedule =
        ["study", "schedule", "--calendar", "Mon..Fri 02:00", "--spread", "30m", "--keep", "9", "--out", out];
    let written = run(&[&schedule[..], &["--json", study, "dtn 2", "--quick"]].concat()).json();
    let files: Vec<String> =
        written["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap().to_owned()).collect();
    assert_eq!(files.len(), 2);
    let [service, timer] = [&files[0], &files[1]].map(|file| fs::read_to_string(file).unwrap());
    assert!(
        service.contains(&format!("study run {study} \"dtn 2\" --quick --runs /var/lib/clearstream/runs\n")),
        "{service}"
    );
    assert!(
        service.contains("runs prune --yes --study nightly --keep 9 /var/lib/clearstream/runs\n"),
        "{service}"
    );
    assert!(
        timer.contains("OnCalendar=Mon..Fri 02:00\n") && timer.contains("RandomizedDelaySec=1800s\n"),
        "{timer}"
    );
    for file in &files {
        let judged = Command::new("systemd-analyze").args(["verify", "--man=no", file]).output().unwrap();
        assert!(judged.status.success(), "{file}: {}", String::from_utf8_lossy(&judged.stderr));
    }
    run(&[&schedule[..], &[study, "--no-such-option"]].concat()).refused_by_usage("no-such-option");
    run(&[&schedule[..], &[study, "dtn2", "--runs", "elsewhere"]].concat()).refused_by_usage("--runs");
    run(&["study", "schedule", "--calendar", "sometimes", study, "dtn2"]).refused_by_usage("sometimes");
    run(&["study", "schedule", "no-such-study", "dtn2"]).refused(9, &["no-such-study"]);
}
