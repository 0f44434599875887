//! Every limit that can be made in a lab is named first, repeatedly, and a path without a fault is accused of none.
//!
//! Only limits that any machine makes, however busy: an interrupt core that is
//! full is one of speed, and belongs to `make bench BENCH=diagnosis`.
//!
//! `CLEARSTREAM_DIAGNOSE_REPEATS=10 make accept` prints the whole table for so many repeats; a path without
//! a fault is diagnosed twice as often. `CLEARSTREAM_DIAGNOSE_ROWS=rcvbuf,loss` makes only these.

use std::fs;

use serde_json::Value;

use crate::limits::{ROWS, Row, diagnose, first_cause, misnamed, not_made, row, within};

fn repeats() -> usize {
    std::env::var("CLEARSTREAM_DIAGNOSE_REPEATS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn root_every_limit_that_is_made_is_named_first() {
    let only = std::env::var("CLEARSTREAM_DIAGNOSE_ROWS").unwrap_or_default();
    let mut wrong = Vec::new();
    println!("{:<16} {:>7}", "made", "right");
    for row in ROWS.iter().filter(|row| only.is_empty() || only.split(',').any(|name| name == row.name)) {
        let failed: Vec<String> = (0..repeats()).filter_map(|_| misnamed(row)).collect();
        println!("{:<16} {:>4}/{:<2}", row.name, repeats() - failed.len(), repeats());
        wrong.extend(failed);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// bbr over a veth pair of this machine, where cubic carries several times as
/// much: it is named when the experiment with cubic shows that, and a full path
/// never.
#[test]
fn root_a_congestion_control_that_holds_the_path_back_is_named() {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !known.split_whitespace().any(|name| name == "bbr") {
        println!("this kernel has no bbr: {known}");
        return;
    }
    let row = row("bbr", "", "-C bbr -t 2s -O 500ms", "congestion-control");
    let document = within("diagnose", &row, &["--budget", "12s"]);
    let (cause, sentence) = first_cause(&document);
    let experiments = document["experiments"].as_array().cloned().unwrap_or_default();
    let rate = |value: &Value| value["goodput_bps"].as_f64().unwrap();
    let requested = experiments
        .iter()
        .filter(|experiment| experiment["kind"] == "again")
        .map(rate)
        .fold(document["observed_bps"].as_f64().unwrap(), f64::max);
    let other = experiments.iter().find(|experiment| experiment["kind"] == "other-congestion-control");
    if other.is_some_and(|other| rate(other) > 1.25 * requested) {
        let allowed = ["congestion-control", "contention"];
        assert!(allowed.contains(&cause.as_str()), "{cause}: {sentence}\n{document:#}");
    } else {
        println!("cubic carries no more here: {cause}: {sentence}");
    }
    let exceeded = experiments.iter().any(|experiment| {
        experiment["kind"] != "reverse"
            && experiment["kind"] != "again"
            && rate(experiment) > 1.25 * requested
    });
    assert!(!(exceeded && cause == "path-capacity"), "{document:#}");
}

/// Full at 300 Mb/s with room in every buffer: the path is the limit, and no
/// host is requested to change anything.
#[test]
fn root_a_path_used_to_its_capacity_accuses_nobody() {
    let healthy = ROWS.iter().find(|row| row.name == "rate").unwrap();
    let healthy = Row { name: "healthy", ..*healthy };
    let mut accused = Vec::new();
    for _ in 0..2 * repeats() {
        let mut document = diagnose(&healthy);
        if not_made(&document).is_some() {
            document = diagnose(&healthy);
        }
        let fault = document["primary"]["found"]["fault"].as_bool();
        if fault != Some(false) || !document["secondary"].is_null() {
            accused.push(format!("{:#}\n{:#}", document["primary"], document["secondary"]));
        }
    }
    println!("healthy: {} of {} accused", accused.len(), 2 * repeats());
    assert!(accused.is_empty(), "{}", accused.join("\n"));
}
