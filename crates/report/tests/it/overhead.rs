//! The overhead of a layer over the experiment without it, by formula 1 of the iWARP paper.

use crate::common::hosts;
use crate::common::run;
use clearstream_report::{html, markdown};
use clearstream_schema::record::TrialDocument;
use serde_json::{Value, json};

/// Bandwidth in Gb/s: raw by method and size, MPI by size.
fn trials() -> Vec<TrialDocument> {
    let mut trials: Vec<TrialDocument> = Vec::new();
    let mut add = |experiment: &str, cell, factors: &[(&str, Value)], gbps: f64| {
        let outcome = run::outcome(&[("bandwidth", "b/s", "higher", gbps * 1e9)], |_| ());
        trials.push(run::trial(trials.len() as u32, experiment, cell, factors, outcome));
    };
    let sizes = ["64B", "1KiB", "64KiB"];
    let raw = [("blocking", [8.0, 16.0, 33.0]), ("busy-poll", [10.0, 20.0, 30.0])];
    for (method, (name, rates)) in (0..).zip(raw) {
        for (place, (size, gbps)) in (0..).zip(sizes.into_iter().zip(rates)) {
            add("raw", 3 * method + place, &[("method", json!(name)), ("size", json!(size))], gbps);
        }
    }
    for (cell, (size, gbps)) in (0..).zip(sizes.into_iter().zip([9.0, 16.0, 36.3])) {
        add("mpi", cell, &[("size", json!(size))], gbps);
    }
    trials
}

fn report(trials: Vec<TrialDocument>) -> (String, String) {
    let published = json!([{ "label": "around 10 %", "source": "paper, figure 7", "metric": "bandwidth-overhead",
        "unit": "%", "low": 10.0, "high": 10.0, "factors": {} }]);
    let study = run::study_of(json!([
        { "name": "raw", "title": "TCP", "workload": "message", "figure": "curve" },
        { "name": "mpi", "title": "MPI", "workload": "message", "figure": "overhead", "beside": "raw",
          "published": published },
    ]));
    let folder = tempfile::tempdir().unwrap();
    let hosts = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let reader = run::write(folder.path(), study, hosts, trials);
    (markdown(&reader).unwrap(), html(&reader).unwrap())
}

#[test]
fn each_level_is_compared_with_the_best_of_raw() {
    let (text, page) = report(trials());
    // (10 - 9) / 10, (20 - 16) / 20, (33 - 36.3) / 33.
    let table = run::table_after(&text, "### MPI: bandwidth overhead against size");
    assert_eq!(table[0], ["size", "n", "bandwidth overhead"]);
    let expected = [["64 B", "1", "10.0 %"], ["1 KiB", "1", "20.0 %"], ["64 KiB", "1", "-10.0 %"]];
    assert_eq!(table[1..], expected);
    assert!(text.contains("the best median of TCP at the same levels"), "{text}");
    assert!(text.contains("### MPI: bandwidth against size, beside TCP"), "the curve itself: {text}");
    let figure = page.split("<figure id=\"figure-mpi-bandwidth-overhead\">").nth(1).unwrap();
    let figure = figure.split("</figure>").next().unwrap();
    assert!(figure.contains("published: around 10 %, paper, figure 7"), "{figure}");
    assert!(
        figure.contains(">-10<") || figure.contains(">\u{2212}10<"),
        "the axis goes below zero: {figure}"
    );
}

#[test]
fn without_raw_there_is_no_overhead() {
    let mut own = trials();
    own.retain(|trial| trial.experiment == "mpi");
    let (text, _) = report(own);
    assert!(!text.contains("bandwidth overhead against"), "{text}");
    assert!(text.contains("The record has no trial of raw, which this figure refers to."), "{text}");
}
