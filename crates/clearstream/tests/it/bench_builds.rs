//! `bench/builds` compares the times of two builds, here of the same one.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, Run, finish, program};

fn builds(more: &[&str]) -> Run {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/builds"));
    command.args([program(), program()]).args(["--pairs", "1"]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap(), Duration::from_secs(90))
}

/// Medians of both builds, by the start of the title.
fn medians(text: &str, title: &str) -> (f64, f64) {
    let row =
        text.lines().find(|line| line.starts_with(&format!("| {title}"))).unwrap_or_else(|| panic!("{text}"));
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(cells[2], "ms");
    (cells[3].parse().unwrap(), cells[4].parse().unwrap())
}

#[test]
fn starts_of_two_builds_are_compared() {
    let run = builds(&["--only=--version"]);
    assert_eq!(run.ok().lines().count(), 3, "a head and one measurement: {}", run.stdout);
    let (first, second) = medians(&run.stdout, "time of a start");
    assert!(first > 0.0 && second > 0.0);
    builds(&["--only", "nothing"]).refused_with(2);
}

#[test]
fn root_set_up_and_trials_of_two_builds_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::of_two_hosts(folder.path(), "builds");
    for title in ["time of setting up", "time per trial of a study"] {
        let run = builds(&["--lab", "builds", "--only", title]);
        run.ok();
        let (first, second) = medians(&run.stdout, title);
        assert!(first > 0.0 && second > 0.0, "both take longer than what they measure: {}", run.stdout);
    }
}
