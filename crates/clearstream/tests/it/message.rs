//! `clearstream message` as its users run it, on loopback and in a lab, against
//! what the kernel counts.

use crate::common;
use std::{process::Command, time::Duration};

use crate::common::{Lab, assert_valid, clearstream, eventually, finish, run, signal};

/// Bytes that an interface of a lab's host has received and sent, as `ip` counts them.
fn interface_bytes(lab: &str, host: &str) -> (u64, u64) {
    let output = Command::new(common::program())
        .args(["lab", "exec", lab, host, "--", "ip", "-s", "-j", "link", "show", "eth0"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counter = |direction: &str| links[0]["stats64"][direction]["bytes"].as_u64().unwrap();
    (counter("rx"), counter("tx"))
}

#[test]
fn documents_every_size_and_what_is_effective() {
    let document = run(&[
        "message",
        "--to",
        "localhost",
        "--sizes",
        "1B-1KiB",
        "-t",
        "5ms",
        "-O",
        "1ms",
        "--verify",
        "--json",
    ])
    .json();
    assert_valid("message", &document);
    assert_eq!(document["schema"], "clearstream.message");
    assert_eq!(document["complete"], true);
    let points = document["points"].as_array().unwrap();
    let sizes: Vec<u64> = points.iter().map(|point| point["size_bytes"].as_u64().unwrap()).collect();
    assert!(sizes.is_sorted() && sizes.contains(&1021) && sizes.contains(&1027), "{sizes:?}");
    for point in points {
        let latency = |name: &str| point["latency"][name].as_u64().unwrap();
        assert!(latency("min_ns") > 0, "{point}");
        assert!(latency("min_ns") <= latency("p50_ns") && latency("p50_ns") <= latency("p99_ns"), "{point}");
        assert!(latency("p99_ns") <= latency("max_ns") && latency("mean_ns") <= latency("max_ns"), "{point}");
        assert_eq!(point["server_received_count"], point["iteration_count"]);
        assert_eq!(point["client_received_count"], point["iteration_count"]);
        // Half of the round trips fill the time.
        let whole = 2 * latency("mean_ns") * point["iteration_count"].as_u64().unwrap();
        assert!(whole <= point["elapsed_ns"].as_u64().unwrap(), "{point}");
    }
    assert_eq!(document["client"]["no_delay"], true);
    assert_eq!(document["server"]["no_delay"], true);
}

#[test]
fn people_see_a_line_per_size() {
    let text = run(&["message", "--to", "localhost", "-s", "64B", "-n", "20", "-O", "1ms"]).ok().to_owned();
    assert!(text.starts_with("ping-pong by blocking calls"), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with("64 ")), "{text}");
    assert!(text.contains("TCP_NODELAY"), "{text}");
    let stream = run(&[
        "message",
        "--to",
        "localhost",
        "-s",
        "4KiB",
        "-n",
        "3",
        "-O",
        "1ms",
        "--kind",
        "bidirectional",
        "-w",
        "16",
    ]);
    assert!(stream.ok().contains("windows of 16 messages each"), "{}", stream.stdout);
}

#[test]
fn options_that_are_invalid_are_rejected_with_what_to_write() {
    let here = |options: &[&str]| {
        let mut arguments = vec!["message", "--to", "localhost"];
        arguments.extend(options);
        run(&arguments)
    };
    here(&["-s", "1GiB"]).refused(2, &["1B to 64MiB"]);
    here(&["--kind", "stream", "-w", "0"]).refused(2, &["window must be 1 to"]);
    here(&["--sizes", "8KiB-1B"]).refused(2, &["1B-8MiB"]);
    here(&["--client-core", "4095"]).refused(2, &["core 4095"]);
    here(&["--sizes", "many"]).refused_by_usage("--sizes");
    run(&["message"]).refused(2, &["--lab NAME"]);
}

#[test]
fn an_interrupt_keeps_the_sizes_measured() {
    let child =
        clearstream(&["message", "--to", "localhost", "--sizes", "1B-2B", "-t", "1h", "-O", "1ms", "--json"])
            .spawn()
            .unwrap();
    // Its agents are there: the measurement has begun, or will be stopped when it does.
    eventually(Duration::from_secs(20), "two agents", || common::children(child.id()).len() == 2);
    signal(child.id(), "INT");
    let ended = finish(child, Duration::from_secs(30));
    assert_eq!(ended.code(), 130, "{}", ended.stderr);
    if !ended.stdout.is_empty() {
        let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        // Nothing was measured yet, or not all of it.
        assert!(document["complete"] == false || document["exit_code"] == 130, "{document}");
    }
}

/// One experiment: the bytes that the program reports as received against the counters of
/// the interfaces between the hosts.
fn compare_with_counters(lab: &str, kind: &str, method: &str) {
    let (received_before, sent_before) = interface_bytes(lab, "there");
    let mut arguments = vec![
        "message", "--lab", lab, "--kind", kind, "--method", method, "-s", "64KiB", "-n", "10", "-O", "0ms",
        "--verify", "--json",
    ];
    if kind != "ping-pong" {
        arguments.extend(["-w", "8"]);
    }
    let document = run(&arguments).json();
    let (received, sent) = interface_bytes(lab, "there");
    assert_valid("message", &document);
    let point = &document["points"][0];
    let bytes = |key: &str| point[key].as_u64().unwrap() * (64 << 10);
    let both_ways = [
        ("server_received_count", received - received_before, kind != "ping-pong"),
        ("client_received_count", sent - sent_before, kind == "bidirectional"),
    ];
    for (key, counted, is_windowed) in both_ways {
        let messages = if is_windowed { 8 } else { 1 };
        // The one iteration of the warm-up, Ethernet, IP and TCP headers, and acknowledgements.
        let least = bytes(key) + if bytes(key) > 0 { messages * (64 << 10) } else { 0 };
        let most = least + least / 8 + (1 << 20);
        assert!(
            (least..=most).contains(&counted),
            "{kind} {method} {key}: {least} to {most}, counted {counted}"
        );
    }
}

#[test]
fn root_bytes_are_those_that_the_interfaces_count() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "message-bytes");
    for kind in ["ping-pong", "stream", "bidirectional"] {
        for method in ["blocking", "busy-poll", "io-uring"] {
            compare_with_counters(&lab.0, kind, method);
        }
    }
}

/// The delay line of a lab gives a latency that does not depend on this machine.
#[test]
fn root_latency_is_half_of_the_round_trip_of_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("message-delay.toml");
    let link = "mtu = 1500\ndelay = \"20ms\"";
    std::fs::write(&path, clearstream_testkit::lab::two_hosts("message-delay", link)).unwrap();
    let lab = Lab::up(&path, "message-delay");
    let document = run(&["message", "--lab", &lab.0, "-s", "1B", "-n", "10", "-O", "1ms", "--json"]).json();
    let latency = document["points"][0]["latency"]["min_ns"].as_u64().unwrap();
    assert!(latency >= 20_000_000, "{latency} ns: the line holds each packet for 20 ms");
    let ping = Command::new(common::program())
        .args(["lab", "exec", &lab.0, "here", "--", "ping", "-c", "3", "-q", "10.0.0.2"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ping.stdout).into_owned();
    let least = text.split("mdev = ").nth(1).and_then(|times| times.split('/').next()).unwrap();
    let least_ns = least.parse::<f64>().unwrap() * 1e6;
    assert!(
        2.0 * latency as f64 > 0.9 * least_ns,
        "half of {least_ns} ns is expected, not {latency}: {text}"
    );
}

#[test]
fn root_the_series_and_metrics_of_a_study_are_those_of_the_workload() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "message-study");
    let study = folder.path().join("sizes.toml");
    std::fs::write(&study, STUDY).unwrap();
    let runs = folder.path().join("runs");
    run(&["study", "run", study.to_str().unwrap(), "--lab", &lab.0, "--runs", runs.to_str().unwrap()]).ok();
    let record = std::fs::read_dir(&runs).unwrap().flatten().next().unwrap().path();
    let trials = std::fs::read_to_string(record.join("trials.jsonl")).unwrap();
    let mut cells = 0;
    for line in trials.lines() {
        let trial: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(metrics) = trial["outcome"]["measured"]["metrics"].as_array() else { continue };
        cells += 1;
        let names: Vec<&str> = metrics.iter().map(|metric| metric["name"].as_str().unwrap()).collect();
        assert_eq!(names[0], "latency", "the headline: {line}");
        let Some(size) = trial["factors"]["size"].as_str() else { continue };
        let points = trial["outcome"]["measured"]["series"][0]["points"].as_array().unwrap();
        let expected = if size == "1B" { 2 } else { 3 };
        assert_eq!(points.len(), expected, "the size and its perturbations: {line}");
    }
    assert_eq!(cells, 9 + 2, "three sizes by three methods, and a range by two");
    let page = std::fs::read_to_string(record.join("report.html")).unwrap();
    let drawn = page.matches("against size").count();
    assert!(drawn >= 2, "the metric over the factor, and over the series of a range: {drawn}");
    assert!(page.contains("Range: latency against size"), "one trial has all sizes");
}

const STUDY: &str = r#"schema = "clearstream.study"
version = 1
name = "sizes"
title = "Sizes"
[[experiment]]
name = "by-size"
title = "Latency"
workload = "message"
figure = "curve"
[experiment.message]
iterations = 20
warm-up = "1ms"
perturbation = "3B"
[experiment.factors]
size = ["1B", "64B", "1KiB"]
method = ["blocking", "busy-poll", "io-uring"]
client-core = [0]
[[experiment]]
name = "range"
title = "Range"
workload = "message"
figure = "curve"
[experiment.message]
sizes = "1B-256B"
iterations = 20
warm-up = "1ms"
[experiment.factors]
method = ["blocking", "busy-poll"]
"#;
