//! Two records beside each other.

use std::{path::Path, rc::Rc, sync::atomic::AtomicBool};

use crate::common::FakeBench;
use clearstream_record::Reader;
use clearstream_schema::flow::FlowConfig;
use clearstream_study::{
    Comparison, Metric, PRACTICAL_RATIO, PlanOptions, RunRequest, Runner, Verdict, compare, file,
};
use tempfile::TempDir;

const STUDY: &str = r#"schema = "clearstream.study"
version = 1
name = "mine"
title = "Mine"
[[experiment]]
name = "window"
title = "Window"
workload = "flow"
figure = "window-curve"
repetitions = REPETITIONS
[experiment.factors]
window = LEVELS
"#;

fn record(folder: &Path, levels: &str, repetitions: u32, goodput: fn(usize, &FlowConfig) -> f64) -> Reader {
    let text = STUDY.replace("LEVELS", levels).replace("REPETITIONS", &repetitions.to_string());
    let request = RunRequest {
        study: file::parse(&text, "mine.toml").unwrap(),
        options: PlanOptions { seed: 3, ..PlanOptions::default() },
        program_version: String::new(),
    };
    let bench =
        FakeBench { answer: Rc::new(move |place, config| Ok(goodput(place, config))), ..FakeBench::new() };
    Runner::start(folder, request, bench).unwrap().run(&AtomicBool::new(false), &mut |_| {}).unwrap();
    Reader::open(folder).unwrap()
}

/// 20 Gb/s with a scatter of 1 %.
fn steady(place: usize, _: &FlowConfig) -> f64 {
    20e9 + (place * 7 % 11) as f64 * 2e7
}

/// The same, but the large window is a fifth faster and the small one a fifth slower.
fn tuned(place: usize, config: &FlowConfig) -> f64 {
    let factor = match config.window.map(|window| window.0 >> 20) {
        Some(1) => 0.8,
        Some(3) => 1.2,
        _ => 1.0,
    };
    steady(place, config) * factor
}

fn compared(levels: [&str; 2], repetitions: u32, changed: fn(usize, &FlowConfig) -> f64) -> Comparison {
    let folder = TempDir::new().unwrap();
    let base = record(&folder.path().join("base"), levels[0], repetitions, steady);
    let changed = record(&folder.path().join("changed"), levels[1], repetitions, changed);
    compare(&base, &changed, PRACTICAL_RATIO).unwrap()
}

const THREE: &str = "[\"1MiB\", \"2MiB\", \"3MiB\"]";

#[test]
fn tells_better_worse_and_same() {
    let comparison = compared([THREE, THREE], 6, tuned);
    let verdict = |window: &str| {
        let cell = comparison.cells.iter().find(|cell| cell.factors["window"] == window).unwrap();
        assert_eq!((cell.metric, cell.base_count, cell.changed_count), (Metric::GoodputBps, 6, 6));
        cell.verdict
    };
    assert_eq!(verdict("1MiB"), Verdict::Worse);
    assert_eq!(verdict("2MiB"), Verdict::Same);
    assert_eq!(verdict("3MiB"), Verdict::Better);
    let faster = comparison.cells.iter().find(|cell| cell.factors["window"] == "3MiB").unwrap();
    assert!((faster.median_ratio - 1.2).abs() < 0.02, "{faster:?}");
    assert!(faster.low_ratio.unwrap() > 1.15 && faster.high_ratio.unwrap() < 1.25);
    // 2 of the 924 ways to deal twelve values out are as extreme; three cells, the largest ratio of ranks 3/2.
    assert!(faster.probability_ratio <= 2.0 / 924.0 + 1e-12, "{faster:?}");
    assert!(faster.adjusted_probability_ratio >= faster.probability_ratio);
}

#[test]
fn a_single_value_proves_nothing() {
    let comparison = compared([THREE, THREE], 1, tuned);
    assert!(comparison.cells.iter().all(|cell| cell.verdict == Verdict::Unknown && cell.low_ratio.is_none()));
}

#[test]
fn only_common_cells_are_compared() {
    let comparison = compared([THREE, "[\"3MiB\", \"4MiB\"]"], 2, steady);
    assert_eq!(comparison.cells.len(), 1);
    assert_eq!(comparison.unmatched_count, 3);
}

#[test]
fn the_document_carries_units_in_its_keys() {
    let text = serde_json::to_string(&compared([THREE, THREE], 2, tuned)).unwrap();
    for key in
        ["\"metric\":\"goodput_bps\"", "\"median_ratio\"", "\"probability_ratio\"", "\"unmatched_count\":0"]
    {
        assert!(text.contains(key), "{key}: {text}");
    }
}
