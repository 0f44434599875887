//! Every verb prints a published document with `--json`, and the same one at
//! the end of `--json-stream`. A verb that is in none of the lists fails.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{collections::BTreeSet, fs};

use clap::CommandFactory as _;
use clearstream::verbs::Cli;
use common::{assert_published, assert_valid, run, run_with_input};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What has no end or no document, and says so.
const WITHOUT: [&str; 5] = ["completions", "lab exec", "lab shell", "rdma serve", "serve"];

/// What needs a privilege or changes the host: the tests of each read its
/// document through `Run::json`, which validates it too.
const PRIVILEGED: [&str; 21] = [
    "cc load",
    "cc unload",
    "deploy",
    "improve",
    "lab down",
    "lab fault",
    "lab show",
    "lab up",
    "route apply",
    "route confirm",
    "route drain",
    "route health",
    "route prove",
    "route revert",
    "route undrain",
    "route verify",
    "route watch",
    "tune apply",
    "tune recover",
    "tune revert",
    "tune verify",
];

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "documents"
title = "documents of a test"
[flow]
duration = "300ms"
warm-up = "100ms"
interval = "100ms"
[[experiment]]
name = "one"
title = "one flow"
workload = "flow"
figure = "throughput"
repetitions = 1
"#;

/// The rest in this order: the verb, its arguments (`TMP` is a folder, `ROOT`
/// the source tree, `SERVER` a captured host), and the name of its document.
const RUN: [(&str, &str, &str); 33] = [
    ("cc list", "", "congestion-controls"),
    ("defaults", "", "defaults"),
    ("diagnose", "--from ROOT/fixtures/records/v1/clearstream-40ge", "diagnosis"),
    ("flow", "localhost -t 300ms --warm-up 100ms --interval 100ms", "flow"),
    ("inspect", "", "host"),
    ("inspect", "--capture TMP/here.tar.gz", "written"),
    ("lab list", "", "lab-list"),
    ("message", "--to localhost --sizes 64B --duration 20ms --warm-up 5ms", "message"),
    ("pair create", "dtn9 --identity TMP/identity", "pairing-change"),
    ("pair list", "--identity TMP/identity", "pairings"),
    ("pair accept", "TMP/pairing.json", "pairing-change"),
    ("pair revoke", "dtn9 --identity TMP/identity", "pairing-change"),
    ("place plan", "eth1 --from SERVER", "placement"),
    ("place ports", "--source 192.0.2.1 --address 198.51.100.2 --key KEY --queue-count 8", "ports"),
    ("place rank", "eth1 --from SERVER", "ranking"),
    ("probe", "localhost --count 3 --interval 10ms", "probe"),
    ("rdma ping", "--local --count 3", "rdma-ping"),
    ("rdma read", "--local --size 64 --iterations 50", "rdma"),
    ("rdma send", "--local --size 64 --iterations 50", "rdma"),
    ("rdma write", "--local --size 64 --iterations 50", "rdma"),
    ("report", "ROOT/fixtures/records/v1/clearstream-40ge --out TMP/report.html", "written"),
    ("route lint", "--from SERVER", "lint"),
    ("route new", "--files ROOT/fixtures/configs/paper-corrected --name site", "fabric"),
    ("route plan", "gateways-6", "route-plan"),
    ("route render", "gateways-6 --as networkd --out TMP/files", "rendered-routes"),
    ("study compare", "ROOT/fixtures/records/v1/clearstream-40ge flows=1 flows=2", "comparison"),
    ("study list", "", "study-list"),
    ("study run", "TMP/study.toml --to localhost --dry-run", "study-plan"),
    ("study run", "TMP/study.toml --to localhost --runs TMP/runs", "study-end"),
    ("tune history", "", "journals"),
    ("tune lint", "ROOT/fixtures/configs/clearstream-40ge/sysctl.conf", "lint"),
    ("tune plan", "--rate 10Gb/s --rtt 17ms --from SERVER --out TMP/plan.json", "plan"),
    ("tune render", "TMP/plan.json --as sysctl.d --out TMP/etc", "rendered-plan"),
];

/// "Verifying the RSS hash calculation", Microsoft.
const KEY: &str = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

/// The verbs below a command that do something, `tune apply`.
fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let path = format!("{path} {}", verb.get_name()).trim().to_owned();
        if verb.has_subcommands() {
            leaves(verb, &path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn every_verb_is_in_one_of_the_lists() {
    let mut verbs = BTreeSet::new();
    let mut command = Cli::command();
    command.build();
    leaves(&command, "", &mut verbs);
    let run = RUN.iter().map(|(verb, _, _)| *verb);
    let listed: BTreeSet<String> = run.chain(WITHOUT).chain(PRIVILEGED).map(str::to_owned).collect();
    assert_eq!(verbs, listed, "left: the verbs there are; right: those that are tested here or elsewhere");
}

/// Runs everything with an option; each gives what it printed.
fn run_all(option: &str, mut check: impl FnMut(&str, &str, &str)) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("study.toml"), STUDY).unwrap();
    let mut token = String::new();
    for (verb, arguments, document) in RUN {
        let line = arguments
            .replace("TMP", folder.path().to_str().unwrap())
            .replace("SERVER", &format!("{ROOT}/fixtures/hosts/magny-cours-igb.tar.gz"))
            .replace("ROOT", ROOT)
            .replace("KEY", KEY);
        let all: Vec<&str> = verb.split(' ').chain(line.split_whitespace()).chain([option]).collect();
        let ended = run_with_input(&all, &token);
        // Findings of severity error end with 8 after the document.
        assert!(matches!(ended.code(), 0 | 8), "{verb}: {}", ended.stderr);
        if let ("pair create", Ok(created)) = (verb, serde_json::from_str::<Value>(&ended.stdout)) {
            let created = if option == "--json" { &created } else { &created["payload"] };
            token = format!("{}\n", created["token"].as_str().unwrap());
        }
        check(verb, document, &ended.stdout);
    }
}

/// A list has no name: the one that is expected.
fn check_document(verb: &str, name: &str, document: &Value) {
    if document.is_array() {
        return assert_valid(name, document);
    }
    assert_eq!(document["schema"], format!("clearstream.{name}"), "{verb}");
    assert_published(document);
}

#[test]
fn every_verb_prints_one_document_that_keeps_to_its_schema() {
    run_all("--json", |verb, name, text| {
        let document = serde_json::from_str(text).unwrap_or_else(|error| panic!("{verb}: {error}: {text}"));
        check_document(verb, name, &document);
    });
}

#[test]
fn every_verb_streams_events_and_ends_with_the_same_document() {
    let mut kinds = BTreeSet::new();
    run_all("--json-stream", |verb, name, text| {
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (last, before) = events.split_last().unwrap_or_else(|| panic!("{verb} printed nothing"));
        for event in &events {
            assert_published(event);
            assert_eq!(event["schema"], "clearstream.event");
            // In a trial of a study the workload is that of the trial.
            let workload = if event.get("trial").is_some() { "flow" } else { verb };
            assert_eq!(event["workload"], workload, "{verb}");
        }
        assert_eq!(last["kind"], "result", "{verb}");
        check_document(verb, name, &last["payload"]);
        assert!(before.iter().all(|event| event["kind"] != "result"), "{verb}: one result");
        kinds.extend(before.iter().map(|event| format!("{verb} {}", event["kind"].as_str().unwrap())));
    });
    for wanted in [
        "flow state",
        "flow interval",
        "flow progress",
        "probe progress",
        "rdma write state",
        "rdma write interval",
        "study run state",
        "study run progress",
        "study run interval",
        "tune lint finding",
        "diagnose finding",
    ] {
        assert!(kinds.contains(wanted), "no event: {wanted}: {kinds:?}");
    }
}

/// Standard output holds one document, also of what failed.
#[test]
fn an_error_is_a_document_too() {
    for option in ["--json", "--json-stream"] {
        let ended = run(&["route", "plan", "nowhere", option]);
        ended.refused(9, &["built in are gateways-6"]);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        let error = if option == "--json" { &document } else { &document["payload"] };
        assert_published(&document);
        assert_published(error);
        assert_eq!((&error["exit_code"], &error["name"]), (&9.into(), &"name".into()), "{document}");
        assert!(error["message"].as_str().unwrap().contains("gateways-6"));
    }
}

#[test]
fn what_has_no_document_says_so() {
    for line in ["serve", "rdma serve", "completions bash", "lab exec a b c", "lab shell a b"] {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let all: Vec<&str> = [verb, "--json"].into_iter().chain(rest.split_whitespace()).collect();
        run(&all).refused(2, &["no JSON document"]);
    }
}
