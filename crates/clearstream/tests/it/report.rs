//! `clearstream report` as people run it: one run with the diagnosis that it needs,
//! and several runs as one page.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::common::run;
use serde_json::{Value, json};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/clearstream-40ge")
}

fn copied(to: &Path) {
    fs::create_dir_all(to.join("samples")).unwrap();
    for name in ["run.json", "trials.jsonl"] {
        fs::copy(golden().join(name), to.join(name)).unwrap();
    }
    for entry in fs::read_dir(golden().join("samples")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join("samples").join(entry.file_name())).unwrap();
    }
}

/// The same curve over a link of twice its rate ends at half of what the link allows: the report
/// has the verdict of `diagnose` on that trial.
#[test]
fn a_short_plateau_is_diagnosed_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    copied(folder.path());
    let mut document: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("run.json")).unwrap()).unwrap();
    let end =
        |host: &str, address: &str| json!({ "host": host, "interface": "wan0", "addresses": [address] });
    document["lab"]["link"] = json!([{
        "rate": "40Gb/s", "delay": "8.5ms", "ends": [end("geneva", "10.0.0.1/24"), end("amsterdam", "10.0.0.2/24")],
    }]);
    fs::write(folder.path().join("run.json"), document.to_string()).unwrap();

    let path = folder.path().to_str().unwrap();
    let text = run(&["report", path, "--format", "markdown", "--out", "-"]).ok().to_owned();
    let finding = text.split("### First finding").nth(1).unwrap_or_else(|| panic!("{text}"));
    let finding = finding.split("###").next().unwrap();
    assert!(finding.contains("Over lab link wan0") || finding.contains("of the model: "), "{finding}");
    let trial = finding.split("diagnosis of trial ").nth(1).unwrap().split(' ').next().unwrap();
    let diagnosis = run(&["diagnose", "--from", path, "--trial", trial, "--json"]).json();
    let sentence = match &diagnosis["primary"]["found"] {
        Value::Null => diagnosis["primary"]["unknown"]["because"].as_str().unwrap(),
        found => found["sentence"].as_str().unwrap(),
    };
    // Markdown escapes some characters: letters and digits are compared.
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    assert!(letters(finding).contains(&letters(sentence)), "{finding}\n{sentence}");
}

#[test]
fn several_runs_are_drawn_as_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    copied(&one);
    copied(&other);
    let mut document: Value =
        serde_json::from_str(&fs::read_to_string(other.join("run.json")).unwrap()).unwrap();
    document["started"] = json!("2026-04-01T10:00:00Z");
    fs::write(other.join("run.json"), document.to_string()).unwrap();
    let page = folder.path().join("history.html");
    let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
    run(&["report", other, one, "--out", page.to_str().unwrap()]).ok();
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("2 runs, 2026-03-01T10:00:00Z to 2026-04-01T10:00:00Z"));
    assert!(text.contains("id=\"figure-window-history\""));
    run(&["report", one, other, "--format", "csv"]).refused(2, &["several runs", "leave --format out"]);
    run(&["report"]).refused_with(2);
}

/// Where the run folder takes no file the message names the option that helps.
#[test]
fn a_run_folder_that_takes_no_report_fails_with_the_option() {
    let folder = tempfile::tempdir().unwrap();
    copied(folder.path());
    let path = folder.path().to_str().unwrap();
    // Root writes to read-only folders; nobody replaces a folder by a file.
    fs::create_dir_all(folder.path().join("report.html/in-the-way")).unwrap();
    run(&["report", path]).refused(7, &["report.html", "--out FILE writes it elsewhere"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let page = elsewhere.path().join("page.html");
    run(&["report", path, "--out", page.to_str().unwrap()]).ok();
    // Named by hand it is the person's own place.
    let named = run(&["report", path, "--out", folder.path().join("report.html").to_str().unwrap()]);
    named.refused_with(7);
    assert!(!named.stderr.contains("--out"), "{}", named.stderr);
}
