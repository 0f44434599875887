//! Every verb prints a published document with `--json`, and the same one at
//! the end of `--json-stream`. A verb that is in none of the lists fails.

use std::{collections::BTreeSet, fs};

use crate::common::{assert_published, assert_valid, run, run_with_input};
use clap::CommandFactory as _;
use clearstream::verbs::Cli;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Verbs without a document, which refuse `--json`.
const WITHOUT: [&str; 4] = ["completions", "lab exec", "lab shell", "rdma run"];

/// What ends when it is stopped: `tests/daemons.rs`.
const DAEMONS: [&str; 2] = ["rdma serve", "serve"];

/// What takes a whole command line at its end: `tests/runs.rs` reads its document.
const COMMAND_AT_THE_END: [&str; 1] = ["study schedule"];

/// What needs a privilege or changes the host: `tests/streams.rs` and the tests of
/// each read its document, which is validated too.
const PRIVILEGED: [&str; 20] = [
    "cc load",
    "cc unload",
    "deploy",
    "improve",
    "lab down",
    "lab fault",
    "lab show",
    "lab up",
    "plan apply",
    "plan confirm",
    "plan recover",
    "plan revert",
    "plan verify",
    "route apply",
    "route drain",
    "route health",
    "route prove",
    "route undrain",
    "route verify",
    "route watch",
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
[[experiment]]
name = "beside"
title = "flows beside an application"
workload = "live-traffic"
[experiment.live-traffic]
duration = "300ms"
warm-up = "100ms"
interval = "100ms"
define = "N=5"
pause = "100ms"
[[experiment]]
name = "pairs"
title = "both directions"
workload = "all-pairs"
figure = "bars"
[experiment.all-pairs]
duration = "200ms"
warm-up = "50ms"
[[experiment]]
name = "messages"
title = "two sizes"
workload = "message"
figure = "curve"
[experiment.message]
sizes = "1B-2B"
duration = "20ms"
warm-up = "5ms"
[[experiment]]
name = "work"
title = "two intervals of work"
workload = "overlap"
[experiment.overlap]
work = "100-1000"
per-decade = 1
duration = "20ms"
warm-up = "5ms"
[[experiment]]
name = "writes"
title = "writes"
workload = "rdma"
figure = "bars"
[experiment.rdma]
duration = "50ms"
warm-up = "10ms"
[[experiment]]
name = "calls"
title = "a call"
workload = "verbs-calls"
figure = "bars"
[experiment.verbs-calls]
count = 5
[[experiment]]
name = "files"
title = "files"
workload = "storage-stream"
figure = "bars"
[experiment.storage-stream]
directory = "/tmp"
block = "1MiB"
[[experiment]]
name = "names"
title = "names"
workload = "storage-metadata"
figure = "bars"
[experiment.storage-metadata]
directory = "/tmp"
items = 5
"#;

/// Every workload that keeps samples, with the schema of one.
const SAMPLES: [(&str, &str); 10] = [
    ("flow", "interval"),
    ("live-traffic", "interval"),
    ("live", "live-sample"),
    ("all-pairs", "pair-goodput"),
    ("message", "message-point"),
    ("overlap", "overlap-point"),
    ("rdma", "rdma-sample"),
    ("verbs-calls", "verbs-sample"),
    ("storage-stream", "storage-stream-point"),
    ("storage-metadata", "storage-metadata-phase"),
];

/// Checks a sample of a workload, or of a verb of it (`rdma write`).
fn assert_sample(workload: &str, sample: &Value) {
    let (of_verb, whole) = (workload.split(' ').next(), workload.replace(' ', "-"));
    let is_it = |(name, _): &&(&str, &str)| of_verb == Some(*name) || whole == *name;
    let (_, schema) =
        SAMPLES.iter().find(is_it).unwrap_or_else(|| panic!("{workload}: samples of no schema"));
    assert_valid(schema, sample);
}

/// The rest in this order: the verb, its arguments (`TMP` is a folder, `ROOT`
/// the source tree, `SERVER` a captured host), and the name of its document.
const RUN: [(&str, &str, &str); 49] = [
    ("cc list", "", "congestion-controls"),
    ("defaults", "", "defaults"),
    ("diagnose", "--from ROOT/fixtures/records/clearstream-40ge", "diagnosis"),
    ("diagnose", "--socket port=1 -t 300ms", "connections"),
    ("explore", "peterson", "exploration"),
    ("flow", "localhost -t 300ms --warm-up 100ms --interval 100ms", "flow"),
    ("flow", "localhost -t 300ms --warm-up 100ms --interval 100ms --repeat 2", "flow-runs"),
    ("inspect", "", "host"),
    ("inspect", "--capture TMP/here.tar.gz", "written"),
    ("lab list", "", "lab-list"),
    ("live", "-t 200ms -i 100ms", "live"),
    ("message", "--to localhost --sizes 64B --duration 20ms --warm-up 5ms", "message"),
    ("overlap", "--to localhost --work 1000 --duration 20ms --warm-up 5ms", "overlap"),
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
    ("report", "ROOT/fixtures/records/clearstream-40ge --out TMP/report.html", "written"),
    ("route lint", "--from SERVER", "lint"),
    ("route new", "--files ROOT/fixtures/configs/paper-corrected --name site", "fabric"),
    ("route plan", "gateways-6", "route-plan"),
    ("route render", "gateways-6 --as networkd --out TMP/files", "rendered-routes"),
    ("runs list", "TMP", "runs"),
    ("runs prune", "TMP --keep 1", "pruned-runs"),
    ("storage semantics", "TMP", "storage-semantics"),
    ("storage metadata", "TMP -n 5", "storage-metadata"),
    ("storage stream", "TMP -b 1m", "storage-stream"),
    ("storage stream", "TMP -b 1m --against TMP", "storage-comparison"),
    ("study compare", "ROOT/fixtures/records/clearstream-40ge flows=1 flows=2", "comparison"),
    ("study list", "", "study-list"),
    ("study run", "TMP/study.toml --to localhost --dry-run", "study-plan"),
    ("study run", "TMP/study.toml --to localhost --runs TMP/runs", "study-end"),
    ("study check", "TMP/runs", "study-check"),
    ("runs compare", "ROOT/fixtures/records/clearstream-40ge flows=1 flows=2", "comparison"),
    ("runs show", "ROOT/fixtures/records/clearstream-40ge", "run-overview"),
    ("runs trend", "TMP/runs", "trend"),
    ("plan history", "", "journals"),
    ("tune lint", "ROOT/fixtures/configs/clearstream-40ge/sysctl.conf", "lint"),
    ("tune plan", "--rate 10Gb/s --rtt 17ms --from SERVER --out TMP/plan.json", "plan"),
    ("plan show", "TMP/plan.json", "plan"),
    ("plan render", "TMP/plan.json --as sysctl.d --out TMP/etc", "rendered-plan"),
];

/// "Verifying the RSS hash calculation", Microsoft.
const KEY: &str = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

/// The verbs below a command that do something, `plan apply`.
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
    let listed: BTreeSet<String> = run
        .chain(WITHOUT)
        .chain(COMMAND_AT_THE_END)
        .chain(DAEMONS)
        .chain(PRIVILEGED)
        .map(str::to_owned)
        .collect();
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

fn check_document(verb: &str, name: &str, document: &Value) {
    assert_eq!(document["schema"], format!("clearstream.{name}"), "{verb}");
    assert_published(document);
    check_provenance(verb, &document["provenance"]);
}

/// The output of a cron job must contain when, by what and
/// where it was made. Compared with `uname`.
fn check_provenance(verb: &str, provenance: &Value) {
    let uname = |option: &str| {
        let output = std::process::Command::new("uname").arg(option).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(provenance["host"]["host_name"], uname("-n"), "{verb}");
    assert_eq!(provenance["host"]["kernel"], uname("-r"), "{verb}");
    assert_eq!(provenance["program_version"], env!("CARGO_PKG_VERSION"), "{verb}");
    let command = provenance["command"].as_array().unwrap();
    let arguments: Vec<&str> = command.iter().skip(1).map(|one| one.as_str().unwrap()).collect();
    assert!(arguments.join(" ").starts_with(verb), "{verb}: {arguments:?}");
    let [started, ended] = ["started", "ended"].map(|key| provenance[key].as_str().unwrap());
    // RFC 3339 in UTC sorts by time.
    assert!(started <= ended && started.ends_with('Z') && started.starts_with("20"), "{verb}: {provenance}");
    if matches!(verb, "flow" | "probe" | "message") {
        let hosts = provenance["hosts"].as_array().unwrap();
        let roles: Vec<_> = hosts.iter().map(|host| host["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["client", "server"], "{verb}");
        assert!(hosts.iter().all(|host| host["kernel"] == uname("-r")), "{verb}: {hosts:?}");
    }
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
            let workload = event["workload"].as_str().unwrap();
            // In a trial of a study the workload is that of the trial.
            let is_trial = event.get("trial").is_some() && SAMPLES.iter().any(|(name, _)| *name == workload);
            assert!(workload == verb || is_trial, "{verb}: {event}");
            if event["kind"] == "interval" {
                assert_sample(workload, &event["payload"]);
                kinds.insert(format!("{workload} sample"));
            }
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
        "message interval",
        "all-pairs sample",
        "verbs-calls sample",
        "tune lint finding",
        "diagnose finding",
    ] {
        assert!(kinds.contains(wanted), "no event: {wanted}: {kinds:?}");
    }
}

/// A record's samples are what the stream shows of its trials.
#[test]
fn every_line_of_samples_keeps_to_the_schema_of_its_workload() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("study.toml");
    fs::write(&study, STUDY).unwrap();
    let (study, runs) = (study.to_str().unwrap(), folder.path().join("runs"));
    let arguments = ["study", "run", study, "--to", "localhost", "--runs", runs.to_str().unwrap(), "--json"];
    let ended = run(&arguments).json();
    let record = std::path::Path::new(ended["folder"].as_str().unwrap());
    let mut seen = BTreeSet::new();
    for line in fs::read_to_string(record.join("trials.jsonl")).unwrap().lines() {
        let trial: Value = serde_json::from_str(line).unwrap();
        let workload = trial["workload"].as_str().unwrap();
        let samples = fs::read_to_string(record.join(trial["samples"].as_str().unwrap())).unwrap();
        for sample in samples.lines() {
            assert_sample(workload, &serde_json::from_str(sample).unwrap());
            seen.insert(workload.to_owned());
        }
    }
    // `live` is no workload of a study: `tests/live.rs` checks its record.
    let of_studies = SAMPLES.iter().filter(|(workload, _)| *workload != "live");
    assert_eq!(seen, of_studies.map(|(workload, _)| (*workload).to_owned()).collect());
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

/// With `--json` a failure left standard output empty.
#[test]
fn a_failure_of_any_kind_leaves_a_document_and_its_exit_code() {
    for (line, code, expected) in [
        ("flow nowhere.invalid --json", 3, "nowhere.invalid"),
        ("flow localhost --window big --json", 2, "512KiB"),
        ("flow localhost -S 0xb8 --json", 2, "--dscp ef"),
        ("flow localhost --nonesuch --json", 2, "--nonesuch"),
        ("tune plan --json", 2, "--rate"),
        ("nonesuch --json", 2, "nonesuch"),
    ] {
        let ended = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code(), code, "{line}: {}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{line}: {error}: {:?}", ended.stdout));
        assert_published(&document);
        assert_eq!(document["schema"], "clearstream.error", "{line}");
        assert_eq!(document["exit_code"], code, "{line}");
        assert!(document["message"].as_str().unwrap().contains(expected), "{line}: {document}");
        assert!(document["provenance"]["started"].is_string(), "{line}");
    }
    let ended = run(&["flow", "localhost", "--window", "big", "--json-stream"]);
    let event: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&event["kind"], &event["payload"]["exit_code"]), (&"error".into(), &2.into()));
}

/// What is printed can be read back: a plan with its provenance is a plan.
#[test]
fn a_printed_plan_is_taken_as_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("{ROOT}/fixtures/hosts/magny-cours-igb.tar.gz");
    let planned = run(&["tune", "plan", "--rate", "10Gbps", "--rtt", "17ms", "--from", &server, "--json"]);
    let path = folder.path().join("plan.json");
    fs::write(&path, planned.ok()).unwrap();
    let etc = folder.path().join("etc");
    let arguments =
        ["plan", "render", path.to_str().unwrap(), "--as", "sysctl.d", "--out", etc.to_str().unwrap()];
    let ended = run(&arguments);
    // 8: some settings have no place in such a file; a plan that cannot be read ends with 2.
    assert!(matches!(ended.code(), 0 | 8), "{}", ended.stderr);
}

#[test]
fn verbs_without_a_document_refuse_json() {
    for line in ["completions bash", "lab exec a b c", "lab shell a b", "rdma run true"] {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let all: Vec<&str> = [verb, "--json"].into_iter().chain(rest.split_whitespace()).collect();
        run(&all).refused(2, &["no JSON document"]);
    }
}
