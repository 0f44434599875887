//! Settings that the warm-up of `clearstream flow` chooses where the command line names none.

use std::time::Duration;

use crate::common::{Lab, assert_published, clearstream, eventually, finish, run, run_with_input, signal};
use clearstream_testkit::lab::two_hosts;
use serde_json::Value;

/// The shortest that adapts, with the default warm-up.
const FLOW: [&str; 4] = ["flow", "localhost", "--duration", "2s"];

fn flow(more: &[&str]) -> Value {
    run(&[FLOW.as_slice(), &["--json"], more].concat()).json()
}

fn bytes(size: &Value) -> u64 {
    let text = size.as_str().unwrap();
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap());
    number.parse::<u64>().unwrap()
        * match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => panic!("{text}"),
        }
}

/// The stages of the trials, each once.
fn stages(summary: &Value) -> Vec<&str> {
    let trials = summary["adaptation"]["trials"].as_array().map_or(&[][..], Vec::as_slice);
    let mut stages: Vec<&str> = trials.iter().map(|trial| trial["stage"].as_str().unwrap()).collect();
    stages.dedup();
    stages
}

/// What the record says was chosen is what the kernel reports of the sockets and threads of both hosts.
fn assert_in_effect(summary: &Value, [sender, receiver]: [&str; 2]) {
    let adaptation = &summary["adaptation"];
    let chosen = &adaptation["chosen"];
    for side in [sender, receiver] {
        for flow in summary[side]["flows"].as_array().unwrap() {
            let size = if chosen.is_null() { 512 << 10 } else { bytes(&chosen["transfer"]) };
            assert_eq!(flow["transfer_bytes"], size, "{side}: {adaptation:#}");
            let pinned = chosen["placement"].as_str().is_some_and(|placement| placement != "scheduler");
            assert_eq!(flow.get("pinned_core").is_some(), pinned, "{side}: {adaptation:#}");
        }
    }
    if !chosen.is_null() {
        let mark = bytes(&chosen["receive_low_water"]);
        let flows = summary[receiver]["flows"].as_array().unwrap();
        assert!(flows.iter().all(|flow| flow["receive_low_water_bytes"] == mark), "{adaptation:#}");
    }
}

#[test]
fn what_the_warm_up_chose_is_in_effect_at_both_ends_in_each_direction() {
    let (client, server) = ("client_settings", "server_settings");
    for (options, ends) in [
        (vec![], [client, server]),
        (vec!["--direction", "reverse"], [server, client]),
        (vec!["--direction", "both", "--flows", "2"], [client, server]),
    ] {
        let document = flow(&options);
        assert_published(&document);
        let summary = &document["summary"];
        assert_in_effect(summary, ends);
        assert_eq!(summary["complete"], true);
        // Nothing was requested: what was chosen stands apart from it.
        assert!(summary["requested"].get("transfer").is_none(), "{}", summary["requested"]);
        let adaptation = &summary["adaptation"];
        if adaptation["reason"].as_str().is_some_and(|reason| reason.contains("threads share")) {
            continue;
        }
        let stages = stages(summary);
        assert!(stages.starts_with(&["transfer", "low-water"]), "{adaptation:#}");
        assert_eq!(stages.contains(&"placement"), !options.contains(&"both"), "{adaptation:#}");
        let trials = adaptation["trials"].as_array().unwrap();
        assert!(trials.iter().all(|trial| trial["goodput_bps"].as_f64() > Some(0.0)), "{adaptation:#}");
    }
}

/// Nothing of a test keeps its sockets: the next one has the same ports at once.
#[test]
fn fixed_ports_serve_one_test_after_the_other() {
    let (server, client) =
        (clearstream_testkit::listening::free_port(), clearstream_testkit::listening::free_port());
    let ports = [server.to_string(), client.to_string()];
    let document = flow(&["--repeat", "3", "--port", &ports[0], "--source-port", &ports[1]]);
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run["summary"]["complete"] == true), "{document:#}");
}

/// As long as it is measured, what it moved in the warm-up counts nowhere.
#[test]
fn the_warm_up_is_not_in_the_totals() {
    let document = flow(&["--interval", "500ms"]);
    let summary = &document["summary"];
    let intervals = document["intervals"].as_array().unwrap();
    let received = |warm_up: bool| -> u64 {
        let of_part = intervals.iter().filter(|interval| interval["warm_up"] == warm_up);
        of_part.map(|interval| interval["server"]["flows"][0]["received_bytes"].as_u64().unwrap()).sum()
    };
    assert!(received(true) > 0);
    assert_eq!(summary["received_bytes"], received(false));
}

#[test]
fn what_is_named_is_neither_tried_nor_changed() {
    let summary = &flow(&["--transfer", "128KiB"])["summary"];
    assert!(!stages(summary).contains(&"transfer"), "{}", summary["adaptation"]);
    assert_eq!(summary["client_settings"]["flows"][0]["transfer_bytes"], 128 << 10);

    let summary = &flow(&["--receive-low-water", "4KiB"])["summary"];
    assert!(!stages(summary).contains(&"low-water"), "{}", summary["adaptation"]);
    assert_eq!(summary["server_settings"]["flows"][0]["receive_low_water_bytes"], 4096);

    let summary = &flow(&["--cores", "scheduler"])["summary"];
    assert!(!stages(summary).contains(&"placement"), "{}", summary["adaptation"]);
    assert!(summary["client_settings"]["flows"][0].get("pinned_core").is_none());

    let all = ["--cores", "scheduler", "--transfer", "256KiB", "--receive-low-water", "1B"];
    assert!(flow(&all)["summary"].get("adaptation").is_none());
    run(&["flow", "localhost", "--cores", "scheduler", "--sender-cores", "0"])
        .refused_by_usage("--sender-cores");
}

#[test]
fn a_test_that_has_no_time_for_it_says_why_and_one_that_copying_does_not_limit_says_nothing() {
    for (options, reason) in [
        (vec!["--duration", "1s"], "shorter than 2 s"),
        (vec!["--warm-up", "0s"], "warm-up of 0 ms"),
        (vec!["--bytes", "10MB"], "an amount of data"),
        (vec!["--method", "io-uring"], "io_uring"),
    ] {
        let start = if options.contains(&"--bytes") { &FLOW[..2] } else { &FLOW[..] };
        let document = run(&[start, &["--json"], &options[..]].concat()).json();
        let adaptation = &document["summary"]["adaptation"];
        assert!(adaptation.get("chosen").is_none(), "{adaptation}");
        assert!(adaptation["reason"].as_str().unwrap().contains(reason), "{adaptation}");
    }
    for options in [["--pacing", "100Mb/s"].as_slice(), &["--protocol", "udp", "--pacing", "100Mb/s"]] {
        let document = flow(options);
        assert!(document["summary"].get("adaptation").is_none(), "{options:?}");
    }
}

#[test]
fn people_see_one_line_as_options_that_can_be_repeated() {
    let text = run(&FLOW).ok().to_owned();
    let line = text.lines().find(|line| line.starts_with("warm-up")).unwrap();
    assert!(line.chars().count() <= 80, "{line}");
    let Some(options) = line.strip_prefix("warm-up: ") else {
        assert!(line.starts_with("warm-up kept the defaults: "), "{line}");
        return;
    };
    let options: Vec<&str> = options.split(", ").next().unwrap().split(' ').collect();
    let again = run(&[&FLOW, &options[..], &["--cores", "scheduler", "--json"]].concat()).json();
    assert!(again["summary"].get("adaptation").is_none(), "nothing is left open");
}

/// The most flows: each has a thread at both ends, all on the cores of this machine, and the samples of all arrive.
#[test]
fn a_thousand_flows_are_measured_to_the_end() {
    let options = ["--flows", "1024", "--transfer", "64KiB", "-i", "500ms", "--json"];
    let document = run(&[&FLOW, &options[..]].concat()).json();
    let summary = &document["summary"];
    assert_eq!(summary["complete"], true, "{}", summary["notices"]);
    let each = summary["flow_goodput_bps"].as_array().unwrap();
    assert_eq!(each.len(), 1024);
    assert!(
        summary["goodput_bps"].as_f64() > Some(0.0) && document["intervals"].as_array().unwrap().len() >= 4
    );
    for interval in document["intervals"].as_array().unwrap() {
        for side in ["client", "server"] {
            assert_eq!(interval[side]["flows"].as_array().map(Vec::len), Some(1024), "{}", interval["index"]);
        }
    }
}

/// Two namespaces behind a delay line, as hosts that are far apart.
#[test]
fn root_a_long_path_keeps_the_defaults_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("adapts-{}", std::process::id());
    let file = folder.path().join("lab.toml");
    std::fs::write(&file, two_hosts(&name, "delay = \"5ms\"\nbackend = \"delay-line\"")).unwrap();
    let lab = Lab::up(&file, &name);
    let summary = &run(&["flow", "--lab", &lab.0, "-t", "2s", "--json"]).json()["summary"];
    let reason = summary["adaptation"]["reason"].as_str().unwrap();
    assert!(reason.contains("round trip"), "{reason}");
    assert_in_effect(summary, ["client_settings", "server_settings"]);
}

/// The agents are programs that were started apart, in namespaces of their own, one behind TLS: they share the
/// connections and nothing else.
#[test]
fn root_hosts_that_share_nothing_but_the_connection_adapt_alike() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lab = Lab::of_two_hosts(folder.path(), "lab-adapts-apart");
    let (program, address) = (env!("CARGO_BIN_EXE_clearstream"), "10.0.0.2:5301");
    let (identity, pairing) = (at("identity"), at("pairing"));
    let token = run(&["pair", "create", "tester", "--address", address, "--identity", &identity]);
    run_with_input(&["pair", "accept", &pairing], token.ok()).ok();
    let on = |host| ["lab", "exec", &lab.0, host, "--", program].map(str::to_owned);
    let start = |host, more: &[&str]| {
        let arguments: Vec<String> =
            on(host).into_iter().chain(more.iter().map(|one| (*one).to_owned())).collect();
        clearstream(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap()
    };
    let daemon = start("there", &["serve", "--listen", address, "--identity", &identity]);
    eventually(Duration::from_secs(10), "the daemon listens", || {
        run(&["lab", "exec", &lab.0, "there", "--", "ss", "-ltn"]).ok().contains(address)
    });
    let ended = start("here", &["flow", address, "--pairing", &pairing, "-t", "2s", "--json"]);
    let document = finish(ended, Duration::from_secs(30)).json();
    signal(daemon.id(), "INT");
    finish(daemon, Duration::from_secs(10)).ok();
    let summary = &document["summary"];
    assert_in_effect(summary, ["client_settings", "server_settings"]);
    assert!(stages(summary).starts_with(&["transfer", "low-water"]), "{}", summary["adaptation"]);
}
