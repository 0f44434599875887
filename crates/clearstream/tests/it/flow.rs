//! `clearstream flow` as a person runs it, over loopback, with the faults that
//! people meet.

use crate::common;
use std::{
    io::Read as _,
    net::TcpListener,
    process::{Child, Stdio},
    time::Duration,
};

use crate::common::{
    alive, assert_valid, children, clearstream, eventually, finish, run, signal, until_line,
};

const SHORT: [&str; 6] = ["--duration", "1s", "--warm-up", "200ms", "--interval", "200ms"];

fn flow(more: &[&str]) -> common::Run {
    run(&[&["flow", "localhost"], SHORT.as_slice(), more].concat())
}

#[test]
fn measures_and_documents_itself() {
    let document = flow(&["--json", "--flows", "2"]).json();
    assert_valid("flow-summary", &document["summary"]);
    let summary = &document["summary"];
    assert_eq!(summary["complete"], true);
    let intervals = document["intervals"].as_array().unwrap();
    assert!(intervals.len() >= 5, "{} intervals", intervals.len());
    assert_eq!(intervals[0]["warm_up"], true);
    // The total is the sum of the parts: what the intervals after the warm-up received.
    let received: u64 = intervals
        .iter()
        .filter(|interval| interval["warm_up"] == false)
        .flat_map(|interval| interval["server"]["flows"].as_array().unwrap())
        .map(|flow| flow["received_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(summary["received_bytes"].as_u64().unwrap(), received);
    assert!(received > 0);
    for side in ["client_settings", "server_settings"] {
        assert_eq!(summary[side]["flows"].as_array().unwrap().len(), 2, "{side}");
    }
}

#[test]
fn streams_a_line_per_interval() {
    let run = flow(&["--json-stream"]);
    let lines: Vec<serde_json::Value> =
        run.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let intervals: Vec<_> = lines.iter().filter(|line| line["kind"] == "interval").collect();
    assert!(intervals.len() >= 5, "{}", run.stdout);
    for line in intervals {
        assert_valid("interval", &line["payload"]);
    }
    let last = lines.last().unwrap();
    assert_eq!((&last["kind"], &last["payload"]["schema"]), (&"result".into(), &"clearstream.flow".into()));
}

#[test]
fn shows_people_settings_intervals_and_figures() {
    let text = flow(&["--receive", "discard"]).ok().to_owned();
    for expected in [
        "Effective settings",
        "1 TCP stream",
        "interval",
        "goodput",
        "(discard)",
        "CPU seconds per GB",
        "not pinned",
    ] {
        assert!(text.contains(expected), "\"{expected}\" is not in:\n{text}");
    }
}

#[test]
fn the_sysctl_that_caps_the_window_is_named() {
    let cap: u64 = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let wanted = format!("{}", cap * 4);
    let document = flow(&["--json", "--window", &wanted]).json();
    let notices = document["summary"]["notices"].to_string();
    assert!(notices.contains("net.core.rmem_max") && notices.contains("net.core.wmem_max"), "{notices}");
    let effective =
        document["summary"]["server_settings"]["flows"][0]["receive_buffer_bytes"].as_u64().unwrap();
    assert_eq!(
        effective,
        cap * 2,
        "socket(7): the kernel doubles the value and caps it at rmem_max before that"
    );
}

#[test]
fn refuses_a_core_that_does_not_exist() {
    flow(&["--receiver-cores", "4095"]).refused(2, &["core 4095"]);
}

#[test]
fn refuses_a_congestion_control_that_is_not_there() {
    flow(&["--congestion-control", "nonesuch"]).refused(2, &["nonesuch"]);
}

#[test]
fn refuses_a_port_in_use() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    flow(&["--destination-port", &port]).refused(4, &[&port]);
}

#[test]
fn refuses_what_it_cannot_read() {
    run(&["flow", "localhost", "--window", "big"]).refused_by_usage("512KiB");
    run(&["flow"]).refused(2, &["--lab"]);
    run(&["flow", "somewhere", "--lab", "two-hosts"]).refused(2, &["exclude"]);
}

#[test]
fn an_unknown_host_is_named() {
    run(&["flow", "nowhere.invalid"]).refused(3, &["nowhere.invalid"]);
}

/// A flow of 30 s that has sent data: its first interval was printed. Settings are chosen
/// by trials before that, so that the time it takes depends on the machine's load.
fn flowing() -> Child {
    let arguments = ["flow", "localhost", "--duration", "30s", "--interval", "200ms", "--warm-up", "0s"];
    let mut child = clearstream(&arguments).spawn().unwrap();
    until_line(&mut child, &[" s ", "b/s"]);
    child
}

/// Longest wait for an end: far below the 30 s of the flow, far above what it takes.
const END_TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn keeps_the_figures_when_interrupted() {
    // A terminal that goes away sends HUP to the agents of the group too, timeout(1) TERM.
    for (name, to_agents) in [("INT", false), ("HUP", true), ("TERM", true)] {
        let child = flowing();
        let agents = if to_agents { children(child.id()) } else { Vec::new() };
        for pid in agents.into_iter().chain([child.id()]) {
            signal(pid, name);
        }
        let run = finish(child, END_TIMEOUT);
        assert_eq!(run.code(), 130, "{name}: {}", run.stderr);
        assert!(run.stdout.contains("test ended early"), "{name}: {}", run.stdout);
    }
}

#[test]
fn an_interrupted_probe_ends_as_documented() {
    for name in ["INT", "TERM", "HUP"] {
        let child = clearstream(&["probe", "localhost", "--count", "3000"]).spawn().unwrap();
        eventually(END_TIMEOUT, "both agents start", || children(child.id()).len() == 2);
        for pid in children(child.id()).into_iter().chain([child.id()]) {
            signal(pid, name);
        }
        let run = finish(child, END_TIMEOUT);
        assert_eq!(run.code(), 130, "{name}: {}", run.stderr);
        // The latter while its agents still start.
        let said = ["the probe was interrupted", "stopped waiting"];
        assert!(said.iter().any(|text| run.stderr.contains(text)), "{name}: {}", run.stderr);
    }
}

#[test]
fn an_agent_ends_without_its_controller_also_after_a_signal() {
    let mut agent = clearstream(&["agent"]).stdin(Stdio::piped()).spawn().unwrap();
    // Its greeting comes after it has left the signals to its controller.
    agent.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    signal(agent.id(), "TERM");
    drop(agent.stdin.take());
    let run = finish(agent, END_TIMEOUT);
    assert!(run.status.code().is_some(), "not by the signal: {}", run.status);
}

#[test]
fn keeps_the_figures_when_an_agent_is_killed() {
    let child = flowing();
    let agents = children(child.id());
    assert_eq!(agents.len(), 2, "one agent for each side");
    signal(agents[1], "KILL");
    let run = finish(child, END_TIMEOUT);
    assert_eq!(run.code(), 6, "{}", run.stderr);
    assert!(run.stdout.contains("test ended early"), "{}", run.stdout);
    eventually(END_TIMEOUT, "the other agent ends", || agents.iter().all(|agent| !alive(*agent)));
}

#[test]
fn leaves_no_agent_when_it_is_killed() {
    let mut child = flowing();
    let agents = children(child.id());
    assert_eq!(agents.len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually(END_TIMEOUT, "both agents end", || agents.iter().all(|agent| !alive(*agent)));
}

#[test]
fn ends_at_once_when_interrupted_twice() {
    let child = flowing();
    let agents = children(child.id());
    signal(child.id(), "INT");
    signal(child.id(), "INT");
    let run = finish(child, END_TIMEOUT);
    assert_eq!(run.code(), 130, "{}", run.stderr);
    eventually(END_TIMEOUT, "both agents end", || agents.iter().all(|agent| !alive(*agent)));
}

/// The second line of "From iperf3" in docs/guide/flow.md, and `-R`.
#[test]
fn a_line_of_iperf3_asks_for_what_it_does_there() {
    let run = run(&["flow", "localhost", "-R", "-u", "-b", "100M", "-J", "-t", "1"]);
    let document: serde_json::Value = serde_json::from_str(run.ok()).unwrap();
    let requested = &document["summary"]["requested"];
    assert_eq!((&requested["direction"], &requested["protocol"]), (&"reverse".into(), &"udp".into()));
    assert_eq!(requested["pacing"], "100Mb/s");
}
