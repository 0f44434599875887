//! Two levels of a record, and runs of two sides.

use std::{path::Path, rc::Rc, sync::atomic::AtomicBool};

use crate::common::{FakeTestbed, lab, registry};
use clearstream_record::Reader;
use clearstream_schema::{
    flow::FlowConfig,
    lab::{DELAY_LINE_LIMIT_NOTICE, DelayLineStats},
};
use clearstream_study::{
    CellComparison, Comparison, PRACTICAL_RATIO, RunRequest, Runner, ScheduleOptions, Verdict,
    compare_levels, compare_runs, file,
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
        study: file::parse(&text, "mine.toml", &registry()).unwrap(),
        options: ScheduleOptions { seed: 3, ..ScheduleOptions::default() },
        registry: registry(),
        program_version: String::new(),
    };
    let testbed = FakeTestbed {
        result: Rc::new(move |place, config| Ok(goodput(place, config))),
        ..FakeTestbed::new()
    };
    run(folder, request, testbed)
}

fn run(folder: &Path, request: RunRequest, testbed: FakeTestbed) -> Reader {
    Runner::start(folder, request, testbed).unwrap().run(&AtomicBool::new(false), &mut |_| {}).unwrap();
    Reader::open(folder).unwrap()
}

/// A run in a lab whose delay line was the limit of every trial, or of none.
fn in_lab(folder: &Path, is_limited: bool) -> Reader {
    let text = STUDY.replace("LEVELS", THREE).replace("REPETITIONS", "2");
    let request = RunRequest {
        study: file::parse(&text, "mine.toml", &registry()).unwrap(),
        options: ScheduleOptions { seed: 3, ..ScheduleOptions::default() },
        registry: registry(),
        program_version: String::new(),
    };
    let line = DelayLineStats { relay_limited: is_limited, ..DelayLineStats::default() };
    run(folder, request, FakeTestbed { lab: Some(lab("wan")), line, ..FakeTestbed::new() })
}

#[test]
fn trials_that_a_delay_line_limited_are_counted_for_each_side() {
    let folder = TempDir::new().unwrap();
    let limited = in_lab(&folder.path().join("limited"), true);
    let healthy = in_lab(&folder.path().join("healthy"), false);
    let of = |comparison: &Comparison| -> Vec<String> {
        let notices = comparison.notices.iter().filter(|notice| notice.id == DELAY_LINE_LIMIT_NOTICE);
        notices.map(|notice| notice.message.clone()).collect()
    };
    let runs = |base: &Reader, changed: &Reader| {
        compare_runs(std::slice::from_ref(base), std::slice::from_ref(changed), None, PRACTICAL_RATIO)
            .unwrap()
    };
    // Three windows, two repetitions each.
    let one_side = runs(&limited, &healthy);
    let [message] = of(&one_side).try_into().unwrap();
    let counts =
        "of 6 of 6 trials of the first side and of 0 of 6 of the second: all 3 cells compare this machine";
    assert!(message.contains(counts), "{message}");
    assert_eq!(one_side.notices[0].id, DELAY_LINE_LIMIT_NOTICE, "before all other notices");
    let counts =
        |cell: &CellComparison| (cell.base_delay_line_limited_count, cell.changed_delay_line_limited_count);
    assert!(one_side.cells.iter().all(|cell| counts(cell) == (2, 0)));
    assert_eq!(of(&runs(&healthy, &healthy)), Vec::<String>::new());
    let json = serde_json::to_value(&runs(&healthy, &healthy).cells[0]).unwrap();
    assert!(json.get("base_delay_line_limited_count").is_none(), "{json}");
    // Two levels of one run.
    let levels = compare_levels(&limited, "window=1MiB", "window=2MiB", None, PRACTICAL_RATIO).unwrap();
    let [message] = of(&levels).try_into().unwrap();
    assert!(message.contains("2 of 2 trials of the first side and of 2 of 2 of the second"), "{message}");
    assert!(levels.cells.iter().all(CellComparison::is_delay_line_limited));
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

const THREE: &str = "[\"1MiB\", \"2MiB\", \"3MiB\"]";

/// One run of two flow counts times three windows: with two flows the large window is a fifth
/// faster and the small one a fifth slower.
fn of_one_run(repetitions: u32) -> (TempDir, Reader) {
    let folder = TempDir::new().unwrap();
    let levels = format!("{THREE}\nflows = [1, 2]");
    let reader = record(&folder.path().join("run"), &levels, repetitions, |place, config| {
        if config.flows == 2 { tuned(place, config) } else { steady(place, config) }
    });
    (folder, reader)
}

fn cell<'a>(comparison: &'a Comparison, window: &str) -> &'a CellComparison {
    comparison.cells.iter().find(|cell| cell.factors["window"] == window).unwrap()
}

#[test]
fn two_levels_of_one_record_are_compared_in_pairs() {
    let (_folder, run) = of_one_run(12);
    let comparison = compare_levels(&run, "flows=1", "flows=2", None, PRACTICAL_RATIO).unwrap();
    let verdict = |window: &str| {
        let cell = cell(&comparison, window);
        assert_eq!((cell.metric.name.as_str(), cell.pair_count), ("goodput", 12));
        cell.verdict
    };
    assert_eq!(verdict("1MiB"), Verdict::Worse);
    assert_eq!(verdict("2MiB"), Verdict::Same);
    assert_eq!(verdict("3MiB"), Verdict::Better);
    let faster = cell(&comparison, "3MiB");
    assert!((faster.median_ratio.unwrap() - 1.2).abs() < 0.02, "{faster:?}");
    assert!(faster.low_ratio.unwrap() > 1.15 && faster.high_ratio.unwrap() < 1.25);
    // Twelve pairs of the same sign, three cells.
    assert!(faster.probability_ratio <= 2.0 / 4096.0 + 1e-12, "{faster:?}");
    assert!(faster.adjusted_probability_ratio >= faster.probability_ratio);
    // Over all windows there is no one effect: it depends on the window, and is reported so.
    let [effect] = comparison.effects.as_slice() else { panic!("{:?}", comparison.effects) };
    assert!(effect.effect.is_none() && effect.verdict == Verdict::Unknown, "{effect:?}");
    let on = effect.depends_on.as_ref().unwrap();
    assert_eq!(on.factor, "window");
    let ratio = |level: &str| on.levels.iter().find(|one| one.level.as_deref() == Some(level)).unwrap().ratio;
    assert!(ratio("1MiB") < 0.85 && ratio("3MiB") > 1.15, "{on:?}");
}

#[test]
fn five_repetitions_prove_nothing_about_a_cell_and_the_reason_is_reported() {
    let (_folder, run) = of_one_run(5);
    let comparison = compare_levels(&run, "flows=1", "flows=2", None, PRACTICAL_RATIO).unwrap();
    let faster = cell(&comparison, "3MiB");
    assert_eq!(faster.verdict, Verdict::Unknown);
    assert_eq!(faster.confidence_ratio, Some(0.9375));
    let reason = faster.reason.as_ref().unwrap();
    assert!(
        reason.contains("5 pairs of trials") && reason.contains("0.0625 at least; 6 are needed"),
        "{reason}"
    );
}

#[test]
fn what_is_no_level_is_named_with_those_there_are() {
    let (_folder, run) = of_one_run(1);
    let error = |base: &str, changed: &str| {
        compare_levels(&run, base, changed, None, PRACTICAL_RATIO).unwrap_err().to_string()
    };
    assert!(
        error("flows=1", "flows=8").contains("has no flows=8; it has flows=1|2"),
        "{}",
        error("flows=1", "flows=8")
    );
    assert!(error("flow=1", "flow=2").contains("flows=1|2, window=1MiB|2MiB|3MiB"));
    assert!(error("flows=1", "window=2MiB").contains("write FACTOR=LEVEL"));
    assert!(error("flows", "flows=2").contains("write FACTOR=LEVEL"));
}

#[test]
fn two_runs_one_after_the_other_claim_nothing_and_name_the_remedy() {
    let folder = TempDir::new().unwrap();
    let base = record(&folder.path().join("base"), THREE, 6, steady);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let changed = record(&folder.path().join("changed"), THREE, 6, tuned);
    let comparison = compare_runs(&[base], &[changed], None, PRACTICAL_RATIO).unwrap();
    assert_eq!(comparison.cells.len(), 3);
    assert!(comparison.cells.iter().all(|cell| cell.verdict == Verdict::Unknown && cell.low_ratio.is_none()));
    assert!((cell(&comparison, "3MiB").median_ratio.unwrap() - 1.2).abs() < 0.02, "shown, not claimed");
    let reported: Vec<&str> = comparison.notices.iter().map(|notice| notice.id.as_str()).collect();
    assert_eq!(reported, ["one-run-each", "no-overlap"]);
    assert!(comparison.notices[1].message.contains("--before COMMAND --after COMMAND"));
}

#[test]
fn only_common_cells_are_compared() {
    let folder = TempDir::new().unwrap();
    let base = record(&folder.path().join("base"), THREE, 2, steady);
    let changed = record(&folder.path().join("changed"), "[\"3MiB\", \"4MiB\"]", 2, steady);
    let comparison = compare_runs(&[base], &[changed], None, PRACTICAL_RATIO).unwrap();
    assert_eq!(comparison.cells.len(), 1);
    assert_eq!(comparison.unmatched_count, 3);
    let text = serde_json::to_string(&comparison).unwrap();
    for key in [
        "\"metric\":\"goodput\",\"unit\":\"b/s\"",
        "\"median_ratio\"",
        "\"probability_ratio\"",
        "\"unmatched_count\":3",
    ] {
        assert!(text.contains(key), "{key}: {text}");
    }
}

/// A metric that is zero in some cells: of 3 MiB in the first half of the repetitions.
fn some_zeros(place: usize, config: &FlowConfig) -> f64 {
    match config.window {
        Some(window) if window.0 == 2 << 20 => 0.0,
        Some(window) if window.0 == 3 << 20 && place.is_multiple_of(2) => 0.0,
        _ => 1e9 + place as f64,
    }
}

#[test]
fn a_zero_has_no_ratio_and_is_reported() {
    let folder = TempDir::new().unwrap();
    let base = record(&folder.path().join("base"), THREE, 12, some_zeros);
    let changed = record(&folder.path().join("changed"), THREE, 12, some_zeros);
    let found = compare_levels(&base, "window=2MiB", "window=3MiB", None, PRACTICAL_RATIO).unwrap();
    let cell = &found.cells[0];
    assert_eq!((cell.zero_pair_count, cell.median_ratio, cell.verdict), (12, None, Verdict::Unknown));
    assert_eq!(cell.reason.as_deref(), Some("12 of 12 pairs have a zero, and no ratio"));
    let text = serde_json::to_string(&found).unwrap();
    assert!(!text.contains("null"), "unknown values are absent: {text}");
    let runs = compare_runs(&[base], &[changed], None, PRACTICAL_RATIO).unwrap();
    assert_eq!(runs.cells.len(), 3);
}

#[test]
fn zero_throughout_is_the_same() {
    let folder = TempDir::new().unwrap();
    let none = record(folder.path(), THREE, 12, |_, _| 0.0);
    let found = compare_levels(&none, "window=2MiB", "window=3MiB", None, PRACTICAL_RATIO).unwrap();
    assert_eq!(found.cells[0].verdict, Verdict::Same, "{:?}", found.cells[0]);
}

#[test]
fn a_metric_that_is_not_there_is_named_with_those_there_are() {
    let folder = TempDir::new().unwrap();
    let run = record(folder.path(), THREE, 2, steady);
    let typed = Some("godput");
    let error = compare_levels(&run, "window=2MiB", "window=3MiB", typed, PRACTICAL_RATIO).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("did you mean `goodput`") && text.contains("client-cpu"), "{text}");
    let runs = std::slice::from_ref(&run);
    assert!(compare_runs(runs, runs, typed, PRACTICAL_RATIO).is_err());
}
