//! The workloads `rdma` and `verbs-calls` with the whole binary: between agents,
//! in a lab, in studies.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, assert_valid, clearstream, finish, run};
use clearstream::workloads::registry;
use clearstream_rdma::{VERBS_SUMMARY_SCHEMA, VerbsSummary};
use clearstream_record::Reader;
use clearstream_schema::{
    rdma::{RDMA_SUMMARY_SCHEMA, RdmaSample, RdmaSummary},
    record::TrialDocument,
};
use clearstream_study::{PRACTICAL_RATIO, compare_levels, file};
use serde_json::{Value, json};

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "verbs"
title = "verbs of a test"
[rdma]
duration = "60ms"
warm-up = "10ms"
[[experiment]]
name = "rates"
title = "Rates"
workload = "rdma"
figure = "bars"
repetitions = 6
[experiment.rdma]
operation = "send"
size = "8KiB"
no-crc = true
[experiment.factors]
progress = ["inline", "offloaded"]
[[experiment]]
name = "calls"
title = "Calls"
workload = "verbs-calls"
figure = "bars"
[experiment.verbs-calls]
count = 20
[experiment.factors]
call = ["poll-empty", "connect", "register-memory"]
[[experiment.published]]
label = "Connect Queue Pair"
source = "a paper, table 1"
metric = "time"
unit = "us"
low = 305536.34
high = 305536.34
factors = { call = "connect" }
"#;

const IMMEDIATE: &str = r#"
schema = "clearstream.study"
version = 1
name = "immediate"
title = "immediate data of messages"
[rdma]
duration = "60ms"
warm-up = "10ms"
[[experiment]]
name = "with"
title = "With and without"
workload = "rdma"
figure = "bars"
[experiment.rdma]
size = "64B"
[experiment.factors]
operation = ["send", "write"]
immediate = [false, true]
[[experiment]]
name = "empty"
title = "Empty messages and others"
workload = "rdma"
figure = "bars"
[experiment.rdma]
immediate = true
[experiment.factors]
size = ["0B", "64B"]
"#;

/// Runs the study of the test; its record.
fn studied(folder: &Path, place: &[&str]) -> Reader {
    studied_all(STUDY, "15 of 15 trials done, 0 failed", folder, place)
}

fn studied_all(text: &str, ending: &str, folder: &Path, place: &[&str]) -> Reader {
    let study = folder.join("verbs.toml");
    fs::write(&study, text).unwrap();
    let runs = folder.join("runs");
    let (study, runs_text) = (study.to_str().unwrap(), runs.to_str().unwrap());
    let arguments = [&["study", "run", study, "--runs", runs_text], place].concat();
    let ended = finish(clearstream(&arguments).spawn().unwrap(), Duration::from_secs(100));
    assert!(ended.ok().contains(ending), "{}", ended.stdout);
    Reader::open(&fs::read_dir(&runs).unwrap().flatten().next().unwrap().path()).unwrap()
}

fn check(reader: &Reader) {
    let trials: Vec<TrialDocument> = reader.trials().unwrap().collect::<Result<_, _>>().unwrap();
    for trial in &trials {
        let outcome = trial.outcome.measured().unwrap();
        assert!(outcome.complete && !outcome.series.is_empty(), "{trial:?}");
        if trial.workload == "rdma" {
            let summary: RdmaSummary = outcome.detail(RDMA_SUMMARY_SCHEMA).unwrap().unwrap();
            assert_valid("rdma-summary", &serde_json::to_value(&summary).unwrap());
            assert_eq!(outcome.headline().unwrap().value, summary.results[0].forward.goodput_bps);
            let settings: BTreeMap<&str, Option<&Value>> = outcome
                .settings
                .iter()
                .map(|setting| (setting.name.as_str(), setting.effective.as_ref()))
                .collect();
            assert_eq!(settings["no-crc"], Some(&json!(true)));
            assert_eq!(settings["revision"], Some(&json!(2)));
            assert_eq!(settings["progress"], trial.factors.get("progress"));
            let samples: Vec<RdmaSample> = reader.samples(trial).unwrap().collect::<Result<_, _>>().unwrap();
            let counted: u64 = samples.iter().filter(|one| !one.warm_up).map(|one| one.message_count).sum();
            assert_eq!(counted, summary.results[0].forward.message_count);
            for sample in &samples {
                assert_valid("rdma-sample", &serde_json::to_value(sample).unwrap());
            }
        } else {
            let summary: VerbsSummary = outcome.detail(VERBS_SUMMARY_SCHEMA).unwrap().unwrap();
            assert_valid("verbs-calls", &serde_json::to_value(&summary).unwrap());
            assert_eq!(outcome.series[0].points.len(), 20);
        }
    }
    columns_are_unique_and_have_every_metric(reader);
    let page = clearstream_report::html(reader).unwrap();
    for text in ["Rates: bandwidth of each cell", "Calls: time of each cell", "Connect Queue Pair"] {
        assert!(page.contains(text), "{text}");
    }
    let compared =
        compare_levels(reader, "progress=inline", "progress=offloaded", None, PRACTICAL_RATIO).unwrap();
    assert!(compared.cells.iter().all(|cell| cell.metric.name == "bandwidth" && cell.pair_count == 6));
}

/// Other workloads have columns of the same names.
fn columns_are_unique_and_have_every_metric(reader: &Reader) {
    let text = clearstream_report::csv(reader).unwrap();
    let mut lines = text.split("\r\n").map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let names: std::collections::BTreeSet<&&str> = header.iter().collect();
    assert_eq!(names.len(), header.len(), "{header:?}");
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let (workload, cost) = (column("outcome"), column("client_cpu_seconds_per_gb"));
    let rates: Vec<_> = lines.filter(|line| line.get(workload) == Some(&"rdma")).collect();
    assert_eq!(rates.len(), 12);
    assert!(rates.iter().all(|line| line[cost].parse::<f64>().unwrap() > 0.0), "{text}");
}

#[test]
fn a_study_on_this_host_keeps_metrics_settings_samples_and_draws_them() {
    let folder = tempfile::tempdir().unwrap();
    check(&studied(folder.path(), &["--to", "localhost"]));
}

#[test]
fn immediate_data_is_a_factor_and_the_headline_of_empty_messages_is_their_rate() {
    let folder = tempfile::tempdir().unwrap();
    let reader =
        studied_all(IMMEDIATE, "6 of 6 trials done, 0 failed", folder.path(), &["--to", "localhost"]);
    for trial in reader.trials().unwrap().map(Result::unwrap) {
        let outcome = trial.outcome.measured().unwrap();
        let summary: RdmaSummary = outcome.detail(RDMA_SUMMARY_SCHEMA).unwrap().unwrap();
        assert_valid("rdma-summary", &serde_json::to_value(&summary).unwrap());
        let expected = trial.factors.get("immediate").unwrap_or(&Value::Bool(true));
        let setting = outcome.settings.iter().find(|setting| setting.name == "immediate").unwrap();
        assert_eq!(
            (setting.requested.as_ref(), setting.effective.as_ref()),
            (Some(expected), Some(expected))
        );
        let verified = summary.results[0].immediate_verified;
        assert_eq!(verified.is_some(), *expected, "{trial:?}");
        assert_ne!(verified, Some(false), "{trial:?}");
        let (name, forward) = (&outcome.headline().unwrap().name, &summary.results[0].forward);
        assert!(forward.message_count > 0, "{trial:?}");
        assert_eq!(name, if forward.bytes == 0 { "message-rate" } else { "bandwidth" }, "{trial:?}");
    }
    let page = clearstream_report::html(&reader).unwrap();
    assert!(page.contains("Empty messages and others"), "{page}");
}

/// Bytes that the interface of a lab's host has sent, as iproute2 reports them.
fn sent_bytes(lab: &str, host: &str) -> u64 {
    let mut command = Command::new("ip");
    command.args(["-json", "-stats", "link", "show", "dev", "eth0"]);
    let lab = clearstream_lab::open(lab).unwrap();
    let output = lab.command(host, command).unwrap().output().unwrap();
    let links: Value = serde_json::from_slice(&output.stdout).unwrap();
    links[0]["stats64"]["tx"]["bytes"].as_u64().unwrap()
}

#[test]
fn root_both_ends_are_on_the_hosts_of_a_lab_and_the_interface_carries_what_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::of_two_hosts(folder.path(), "rdmalab");
    let count = 500;
    let arguments = |operation| {
        let messages = ["-n", "500", "-O", "0s", "--size", "64KiB"];
        [&["rdma", operation, "--lab", "rdmalab", "--json"], messages.as_slice()].concat()
    };
    // A Write goes to the server, a Read comes from there.
    for (operation, sender, other) in [("write", "here", "there"), ("read", "there", "here")] {
        let before = (sent_bytes("rdmalab", sender), sent_bytes("rdmalab", other));
        let summary = &run(&arguments(operation)).json()["summary"];
        assert_valid("rdma-summary", summary);
        let address = summary["effective"]["near"]["address"].as_str().unwrap();
        assert!(address.starts_with("10.0.0.1:"), "the client is on its host: {address}");
        let bytes = summary["results"][0]["forward"]["bytes"].as_u64().unwrap();
        assert_eq!(bytes, count * (64 << 10));
        let sent = sent_bytes("rdmalab", sender) - before.0;
        // Headers of Ethernet, IP, TCP, MPA and DDP beside the payload of a segment.
        assert!(sent >= bytes && sent < bytes * 12 / 10, "{operation}: {sent} bytes for {bytes}");
        let back = sent_bytes("rdmalab", other) - before.1;
        assert!(back < bytes / 5, "{operation}: {back} bytes come back");
    }
    check(&studied(folder.path(), &["--lab", "rdmalab"]));
}

/// The daemon of a test, killed whatever happens.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_paired_daemon_serves_a_study_and_knows_where_its_controller_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let identity = path("identity");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--identity", &identity];
    let mut daemon = Daemon(clearstream(&serve).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(';').next()).unwrap();
    let token = run(&["pair", "create", "tester", "--identity", &identity, "--address", address]);
    fs::write(path("token"), token.ok()).unwrap();
    let mut accept = clearstream(&["pair", "accept", &path("pairing")]);
    let accepting = accept.stdin(fs::File::open(path("token")).unwrap()).spawn().unwrap();
    finish(accepting, Duration::from_secs(20)).ok();
    let pairing = path("pairing");
    check(&studied(folder.path(), &["--to", address, "--pairing", &pairing]));
    let to = ["rdma", "read", "--to", address, "--pairing", &pairing, "--json", "-n", "100", "--verify"];
    assert_eq!(run(&to).json()["summary"]["results"][0]["verified"], true);
}

#[test]
fn agents_exclude_what_only_this_process_can_do() {
    run(&["rdma", "write", "--lab", "two-hosts", "--local"]).refused(2, &["--lab and --hosts exclude"]);
    run(&["rdma", "write", "--pairing", "x", "--local"]).refused(2, &["name the host with --to"]);
    run(&["rdma", "write", "--to", "localhost", "--local"]).refused_by_usage("--local");
    let both = run(&["rdma", "send", "--to", "localhost", "--json", "-t", "50ms", "-O", "10ms"]).json();
    assert_valid("rdma-summary", &both["summary"]);
    run(&["rdma", "send", "--to", "localhost", "--core", "100000"]).refused(2, &["core 100000"]);
}

/// Table 1 and the text of section 3.4, as printed.
#[test]
fn published_values_of_the_paper_are_as_printed() {
    let study = file::load("iwarp-verbs", &registry()).unwrap();
    let published =
        |name: &str| &study.experiments.iter().find(|experiment| experiment.name == name).unwrap().published;
    let calls: Vec<(Value, f64)> = published("verbs-calls")
        .iter()
        .map(|published| {
            assert_eq!((published.metric.as_str(), published.unit.as_str()), ("time", "us"));
            assert_eq!((published.low, published.source.as_str()), (published.high, "paper, table 1"));
            (published.factors["call"].clone(), published.low.unwrap())
        })
        .collect();
    let printed = [
        ("open", 156.15),
        ("close", 81.91),
        ("register-event-handler", 1.96),
        ("register-completion-handler", 694.31),
        ("allocate-domain", 1.13),
        ("create-queue-pair", 78.21),
        ("post-receive", 4.63),
        ("post-send", 4.87),
        ("connect", 305_536.34),
        ("poll-empty", 0.12),
        ("poll-non-empty", 1.96),
    ];
    assert_eq!(calls, printed.map(|(call, time)| (json!(call), time)));
    let registration = &published("registration")[0];
    assert_eq!((registration.low, registration.unit.as_str()), (Some(60.0), "us"));
    // `--quick` ends within a quarter of an hour, also where trials take longer than here.
    let quick = study.experiments.iter().map(|one| one.quick.as_ref().unwrap().budget.unwrap().0);
    let seconds = quick.sum::<u64>() / 1_000_000_000;
    assert!(seconds <= 850, "{seconds} s");
}
