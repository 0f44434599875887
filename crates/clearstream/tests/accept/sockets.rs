//! Connections of a long path, as each end alone and both together explain them.

use std::{thread, time::Duration};

use crate::{
    common::{Lab, assert_published, eventually, run, signal},
    scene::{Pair, agrees_with_ss, diagnose, document, kind, long_lab, shown, ss, starts},
};

/// One connection by the agents of both its hosts: filters of either end find it, and each end is that of its host.
#[test]
fn root_agents_of_both_hosts_explain_a_connection_together() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "sockets-both");
    let pair = Pair::python(Some(&lab.0), "20", "0", "0");
    let ends =
        ["diagnose", "--lab", &lab.0, "--client", "here", "--server", "there", "--both-ends", "-t", "1"];
    for filter in [
        format!("local-port={}", pair.port),
        format!("remote-port={}", pair.port),
        format!("pid={}", pair.sender.pid()),
        format!("program=python3,address=10.0.0.0/24,port={}", pair.port),
        "all".to_owned(),
    ] {
        let found = run(&[&ends[..], &["--socket", &filter, "--json"]].concat()).json();
        assert_published(&found);
        let busiest = &found["connections"][0];
        assert_eq!(kind(busiest), "receiver-application", "{filter}: {found:#}");
        assert_eq!((&busiest["end"]["host"], &busiest["peer"]["host"]), (&"here".into(), &"there".into()));
        assert_eq!(busiest["end"]["owners"][0]["pid"], pair.sender.pid(), "{filter}");
        assert_eq!(busiest["peer"]["owners"][0]["pid"], pair.receiver.pid(), "{filter}");
        agrees_with_ss(Some((&lab.0, "here")), &busiest["end"]);
        agrees_with_ss(Some((&lab.0, "there")), &busiest["peer"]);
    }
    let found = run(&[&ends[..], &["--socket", "address=192.0.2.0/24", "--json"]].concat()).json();
    assert_eq!(found["matched_count"], 0, "{found:#}");
    // Both agents on one host: each socket is there once.
    let pair = Pair::python(None, "20", "0", "0");
    let filter = format!("port={}", pair.port);
    let found =
        run(&["diagnose", "localhost", "--socket", &filter, "--both-ends", "-t", "1", "--json"]).json();
    assert_eq!(found["matched_count"], 1, "{found:#}");
    assert_eq!(kind(&found["connections"][0]), "receiver-application", "{found:#}");
    run(&["diagnose", "--socket", "all", "--both-ends"]).refused_by_usage("the other end");
}

/// A path of 16 ms, observed on each host alone and on both together.
#[test]
fn root_limits_of_a_long_path_are_named_by_the_ends_that_show_them() {
    let folder = tempfile::tempdir().unwrap();
    // Linux lets a socket exceed its send buffer while the cores are busy: without a rate that fills nothing.
    let lab = long_lab(folder.path(), "sockets-buffers", "");
    let python = |receive, send| Pair::python(Some(&*lab.0), "0", receive, send);
    explained(&lab.0, "SO_RCVBUF", &python("65536", "0"), "receiver-window", "receiver-window");
    explained(&lab.0, "SO_SNDBUF", &python("0", "65536"), "send-buffer", "unknown");
    let lab = long_lab(folder.path(), "sockets", "rate = \"200Mb/s\"\nqueue = \"34ms\"");
    let name = Some(&*lab.0);
    // One after the other: together they would fill the path.
    explained(&lab.0, "-b", &Pair::iperf3(name, &["-b", "10M"]), "sender-application", "unknown");
    explained(&lab.0, "rate", &Pair::iperf3(name, &[]), "path-capacity", "unknown");
    // `-w` makes both buffers equally small: either end may hold the other for most of the time.
    let pair = Pair::iperf3(name, &["-w", "64K"]);
    let filter = format!("remote-port={}", pair.port);
    let namespace = pair.receiver.pid().to_string();
    let found = diagnose(Some((&*lab.0, "here")), &filter, &["--namespace", &namespace]);
    let found = &found["connections"][0];
    assert!(["receiver-window", "send-buffer"].contains(&&*kind(found)), "{found:#}");
    let [out, bound] = [&found["end"]["out_bps"], &found["verdict"]["found"]["cause"]["bound_bps"]];
    let ratio = bound.as_f64().unwrap() / out.as_f64().unwrap();
    // Delayed acknowledgements of a few segments leave pauses: the rate may be well below the bound.
    assert!(ratio >= 0.6, "the buffer over the round trip bounds the rate: {found:#}");
}

fn explained(lab: &str, what: &str, pair: &Pair, by_sender: &str, by_receiver: &str) {
    let [here, there] = ["here", "there"].map(|host| Some((lab, host)));
    let [remote, local] = ["remote", "local"].map(|end| format!("{end}-port={}", pair.port));
    let one = starts(here, &remote, &[]);
    let two = starts(there, &local, &[]);
    let namespace = pair.receiver.pid().to_string();
    let both = starts(here, &remote, &["--namespace", &namespace]);
    let [one, two, both] = [one, two, both].map(document);
    let [one, two, both] = [&one, &two, &both].map(|document| &document["connections"][0]);
    assert_eq!(kind(one), by_sender, "{what}: {one:#}");
    assert_eq!(kind(two), by_receiver, "{what}: {two:#}");
    assert_eq!(kind(both), by_sender, "{what}, both ends: {both:#}");
    assert_eq!(both["peer"]["owners"][0]["pid"], pair.receiver.pid(), "{what}");
    assert_eq!(both["peer"]["namespace"], pair.receiver.pid(), "{what}");
    agrees_with_ss(here, &one["end"]);
    agrees_with_ss(there, &two["end"]);
    if by_sender == "receiver-window" {
        // The kernel's clocks since the connection began, as ss adds them up.
        let text = ss(here, &["-HtinO", &format!("dport = {}", pair.port)]);
        let line =
            text.lines().find(|line| line.contains("rwnd_limited")).unwrap_or_else(|| panic!("{text}"));
        let (_, share) = line.split_once("rwnd_limited:").unwrap();
        assert!(shown(share, "(") >= 40.0, "{line}");
        let cause = &both["verdict"]["found"]["cause"];
        assert_eq!(cause["buffer_bytes"], both["peer"]["memory"]["receive_limit_bytes"], "{both:#}");
        let bound = cause["bound_bps"].as_f64().unwrap() / both["end"]["out_bps"].as_f64().unwrap();
        assert!((0.6..4.0).contains(&bound), "window * 8 / round trip is the rate: {both:#}");
    }
}

/// A reader that stopped is seen as such with both ends, and as a closed window by the sender alone.
#[test]
fn root_a_stopped_peer_and_a_cut_path_differ() {
    let folder = tempfile::tempdir().unwrap();
    let lab = long_lab(folder.path(), "sockets-stop", "rate = \"200Mb/s\"");
    let pair = Pair::python(Some(&lab.0), "0", "0", "0");
    let here = Some((&*lab.0, "here"));
    let filter = format!("remote-port={}", pair.port);
    let namespace = pair.receiver.pid().to_string();
    signal(pair.receiver.0.id(), "STOP");
    let closed = || ss(here, &["-Htno", &format!("dport = {}", pair.port)]).contains("persist");
    eventually(Duration::from_secs(30), "a closed window", closed);
    thread::sleep(Duration::from_secs(1));
    let one = diagnose(here, &filter, &[]);
    assert_eq!(kind(&one["connections"][0]), "zero-window", "{one:#}");
    let both = diagnose(here, &filter, &["--namespace", &namespace]);
    assert_eq!(kind(&both["connections"][0]), "receiver-application", "{both:#}");
    assert_eq!(both["connections"][0]["verdict"]["found"]["cause"]["stopped"], true);
    signal(pair.receiver.0.id(), "CONT");
    eventually(Duration::from_secs(30), "an open window", || !closed());

    run(&["lab", "fault", &lab.0, "here:eth0", "cut"]).ok();
    let silent = || ss(here, &["-Htno", &format!("dport = {}", pair.port)]).contains("timer:(on,");
    eventually(Duration::from_secs(30), "retransmissions", silent);
    thread::sleep(Duration::from_secs(2));
    let cut = diagnose(here, &filter, &[]);
    assert_eq!(kind(&cut["connections"][0]), "no-acknowledgement", "{cut:#}");
}
