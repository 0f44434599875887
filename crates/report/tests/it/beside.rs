//! Two experiments in one figure: lines and rows of both, and their ratio where
//! the levels agree.

use crate::common::hosts;
use crate::common::run;
use clearstream_report::{html, markdown};
use clearstream_schema::record::TrialDocument;
use serde_json::{Value, json};

/// Latencies over TCP by method and size, and over RDMA by size; in microseconds.
fn trials(unit: &str) -> Vec<TrialDocument> {
    let mut trials: Vec<TrialDocument> = Vec::new();
    let mut add = |experiment: &str, cell, factors: &[(&str, Value)], name: &str, us: f64| {
        let outcome = run::outcome(&[(name, unit, "lower", us * 1e3)], |_| ());
        trials.push(run::trial(trials.len() as u32, experiment, cell, factors, outcome));
    };
    let tcp = [("blocking", [40.0, 42.0, 44.0]), ("busy-poll", [20.0, 21.0, 22.0])];
    for (method, (name, latencies)) in (0..).zip(tcp) {
        for (place, (size, us)) in (0..).zip([1, 16, 64].into_iter().zip(latencies)) {
            let factors = [("method", json!(name)), ("size", json!(format!("{size}B")))];
            add("tcp", 3 * method + place, &factors, "latency", us);
        }
    }
    for (cell, (size, us)) in (0..).zip([(1, 10.0), (16, 10.5), (32, 10.8), (64, 11.0), (1024, 30.0)]) {
        add("rdma", cell, &[("size", json!(size))], "latency", us);
    }
    trials
}

fn report(figure: &str, beside: &str, trials: Vec<TrialDocument>) -> (String, String) {
    let study = run::study_of(json!([
        { "name": "tcp", "title": "TCP", "workload": "message", "figure": figure, "metric": "latency",
          "beside": beside },
        { "name": "rdma", "title": "iWARP", "workload": "rdma", "figure": "curve" },
    ]));
    let folder = tempfile::tempdir().unwrap();
    let hosts = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let reader = run::write(folder.path(), study, hosts, trials);
    (markdown(&reader).unwrap(), html(&reader).unwrap())
}

fn legend(page: &str, id: &str) -> Vec<String> {
    let figure = page.split(&format!("<figure id=\"{id}\">")).nth(1).unwrap();
    let list = figure.split("<ul class=\"legend\">").nth(1).unwrap().split("</ul>").next().unwrap();
    let label = |item: &str| item.split("</span>").nth(1).unwrap().split("</li>").next().unwrap().to_owned();
    list.split("<li>").skip(1).map(label).collect()
}

#[test]
fn both_are_lines_of_one_figure_named_by_their_titles() {
    let (text, page) = report("curve", "rdma", trials("ns"));
    let expected = ["TCP: method blocking", "TCP: method busy-poll", "iWARP"];
    assert_eq!(legend(&page, "figure-tcp-latency"), expected);
    assert_eq!(legend(&page, "figure-rdma-latency"), ["all trials"], "its own figure is as without it");
    assert!(text.contains("### TCP: latency against size, beside iWARP"), "{text}");
    assert!(text.contains("Lowest latency: 10.0 us with iWARP: size 1"), "{text}");
    // 10 / 40 to 11 / 44 of the one line, 10 / 20 to 11 / 22 of the other: never one range of both.
    let ratios = "The latency of iWARP over that of TCP, over the size of both: \
                  0.250 for method blocking; 0.500 for method busy-poll.";
    assert!(text.contains(ratios), "{text}");
    assert!(text.contains("1 cell of iWARP beyond these levels is in its own figure."), "1 KiB: {text}");
    assert!(text.contains("not of pairs of trials"), "{text}");
}

#[test]
fn the_head_of_the_page_has_the_best_cell_of_each() {
    let (text, page) = report("curve", "rdma", trials("ns"));
    assert!(!page.contains("gives a number to put here"), "{page}");
    let head = text.split("## Summary").nth(1).unwrap().split("\n## ").next().unwrap();
    for card in [
        "**Lowest latency: 20.0 us**",
        "lowest of 6 cells, chosen after measuring",
        "TCP: method busy-poll, size 1",
    ] {
        assert!(head.contains(card), "{card}: {head}");
    }
    assert!(page.contains("<a class=\"card\" href=\"#figure-tcp-latency\">"), "{page}");
}

#[test]
fn the_table_has_the_ratio_where_levels_agree_and_nothing_where_not() {
    let (text, _) = report("curve", "rdma", trials("ns"));
    let table = run::table_after(&text, "### TCP: latency against size, beside iWARP");
    assert_eq!(table[0], ["method", "size", "n", "latency", "iWARP: latency", "ratio rdma / tcp"]);
    let expected = [
        ["blocking", "1 B", "1", "40.0 us", "10.0 us", "0.250"],
        ["blocking", "16 B", "1", "42.0 us", "10.5 us", "0.250"],
        ["blocking", "64 B", "1", "44.0 us", "11.0 us", "0.250"],
        ["busy-poll", "1 B", "1", "20.0 us", "10.0 us", "0.500"],
        ["busy-poll", "16 B", "1", "21.0 us", "10.5 us", "0.500"],
        ["busy-poll", "64 B", "1", "22.0 us", "11.0 us", "0.500"],
        ["", "32", "\u{2013}", "\u{2013}", "10.8 us", "\u{2013}"],
    ];
    assert_eq!(table[1..], expected);
}

#[test]
fn bars_show_both_with_every_cell() {
    let (text, page) = report("bars", "rdma", trials("ns"));
    assert_eq!(legend(&page, "figure-tcp-latency"), ["one trial of TCP", "one trial of iWARP"]);
    assert_eq!(run::table_after(&text, "### TCP: latency of each cell, beside iWARP").len(), 1 + 6 + 2);
    let figure = page.split("<figure id=\"figure-tcp-latency\">").nth(1).unwrap();
    let wide = figure.split("class=\"drawing narrow\"").next().unwrap();
    assert_eq!(wide.matches("data-tip=\"iWARP: size").count(), 5, "each cell has one row");
}

#[test]
fn series_of_single_trials_stand_beside_cells() {
    let mut trials = trials("ns");
    trials.retain(|trial| trial.experiment == "tcp");
    let outcome = run::outcome(&[("latency", "ns", "lower", 10e3)], |outcome| {
        outcome["series"] = json!([{
            "name": "latency", "x": {"name": "size", "unit": "B"}, "y": {"name": "latency", "unit": "ns"},
            "points": [[1.0, 10e3], [16.0, 10.5e3], [64.0, 22e3]],
        }]);
    });
    trials.push(run::trial(6, "rdma", 0, &[], outcome));
    let (text, _) = report("curve", "rdma", trials);
    let table = run::table_after(&text, "### TCP: latency against size, beside iWARP");
    let ratios: Vec<&str> = table[1..].iter().map(|row| row[5]).collect();
    assert_eq!(ratios, ["0.250", "0.250", "0.500", "0.500", "0.500", "1.00"]);
}

#[test]
fn an_experiment_that_was_not_measured_is_named() {
    let mut own = trials("ns");
    own.retain(|trial| trial.experiment == "tcp");
    let (text, page) = report("curve", "rdma", own);
    assert!(text.contains("The record has no trial of rdma, which this figure refers to."), "{text}");
    assert_eq!(legend(&page, "figure-tcp-latency"), ["method blocking", "method busy-poll"]);
    let other = trials("ns").into_iter().map(|mut trial| {
        if trial.experiment == "rdma" {
            trial.outcome = run::outcome(&[("latency", "ratio", "lower", 1.0)], |_| ());
        }
        trial
    });
    let (text, _) = report("curve", "rdma", other.collect());
    assert!(text.contains("No trial of rdma has the metric latency in ns."), "{text}");
}
