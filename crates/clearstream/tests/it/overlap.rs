//! `clearstream overlap` as its users run it, on loopback and in a lab, against
//! what the kernel counts.

use crate::common;
use std::{fs, process::Command, time::Duration};

use crate::common::{Lab, assert_valid, clearstream, eventually, finish, run, signal};
use clearstream_messages::overlap::{OVERLAP_SUMMARY_SCHEMA, OverlapSummary};
use clearstream_record::Reader;
use clearstream_schema::{outcome::Unit, record::TrialDocument};
use serde_json::Value;

const QUICK: [&str; 12] = [
    "overlap",
    "--to",
    "localhost",
    "--work",
    "100-10000",
    "--per-decade",
    "1",
    "-t",
    "20ms",
    "-O",
    "5ms",
    "--json",
];

const CARRIERS: [&[&str]; 4] = [
    &["--transport", "tcp"],
    &["--transport", "iwarp", "--progress", "inline"],
    &["--transport", "iwarp", "--progress", "offloaded"],
    &["--transport", "iwarp", "--progress", "adaptive"],
];

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn assert_close(one: f64, other: f64, value: &Value) {
    assert!((one - other).abs() <= 1e-9 * other.abs(), "{one} instead of {other}: {value}");
}

/// Every figure of a point out of its counts and times.
fn check_point(point: &Value, is_polling: bool) {
    let size_bytes = if is_polling { 8_192.0 } else { 102_400.0 };
    let elapsed = number(point, "elapsed_ns");
    let messages = number(point, "server_received_count") + number(point, "client_received_count");
    assert_eq!(point["server_received_count"], point["client_received_count"], "{point}");
    assert_close(number(point, "availability_ratio"), number(point, "work_alone_ns") / elapsed, point);
    assert_close(number(point, "bandwidth_bps"), messages * size_bytes * 8e9 / elapsed, point);
    if is_polling {
        assert!(point.get("post_ns").is_none() && point.get("wait_ns").is_none(), "{point}");
        return;
    }
    // A window of 16 messages in each direction of every cycle.
    assert_eq!(number(point, "client_received_count"), 16.0 * number(point, "cycle_count"), "{point}");
    let times = ["post_ns", "work_ns", "wait_ns"].map(|key| number(point, key));
    assert_close(times.iter().sum(), elapsed, point);
}

#[test]
fn documents_every_interval_of_work_by_transport_method_and_progress() {
    for carrier in CARRIERS {
        for method in ["polling", "post-work-wait"] {
            // A poll without a message takes a thousandth of one with a verified message of 100 KiB: as many polls as
            // fit into the duration without messages would take half a minute with them.
            let size = if method == "polling" { "8KiB" } else { "100KiB" };
            let arguments = [&QUICK, carrier, &["--method", method, "-s", size, "--verify"]].concat();
            let document = run(&arguments).json();
            assert_valid("overlap", &document);
            assert_eq!(document["schema"], "clearstream.overlap");
            assert_eq!(document["complete"], true);
            let points = document["points"].as_array().unwrap();
            let work: Vec<u64> = points.iter().map(|point| point["work_count"].as_u64().unwrap()).collect();
            assert_eq!(work, [100, 1000, 10_000], "{carrier:?} {method}");
            points.iter().for_each(|point| check_point(point, method == "polling"));
            // The work alone takes no longer than beside messages, unless others took its core: not in every point.
            let least =
                points.iter().map(|point| number(point, "availability_ratio")).fold(f64::INFINITY, f64::min);
            assert!((0.0..=1.05).contains(&least), "{document}");
            let is_iwarp = carrier[1] == "iwarp";
            assert_eq!(document["client"].get("mulpdu_bytes").is_some(), is_iwarp, "{document}");
            assert_eq!(document["server"].get("segment_bytes").is_some(), !is_iwarp, "{document}");
        }
    }
}

#[test]
fn people_see_a_line_per_interval_and_the_headline() {
    let arguments = [
        "overlap",
        "--to",
        "localhost",
        "--work",
        "1000",
        "-n",
        "20",
        "-O",
        "1ms",
        "--method",
        "post-work-wait",
    ];
    let text = run(&arguments).ok().to_owned();
    assert!(
        text.starts_with("post, work, wait over TCP: 16 messages of 100 KiB in each direction"),
        "{text}"
    );
    assert!(text.lines().any(|line| line.trim_start().starts_with("1000 ")), "{text}");
    assert!(text.contains("of the client's core free for work (work of 1000 iterations)"), "{text}");
    let iwarp = run(&[&arguments[..9], &["--transport", "iwarp", "--progress", "offloaded"]].concat());
    assert!(
        iwarp.ok().starts_with("polling over iWARP, offloaded progress: 16 messages"),
        "{}",
        iwarp.stdout
    );
}

#[test]
fn options_that_are_invalid_are_rejected_with_what_to_write() {
    let here = |options: &[&str]| run(&[&["overlap", "--to", "localhost"], options].concat());
    here(&["-s", "1GiB"]).refused(2, &["1B to 64MiB"]);
    here(&["-w", "0"]).refused(2, &["window must be 1 to"]);
    here(&["--work", "1e8-1e2"]).refused(2, &["1e2-1e8"]);
    here(&["--progress", "offloaded"]).refused(2, &["--transport iwarp"]);
    here(&["--client-core", "4095"]).refused(2, &["core 4095"]);
    here(&["--work", "much"]).refused_by_usage("--work");
    run(&["overlap"]).refused(2, &["--lab NAME"]);
}

#[test]
fn an_interrupt_keeps_the_intervals_measured() {
    for carrier in CARRIERS {
        let arguments =
            ["overlap", "--to", "localhost", "--work", "100-1000", "-t", "1h", "-O", "1ms", "--json"];
        let child = clearstream(&[&arguments, carrier].concat()).spawn().unwrap();
        // Its agents are there: the measurement has begun, or will be stopped when it does.
        eventually(Duration::from_secs(20), "two agents", || common::children(child.id()).len() == 2);
        signal(child.id(), "INT");
        let ended = finish(child, Duration::from_secs(30));
        assert_eq!(ended.code(), 130, "{carrier:?} {}", ended.stderr);
        if !ended.stdout.is_empty() {
            let document: Value = serde_json::from_str(&ended.stdout).unwrap();
            // Of what was measured, or of the interruption alone when nothing was.
            let is_result = document["schema"] == "clearstream.overlap";
            assert!(
                if is_result { document["complete"] == false } else { document["exit_code"] == 130 },
                "{document}"
            );
        }
    }
}

/// Bytes that an interface of a lab's host has received and sent, as `ip` counts them.
fn interface_bytes(lab: &str, host: &str) -> (u64, u64) {
    let output = Command::new(common::program())
        .args(["lab", "exec", lab, host, "--", "ip", "-s", "-j", "link", "show", "eth0"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let links: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counter = |direction: &str| links[0]["stats64"][direction]["bytes"].as_u64().unwrap();
    (counter("rx"), counter("tx"))
}

/// In both directions, by every transport: the messages of the measured cycles, one cycle of the
/// warm-up, and headers.
#[test]
fn root_messages_are_bytes_that_the_interfaces_count() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "overlap-bytes");
    for carrier in CARRIERS {
        let before = interface_bytes(&lab.0, "there");
        let fixed = [
            "overlap",
            "--lab",
            &lab.0,
            "--method",
            "post-work-wait",
            "--work",
            "1000",
            "-n",
            "10",
            "-O",
            "0ms",
            "-w",
            "8",
            "-s",
            "64KiB",
            "--verify",
            "--json",
        ];
        let document = run(&[&fixed, carrier].concat()).json();
        let after = interface_bytes(&lab.0, "there");
        let point = &document["points"][0];
        for (key, counted) in
            [("server_received_count", after.0 - before.0), ("client_received_count", after.1 - before.1)]
        {
            assert_eq!(point[key], 80, "{carrier:?}");
            let least = (80 + 8) * (64 << 10);
            let most = least + least / 8 + (1 << 20);
            assert!(
                (least..=most).contains(&counted),
                "{carrier:?} {key}: {least} to {most}, counted {counted}"
            );
        }
    }
}

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "overlap"
title = "overlap of a test"
[overlap]
duration = "10ms"
warm-up = "1ms"
size = "8KiB"
window = 4
per-decade = 1
[[experiment]]
name = "progress"
title = "Overlap by progress"
workload = "overlap"
repetitions = 2
[experiment.overlap]
transport = "iwarp"
work = "100-10000"
[experiment.factors]
progress = ["inline", "offloaded", "adaptive"]
[[experiment]]
name = "work"
title = "Overlap by work"
workload = "overlap"
metric = "availability"
repetitions = 2
[experiment.overlap]
method = "post-work-wait"
[experiment.factors]
work = [100, 1000, 10000]
[[experiment]]
name = "transport"
title = "Overlap by transport"
workload = "overlap"
repetitions = 2
[experiment.overlap]
progress = "offloaded"
work = "100-10000"
[experiment.factors]
transport = ["tcp", "iwarp"]
"#;

#[test]
fn a_study_by_progress_and_by_work_has_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("overlap.toml");
    fs::write(&study, STUDY).unwrap();
    let runs = folder.path().join("runs");
    let arguments =
        ["study", "run", study.to_str().unwrap(), "--runs", runs.to_str().unwrap(), "--to", "localhost"];
    let ended = finish(clearstream(&arguments).spawn().unwrap(), Duration::from_secs(100));
    assert!(ended.ok().contains("16 of 16 trials done, 0 failed"), "{}", ended.stdout);
    let reader = Reader::open(&fs::read_dir(&runs).unwrap().flatten().next().unwrap().path()).unwrap();
    let trials: Vec<TrialDocument> = reader.trials().unwrap().collect::<Result<_, _>>().unwrap();
    for trial in &trials {
        let outcome = trial.outcome.measured().unwrap();
        let summary: OverlapSummary = outcome.detail(OVERLAP_SUMMARY_SCHEMA).unwrap().unwrap();
        assert_valid("overlap-summary", &serde_json::to_value(&summary).unwrap());
        assert_eq!(outcome.headline().unwrap().name, "bandwidth");
        let is_single = trial.experiment == "work";
        assert_eq!(summary.points.len(), if is_single { 1 } else { 3 }, "{trial:?}");
        let bandwidth = outcome.series.iter().find(|series| series.name == "bandwidth").unwrap();
        assert_eq!((bandwidth.x.name.as_str(), bandwidth.x.unit), ("availability", Unit::Ratio));
        assert_eq!(bandwidth.points.len(), summary.points.len());
        for sample in reader.samples::<Value>(trial).unwrap() {
            assert_valid("overlap-point", &sample.unwrap());
        }
    }
    let page = clearstream_report::html(&reader).unwrap();
    for text in [
        "Overlap by progress: bandwidth against availability",
        "Overlap by work: availability against work",
        "Overlap by transport: bandwidth against availability",
        // A tick of the availability.
        ">80 %<",
    ] {
        assert!(page.contains(text), "{text}");
    }
}
