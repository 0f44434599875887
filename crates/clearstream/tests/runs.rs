//! `clearstream runs`: a folder of runs, some of which must not be removed.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use common::{assert_valid, run};

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
    assert_valid("pruned-runs", &planned);
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
    run(&["runs", "list", "/nonexistent"]).refused(7, &["/nonexistent"]);
}
