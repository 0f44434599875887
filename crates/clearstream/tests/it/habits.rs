//! What a person sees and writes: tables that fit a terminal, units, options by
//! habit, thresholds, repetitions.

use crate::common;
use std::time::Duration;

use crate::common::{Lab, assert_valid, clearstream, finish, run};
use clap::CommandFactory as _;
use clearstream::verbs::Cli;
use clearstream_testkit::lab::two_hosts;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SHORT: &str = "-t 400ms --warm-up 200ms --interval 200ms";

fn arguments(line: &str) -> Vec<String> {
    let server = format!("{ROOT}/fixtures/hosts/magny-cours-igb.tar.gz");
    line.replace("SHORT", SHORT)
        .replace("SERVER", &server)
        .replace("ROOT", ROOT)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

fn ran(line: &str) -> common::Run {
    let arguments = arguments(line);
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Tables broke numbers and addresses, rows and prose were
/// 100 to 115 columns wide.
#[test]
fn every_verb_fits_80_columns() {
    for line in [
        "flow localhost SHORT",
        "flow localhost SHORT --direction both -P 2",
        "flow localhost SHORT --protocol udp --pacing 50Mbps",
        "flow localhost SHORT --repeat 2 --fail-below 1Mb/s",
        "flow localhost --warm-up 0s -t 1s --latency --pacing 100Mb/s",
        "probe localhost --count 5 --interval 10ms --rate 10Gb/s",
        "diagnose --from ROOT/fixtures/records/clearstream-40ge",
        "message --to localhost --sizes 64B --duration 20ms --warm-up 5ms",
        "overlap --to localhost --work 1000 --duration 20ms --warm-up 5ms --method post-work-wait",
        "inspect --from SERVER",
        "tune plan --rate 40Gb/s --rtt 17ms --from SERVER",
        "tune lint --from SERVER",
        "tune lint ROOT/fixtures/configs/clearstream-40ge/sysctl.conf",
        "plan history",
        "place rank eth1 --from SERVER",
        "place plan eth1 --from SERVER",
        "place ports --source 192.0.2.1 --address 198.51.100.2 --queue-count 8 --key KEY",
        "route plan gateways-6",
        "route lint --from SERVER",
        "study list",
        "study compare ROOT/fixtures/records/clearstream-40ge flows=1 flows=2",
        "cc list",
        "rdma ping --local --count 2",
        "rdma write --local --size 64 --iterations 50",
    ] {
        let key = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";
        fits_80_columns(&line.replace("KEY", key));
    }
}

fn fits_80_columns(line: &str) {
    let arguments = arguments(line);
    let mut command = clearstream(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let ended = finish(command.env("COLUMNS", "80").spawn().unwrap(), Duration::from_secs(60));
    assert!(matches!(ended.code(), 0 | 8), "{line}: {}", ended.stderr);
    for row in ended.stdout.lines() {
        // A command to copy is never broken, nor is a single token.
        let is_command = row.starts_with("       ") && row.contains("clearstream ");
        let long_token = row.split_whitespace().any(|token| token.chars().count() > 70);
        let columns = row.chars().count();
        assert!(columns <= 80 || is_command || long_token, "{line}: {columns} columns: {row}");
    }
}

#[test]
fn root_labs_and_what_is_measured_in_them_fit_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::of_two_hosts(folder.path(), "habits-columns");
    for line in [
        "lab list",
        "lab show habits-columns",
        "flow --lab habits-columns -t 400ms --warm-up 200ms --interval 200ms --direction both",
        "probe --lab habits-columns --count 5 --interval 10ms",
        "study run clearstream-40ge --dry-run --lab wan-1650km",
    ] {
        fits_80_columns(line);
    }
}

#[test]
fn addresses_and_heads_stay_whole_at_80_columns() {
    let mut command = clearstream(&["flow", "localhost", "-t", "200ms", "-O", "0", "-i", "100ms"]);
    let ended = finish(command.env("COLUMNS", "80").spawn().unwrap(), Duration::from_secs(60));
    let text = ended.ok();
    for whole in ["transfer", "segment", "send buf", "not pinned", "client 127.0.0.1:", "server 127.0.0.1:"] {
        assert!(text.contains(whole), "{whole}:\n{text}");
    }
}

#[test]
fn both_directions_have_rows_and_figures_of_their_own() {
    let text = ran("flow localhost SHORT --direction both");
    let text = text.ok();
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" s") && line.contains("b/s")).collect();
    for mark in [" > ", " < "] {
        assert!(rows.iter().any(|row| row.contains(mark)), "{mark}:\n{text}");
    }
    assert!(text.contains("client to server: ") && text.contains("server to client: "), "{text}");
    let document = ran("flow localhost SHORT --direction both --json").json();
    let directions = document["summary"]["directions"].as_array().unwrap();
    let names: Vec<_> = directions.iter().map(|one| one["direction"].as_str().unwrap()).collect();
    assert_eq!(names, ["forward", "reverse"]);
    let of = |one: &Value| one["received_bytes"].as_u64().unwrap();
    assert!(directions.iter().all(|one| of(one) > 0));
    let sum: u64 = directions.iter().map(of).sum();
    assert_eq!(document["summary"]["received_bytes"], sum);
    for interval in document["intervals"].as_array().unwrap() {
        let each = interval["directions"].as_array().unwrap();
        let sum: f64 = each.iter().map(|one| one["goodput_bps"].as_f64().unwrap()).sum();
        assert!((sum - interval["goodput_bps"].as_f64().unwrap()).abs() < 1.0, "{interval}");
    }
}

/// The retransmits of the intervals are those of the whole.
#[test]
fn retransmits_of_intervals_add_up_to_those_of_the_summary() {
    let document = ran("flow localhost SHORT --json").json();
    let sum: u64 = document["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|interval| interval["warm_up"] == false)
        .map(|interval| interval["directions"][0]["retransmit_count"].as_u64().unwrap())
        .sum();
    assert_eq!(document["summary"]["retransmit_count"], sum);
}

#[test]
fn datagrams_are_counted_and_their_jitter_is_measured() {
    let text = ran("flow localhost SHORT --protocol udp --pacing 50Mb/s");
    for expected in ["lost/received", "jitter", "late", "datagrams: ", " reordered", "RFC 3550"] {
        assert!(text.ok().contains(expected), "{expected}:\n{}", text.stdout);
    }
    let document = ran("flow localhost SHORT --protocol udp --pacing 50Mb/s --json").json();
    let one = &document["summary"]["directions"][0];
    assert!(one["datagram_count"].as_u64().unwrap() > 0 && one["jitter_ns"].as_u64().is_some(), "{one}");
    assert_eq!(one["loss_ratio"], document["summary"]["loss_ratio"]);
    let last = document["intervals"].as_array().unwrap().last().unwrap();
    assert!(last["directions"][0]["retransmit_count"].is_null(), "no such thing with UDP");
}

#[test]
fn figures_are_labelled() {
    let text = ran("flow localhost SHORT");
    let text = text.ok();
    for expected in [
        "of the flow threads",
        "whole host, other programs included",
        "TCP round trip at the sender",
        "tcpi_rtt",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    let document = ran("flow localhost SHORT --json").json();
    for side in ["client_cpu", "server_cpu"] {
        let cpu = &document["summary"][side];
        let [threads, host] = ["threads_ratio", "host_ratio"].map(|key| cpu[key].as_f64().unwrap());
        assert!(threads > 0.0 && host > 0.0, "{cpu}");
    }
}

/// Percentage of the intervals after which both threads of flow 0 were on one core.
fn together_percent(document: &Value) -> u64 {
    let intervals = document["intervals"].as_array().unwrap();
    let measured = intervals.iter().filter(|interval| interval["warm_up"] == false);
    let cores = measured.map(|interval| {
        let core = |side: &str, thread: &str| interval[side]["flows"][0][thread].as_u64();
        (core("client", "sender_core"), core("server", "receiver_core"))
    });
    let both: Vec<(u64, u64)> = cores.filter_map(|(sender, receiver)| sender.zip(receiver)).collect();
    let together = both.iter().filter(|(sender, receiver)| sender == receiver).count() as u64;
    together * 100 / both.len() as u64
}

/// One sentence that fits two lines, not three lines of prose, and only where the
/// threads shared a core in at least half of the intervals.
#[test]
fn the_note_about_cores_is_short() {
    let checked = |document: &Value| {
        // The document leaves out an empty list.
        let notices = document["summary"]["notices"].as_array().map_or(&[][..], Vec::as_slice);
        let note = notices.iter().find(|notice| notice["id"] == "cores-chosen");
        let percent = together_percent(document);
        assert_eq!(note.is_some(), percent >= 50, "{percent} %: {note:?}");
        if let Some(note) = note {
            let message = note["message"].as_str().unwrap();
            assert!(message.starts_with("Threads not pinned: ") && message.len() < 200, "{message}");
            assert!(message.ends_with("Pin with --sender-cores / --receiver-cores"), "{message}");
        }
        note.is_some()
    };
    checked(&ran("flow localhost SHORT --cores scheduler --json").json());
    // One core for all threads.
    let core = clearstream_sys::affinity::allowed_cores().unwrap()[0].to_string();
    let program = env!("CARGO_BIN_EXE_clearstream");
    let line = arguments("flow localhost SHORT --cores scheduler --json");
    let one = std::process::Command::new("taskset").args(["-c", &core, program]).args(line).output().unwrap();
    let document: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert!(checked(&document), "both threads on CPU {core}");
}

/// "40b/s over 17s", a plan, exit code 0.
#[test]
fn rates_and_times_need_a_unit() {
    for (line, expected) in [
        ("tune plan --rate 40 --rtt 17ms", "40Gb/s"),
        ("tune plan --rate 40Gb/s --rtt 17", "17ms"),
        ("tune plan --rate 5GB/s --rtt 17ms", "small b"),
        ("flow localhost --pacing 10", "40Gb/s"),
    ] {
        ran(line).refused_by_usage(expected);
    }
    for rate in ["40Gbps", "40Gbit/s", "40000Mbps"] {
        let text = ran(&format!("tune plan --rate {rate} --rtt 17ms --from SERVER"));
        assert!(text.ok().starts_with("40Gb/s over 17ms"), "{}", text.stdout);
    }
}

#[test]
fn a_goodput_below_the_threshold_has_an_exit_code_of_its_own() {
    let fails = ran("flow localhost SHORT --pacing 100Mb/s --fail-below 9Gb/s --json");
    fails.refused(10, &["is below the 9.00 Gb/s of --fail-below"]);
    let document: Value = serde_json::from_str(&fails.stdout).unwrap();
    assert_valid("flow", &document);
    assert_eq!(document["threshold"]["is_met"], false);
    assert_eq!(document["threshold"]["required_bps"], 9e9);
    let passes = ran("flow localhost SHORT --fail-below 1Mb/s");
    assert!(passes.ok().contains("reaches the 1.00 Mb/s of --fail-below"), "{}", passes.stdout);
}

#[test]
fn repeated_runs_show_their_spread_and_an_interval_from_six_on() {
    let document = ran("flow localhost -t 200ms --warm-up 0 --interval 100ms --repeat 6 --json").json();
    let runs = document["runs"].as_array().unwrap();
    let mut each: Vec<f64> = runs.iter().map(|run| run["summary"]["goodput_bps"].as_f64().unwrap()).collect();
    each.sort_by(f64::total_cmp);
    let spread = &document["goodput"];
    assert_eq!((each.len(), &spread["run_count"]), (6, &6.into()));
    // The median of six, and an interval from the first to the last.
    assert_eq!(spread["median_bps"].as_f64().unwrap(), f64::midpoint(each[2], each[3]));
    assert_eq!(spread["interval"]["low_bps"].as_f64().unwrap(), each[0]);
    assert_eq!(spread["interval"]["high_bps"].as_f64().unwrap(), each[5]);
    let text = ran("flow localhost -t 200ms --warm-up 0 --interval 100ms --repeat 2");
    assert!(text.ok().contains("range of 2 runs") && text.stdout.contains("run 2 of 2"), "{}", text.stdout);
    assert!(!text.stdout.contains("95 %"), "{}", text.stdout);
}

#[test]
fn what_a_probe_beside_a_flow_cannot_do_is_refused() {
    ran("flow localhost --latency --bytes 1MiB").refused(2, &["--duration"]);
    ran("flow localhost --latency -t 200ms").refused(2, &["1s or longer"]);
}

/// A rate limit with a queue of 200 ms in front of it: one TCP flow fills the
/// queue, so that the loaded path is slower by nearly all of it.
#[test]
fn root_latency_under_load_shows_the_queue_that_the_flow_fills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("habits-queue.toml");
    let link = "mtu = 1500\nrate = \"50Mb/s\"\ndelay = \"2ms\"\nqueue = \"200ms\"";
    std::fs::write(&path, two_hosts("habits-queue", link)).unwrap();
    let _lab = Lab::up(&path, "habits-queue");
    let document = ran("flow --lab habits-queue -t 4s --warm-up 2s -C cubic --latency --json").json();
    let latency = &document["latency"];
    let of = |which: &str| latency[which]["range"]["p50_ns"].as_u64().unwrap();
    // There and back twice 2 ms; the loaded path has at least a tenth of the queue.
    assert!((4_000_000..24_000_000).contains(&of("idle")), "{latency}");
    assert!(of("loaded") > of("idle") + 20_000_000, "{latency}");
    let added = latency["added_p50_ns"].as_i64().unwrap();
    assert_eq!(added, of("loaded") as i64 - of("idle") as i64);
}

/// The code point by name is the one that nftables knows by that name.
#[test]
fn root_a_dscp_by_name_is_on_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::of_two_hosts(folder.path(), "habits-dscp");
    let names = ["ef", "cs5", "af41", "le", "va"];
    let rule = |name: &str| match name {
        // nft(8) of today has no names for these two.
        "le" => format!("ip dscp 0x01 counter comment \"{name}\""),
        "va" => format!("ip dscp 0x2c counter comment \"{name}\""),
        _ => format!("ip dscp {name} counter comment \"{name}\""),
    };
    let rules: String = names.map(|name| format!("add rule ip t c {}; ", rule(name))).concat();
    let table = format!("add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; {rules}");
    run(&["lab", "exec", "habits-dscp", "there", "--", "nft", &table]).ok();
    for name in names {
        let line =
            format!("flow --lab habits-dscp --dscp {name} -t 200ms --warm-up 0 -i 100ms --pacing 10Mb/s");
        ran(&line).ok();
    }
    let listed =
        run(&["lab", "exec", "habits-dscp", "there", "--", "nft", "-j", "list", "chain", "ip", "t", "c"]);
    let listed: Value = serde_json::from_str(listed.ok()).unwrap();
    let rules = listed["nftables"].as_array().unwrap().iter().filter_map(|entry| entry.get("rule"));
    let mut seen = 0;
    for rule in rules {
        let counters: Vec<u64> = rule["expr"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|part| part["counter"]["packets"].as_u64())
            .collect();
        assert!(counters[0] > 0, "no packet with {}: {listed}", rule["comment"]);
        seen += 1;
    }
    assert_eq!(seen, names.len());
}

/// Verbs below a command that have an argument.
fn verbs_with(argument: &str, command: &clap::Command, path: &[String], found: &mut Vec<Vec<String>>) {
    for verb in command.get_subcommands() {
        let path = [path, &[verb.get_name().to_owned()]].concat();
        verbs_with(argument, verb, &path, found);
        if verb.get_arguments().any(|known| known.get_id() == argument) {
            found.push(path);
        }
    }
}

#[test]
fn the_other_host_is_named_in_the_same_forms_with_every_verb_and_once() {
    let mut command = Cli::command();
    command.build();
    let mut verbs = Vec::new();
    verbs_with("remote_program", &command, &[], &mut verbs);
    // These name hosts in forms of their own.
    verbs.retain(|verb| !["deploy", "live", "route", "storage"].contains(&verb[0].as_str()));
    assert_eq!(
        verbs.len(),
        11,
        "flow, probe, message, overlap, diagnose, improve, study run, place ports, rdma: {verbs:?}"
    );
    for verb in &verbs {
        let mut arguments: Vec<&str> = verb.iter().map(String::as_str).collect();
        if arguments == ["study", "run"] {
            arguments.push("iwarp-verbs");
        }
        let twice = run(&[&arguments[..], &["here.invalid", "--to", "there.invalid"]].concat());
        twice.refused_by_usage("cannot be used with");
        assert!(twice.stderr.contains("--to <HOST>"), "{verb:?}: {}", twice.stderr);
        // The positional of rdma is a server that listens, which is found without an agent.
        let forms: &[&[&str]] = &[&["nowhere.invalid"], &["--to", "nowhere.invalid"]];
        for form in forms {
            run(&[&arguments[..], form].concat()).refused(3, &["nowhere.invalid"]);
        }
    }
}
