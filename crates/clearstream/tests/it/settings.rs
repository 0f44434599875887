//! Every option of every workload: set, run, and found in the record and in the report, as requested and, where it can
//! be read back, as effective.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use clearstream::workloads::registry;
use clearstream_schema::outcome::SettingValue;
use clearstream_testkit::listening::free_ports;
use serde_json::{Map, Value, json};

use crate::common::run;

/// Options of each workload, in sets that can be had together. Everything here runs between two agents of this host.
fn sets(folder: &Path) -> Vec<(&'static str, Value)> {
    let directory = folder.join("files").display().to_string();
    let [port, source, first, second, other, another] = free_ports();
    vec![
        (
            "flow",
            json!({
                "direction": "reverse", "flows": 2, "duration": "150ms", "warm-up": "20ms", "interval": "50ms",
                "transfer": "32KiB", "method": "sendfile", "receive": "discard", "window": "100KiB",
                "receive-low-water": "2KiB", "congestion-control": "reno", "pacing": "800Mb/s", "mss": "600B",
                "dscp": "ef", "sender-cores": "0", "receiver-cores": "0", "memory-node": 0, "source-port": source,
                "destination-port": port, "bind-address": "127.0.0.1", "bind-interface": "lo",
                "receiver-pause": "1us", "receiver-work": "1us",
            }),
        ),
        (
            "flow",
            json!({
                "flows": 2, "bytes": "1MiB", "send-buffer": "50KiB", "receive-buffer": "60KiB",
                "force-buffers": true, "source-ports": [first, second], "warm-up": "0s",
            }),
        ),
        (
            "flow",
            json!({
                "protocol": "udp", "datagram": "1000B", "burst-flows": 1, "burst-on": "20ms", "burst-off": "10ms",
                "duration": "150ms", "warm-up": "0s", "pacing": "100Mb/s",
            }),
        ),
        (
            "flow",
            json!({
                "direction": "both", "sender-cores": "0", "receiver-cores": "1", "duration": "100ms",
                "warm-up": "0s",
            }),
        ),
        (
            "probe",
            json!({
                "count": 3, "interval": "5ms", "size": "100B", "timeout": "500ms", "destination-port": other,
                "rate": "1Gb/s",
            }),
        ),
        (
            "message",
            json!({
                "kind": "stream", "size": "1KiB", "window": 3, "method": "busy-poll", "duration": "50ms",
                "warm-up": "5ms", "verify": true, "nagle": true, "send-buffer": "50KiB", "receive-buffer": "60KiB",
                "client-core": 0, "server-core": 0, "destination-port": another,
            }),
        ),
        ("message", json!({ "sizes": "1B-64B", "perturbation": "1B", "iterations": 3, "warm-up": "0s" })),
        (
            "overlap",
            json!({
                "transport": "iwarp", "method": "post-work-wait", "progress": "offloaded", "size": "1KiB",
                "window": 2, "work": "100-1000", "per-decade": 1, "duration": "20ms", "warm-up": "1ms",
                "verify": true, "client-core": 0, "server-core": 0, "destination-port": another,
            }),
        ),
        ("overlap", json!({ "iterations": 3, "work": "100-100" })),
        (
            "rdma",
            json!({
                "size": "1KiB", "both-ways": true, "queue-pairs": 2, "depth": 8, "duration": "100ms",
                "warm-up": "5ms", "progress": "offloaded", "wait": "poll", "core": 0, "remote-core": 0,
                "no-crc": true, "markers": true, "large-fpdus": true, "outstanding-reads": 4, "inline": "0B",
                "verify": true, "immediate": true,
            }),
        ),
        ("rdma", json!({ "latency": true, "iterations": 10, "revision": 1, "size": "64B" })),
        (
            "verbs-calls",
            json!({
                "call": "register-memory", "count": 10, "warm-up-count": 2, "size": "8KiB", "pin": true,
                "progress": "offloaded", "core": 0,
            }),
        ),
        (
            "storage-stream",
            json!({
                "directory": directory, "tasks": 2, "transfer": "4KiB", "block": "64KiB", "segments": 2,
                "file-per-process": true, "iterations": 2, "write": true, "read": true, "single-attempt": true,
                "reorder": "constant", "reorder-offset": 1, "seed": 5,
                "fsync": true, "stonewall": "5s", "wear-out": true, "barriers": true, "verify": true,
                "backend": "io-uring", "queue-depth": 2, "pause": "1ms", "keep": true, "name": "kept",
            }),
        ),
        (
            "storage-stream",
            json!({ "directory": directory, "block": "64KiB", "transfer": "4KiB", "random-offsets": true, "tasks": 2, "segments": 2, "file-per-process": true, "data": "zero", "fsync-per-write": true, "mix-reads": 50,
                    "write": true, "existing": true, "name": "kept" }),
        ),
        (
            "storage-metadata",
            json!({
                "directory": directory, "items": 4, "depth": 1, "branching": 2, "unique-directory": true,
                "files-only": true, "phases": ["create", "read", "remove"], "write-bytes": "10B", "data": "zero",
                "fsync": true, "leaves-only": true, "wear-out": true, "read-bytes": "10B", "iterations": 2,
                "stonewall": "5s", "tasks": 2, "stride": 1,
            }),
        ),
        (
            "storage-metadata",
            json!({ "directory": directory, "items-per-directory": 2, "items": 4, "depth": 1, "directories-only": true,
                    "keep": true, "name": "items" }),
        ),
    ]
}

/// Options that another host, program or right is needed for, and why: of these only the request is looked at.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("all-pairs", "*", "several hosts"),
    ("explore", "*", "an MPI library"),
    ("live-traffic", "*", "an MPI library"),
    ("gateways", "*", "a lab with gateways"),
    ("inspect", "*", "it has none"),
    ("flow", "steer", "receive queues of a card"),
    ("flow", "steer-interface", "receive queues of a card"),
    ("message", "transport", "an MPI library"),
    ("message", "mpirun", "an MPI library"),
    ("message", "mpi-library", "an MPI library"),
    ("overlap", "mpirun", "an MPI library"),
    ("overlap", "mpi-library", "an MPI library"),
    ("rdma", "perftest", "a peer that is perftest"),
    ("rdma", "rx-depth", "a peer that is perftest"),
    ("storage-stream", "hosts", "several hosts"),
    ("storage-stream", "mpirun", "an MPI library"),
    ("storage-stream", "mpi-library", "an MPI library"),
    ("storage-stream", "direct", "a file system that has it"),
    ("storage-stream", "drop-caches", "root"),
    ("storage-stream", "operations", "the command: a study has its record"),
    ("storage-metadata", "operations", "the command: a study has its record"),
    ("storage-metadata", "hosts", "several hosts"),
    ("storage-metadata", "mpirun", "an MPI library"),
    ("storage-metadata", "mpi-library", "an MPI library"),
    ("storage-metadata", "more-directories", "several file systems"),
    ("storage-semantics", "*", "a lab with storage"),
];

/// What is in effect, by experiment, where the standard or the kernel's documents say what that must be.
fn effective() -> Vec<(&'static str, &'static str, Value)> {
    let twice = |kib: u64| json!(2 * (kib << 10));
    vec![
        ("flow-0", "flows", json!(2)),
        ("flow-0", "transfer", json!(32 << 10)),
        ("flow-0", "method", json!("sendfile")),
        ("flow-0", "receive", json!("discard")),
        // socket(7): doubled.
        ("flow-0", "window", twice(100)),
        ("flow-0", "receive-low-water", json!(2 << 10)),
        ("flow-0", "congestion-control", json!("reno")),
        ("flow-0", "pacing", json!(800_000_000)),
        // RFC 9293, section 3.7.1 and RFC 7323: 12 bytes of each segment are for time stamps.
        ("flow-0", "mss", json!(588)),
        // RFC 3246
        ("flow-0", "dscp", json!(46)),
        ("flow-0", "sender-cores", json!([0, 0])),
        ("flow-0", "receiver-cores", json!([0, 0])),
        ("flow-0", "bind-address", json!("127.0.0.1")),
        ("flow-0", "bind-interface", json!("lo")),
        ("flow-1", "send-buffer", twice(50)),
        ("flow-1", "receive-buffer", twice(60)),
        ("flow-2", "datagram", json!(1000)),
        // A host that does both has a thread for each.
        ("flow-3", "sender-cores", json!([0])),
        ("flow-3", "receiver-cores", json!([1])),
        ("probe-0", "count", json!(3)),
        ("message-0", "send-buffer", twice(50)),
        ("message-0", "receive-buffer", twice(60)),
        ("message-0", "nagle", json!(true)),
        ("message-0", "client-core", json!(0)),
        ("message-0", "server-core", json!(0)),
        ("overlap-0", "client-core", json!(0)),
        ("rdma-0", "no-crc", json!(true)),
        ("rdma-0", "markers", json!(true)),
        ("rdma-0", "depth", json!(8)),
        ("rdma-0", "outstanding-reads", json!(4)),
        ("rdma-0", "immediate", json!(true)),
        ("rdma-0", "inline", json!(0)),
        ("rdma-0", "progress", json!("offloaded")),
        ("rdma-0", "core", json!(0)),
        ("rdma-1", "revision", json!(1)),
    ]
}

/// All options of a workload, as its error names them.
fn options_of(workload: &str) -> BTreeSet<String> {
    let registry = registry();
    let workload = registry.workload(workload).unwrap();
    let error = workload.with(&workload.defaults(), "no-such-option", &json!(1), &[]).unwrap_err();
    let Some((_, known)) = error.split_once("(known: ") else { return BTreeSet::new() };
    let known = known.trim_end_matches(')').split(", ").filter(|name| !name.is_empty());
    // Another spelling of `destination-port`.
    known.filter(|name| *name != "port").map(str::to_owned).collect()
}

#[test]
fn every_option_is_set_by_a_test() {
    let folder = Path::new("/");
    let mut set: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (workload, options) in sets(folder) {
        set.entry(workload).or_default().extend(options.as_object().unwrap().keys().cloned());
    }
    for name in registry().names() {
        let mut known = set.remove(name).unwrap_or_default();
        let all = options_of(name);
        let elsewhere = ELSEWHERE.iter().filter(|(workload, ..)| *workload == name);
        for (_, option, _) in elsewhere {
            known.extend(if *option == "*" { all.clone() } else { BTreeSet::from([(*option).to_owned()]) });
        }
        assert_eq!(known, all, "{name}: a new option belongs into a set of this file");
    }
}

fn study(sets: &[(&str, Value)]) -> String {
    let mut text =
        "schema = \"clearstream.study\"\nversion = 1\nname = \"settings\"\ntitle = \"settings\"\n".to_owned();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (workload, options) in sets {
        let count = counts.entry(workload).or_default();
        let options: Map<String, Value> = options.as_object().unwrap().clone();
        text += &format!(
            "[[experiment]]\nname = \"{workload}-{count}\"\ntitle = \"{workload}\"\nworkload = \"{workload}\"\n\
             repetitions = 1\n[experiment.{workload}]\n{}",
            toml::to_string(&options).unwrap()
        );
        *count += 1;
    }
    text
}

/// Also to the report: the name of each in its table.
#[test]
fn every_option_that_is_asked_for_is_in_record_and_report_with_what_became_of_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("files")).unwrap();
    let sets = sets(folder.path());
    let file = folder.path().join("settings.toml");
    fs::write(&file, study(&sets)).unwrap();
    let runs = folder.path().join("runs");
    run(&["study", "run", file.to_str().unwrap(), "--to", "localhost", "--runs", runs.to_str().unwrap()])
        .ok();
    let record = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let mut found: BTreeMap<String, Vec<SettingValue>> = BTreeMap::new();
    for line in fs::read_to_string(record.join("trials.jsonl")).unwrap().lines() {
        let trial: Value = serde_json::from_str(line).unwrap();
        let settings = &trial["outcome"]["measured"]["settings"];
        assert!(settings.is_array(), "{trial}");
        let settings = serde_json::from_value(settings.clone()).unwrap();
        found.insert(trial["experiment"].as_str().unwrap().to_owned(), settings);
    }
    let out = folder.path().join("report.md");
    run(&["report", record.to_str().unwrap(), "--format", "markdown", "--out", out.to_str().unwrap()]).ok();
    let report = fs::read_to_string(out).unwrap();
    let table = report.split("## Settings: requested and effective").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap().replace("**", "");
    let of = |experiment: &str, option: &str| -> Vec<SettingValue> {
        let answers = |one: &&SettingValue| one.name == option || one.requested_by.as_deref() == Some(option);
        found[experiment].iter().filter(answers).cloned().collect()
    };
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (workload, options) in &sets {
        let count = counts.entry(workload).or_default();
        let experiment = format!("{workload}-{count}");
        *count += 1;
        for option in options.as_object().unwrap().keys() {
            let settings = of(&experiment, option);
            assert!(
                !settings.is_empty(),
                "{experiment}: {option} is not in the record: {:?}",
                found[&experiment]
            );
            assert!(
                settings.iter().any(|one| one.requested.is_some()),
                "{experiment}: {option}: {settings:?}"
            );
            for setting in settings {
                let name = setting.name.replace('-', " ");
                let row = |line: &str| {
                    let of_it = line.starts_with(&format!("| {name} |"))
                        || line.starts_with(&format!("| {name} (differs) |"));
                    of_it && (line.ends_with("| all |") || line.contains(experiment.as_str()))
                };
                assert!(table.lines().any(row), "{experiment}: {name} is not in the report: {table}");
            }
        }
    }
    for (experiment, option, expected) in effective() {
        let settings = of(experiment, option);
        assert!(!settings.is_empty(), "{experiment}: {option}");
        for setting in settings {
            assert_eq!(setting.effective, Some(expected.clone()), "{experiment}: {option}: {setting:?}");
        }
    }
    assert!(table.contains("| mss (differs) |") && table.contains("| dscp |"), "{table}");
    assert!(table.contains("| chosen by clearstream |"), "of the flows without --transfer: {table}");
}
