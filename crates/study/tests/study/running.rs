//! The runner on a testbed without hosts: what is recorded, kept, skipped, resumed.

use std::{
    collections::BTreeSet,
    os::unix::fs::symlink,
    path::Path,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::common::{Call, FakeTestbed, failed, lab, magny_cours, registry, small};
use clearstream_record::{Reader, RecordError};
use clearstream_schema::{
    TimeSpan,
    flow::Interval,
    host::HostReport,
    lab::{DELAY_LINE_LIMIT_NOTICE, DelayLineStats},
    outcome::{MAX_TIME_POINTS, Unit},
    record::{Treatments, TrialDocument, TrialOutcome},
    study::StudyFile,
};
use clearstream_study::{
    EndReason, Mode, ResumeOptions, RunEnd, RunRequest, Runner, ScheduleOptions, SkipReason, Steering,
    StudyError, StudyEvent, file,
};
use clearstream_workload::TrialError;
use tempfile::TempDir;

/// Three windows, three times.
const STUDY: &str = r#"schema = "clearstream.study"
version = 1
name = "mine"
title = "Mine"
[[experiment]]
name = "window"
title = "Window"
workload = "flow"
figure = "window-curve"
repetitions = 3
[experiment.factors]
window = ["1MiB", "2MiB", "3MiB"]
"#;

fn request(text: &str) -> RunRequest {
    RunRequest {
        study: file::parse(text, "mine.toml", &registry()).unwrap(),
        options: ScheduleOptions { seed: 7, ..ScheduleOptions::default() },
        registry: registry(),
        program_version: "0.1.0".to_owned(),
    }
}

fn run(folder: &Path, text: &str, testbed: &FakeTestbed) -> RunEnd {
    let runner = Runner::start(folder, request(text), testbed.clone()).unwrap();
    runner.run(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn resume(folder: &Path, testbed: &FakeTestbed) -> RunEnd {
    let runner = Runner::resume(folder, Some(&study()), &registry(), testbed.clone()).unwrap();
    runner.run(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn study() -> StudyFile {
    file::parse(STUDY, "mine.toml", &registry()).unwrap()
}

fn recorded(folder: &Path) -> Vec<TrialDocument> {
    Reader::open(folder).unwrap().trials().unwrap().collect::<Result<_, _>>().unwrap()
}

fn notices(folder: &Path) -> Vec<String> {
    Reader::open(folder).unwrap().run().notices.iter().map(|notice| notice.id.clone()).collect()
}

#[test]
fn a_run_leaves_every_trial_with_its_samples() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let end = run(&path, STUDY, &FakeTestbed::new());
    assert_eq!((end.reason, end.scheduled_count, end.done_count), (EndReason::Complete, 9, 9));
    let reader = Reader::open(&path).unwrap();
    let trials = recorded(&path);
    assert_eq!(trials.iter().map(|trial| trial.trial).collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    for trial in &trials {
        assert_eq!(reader.samples::<Interval>(trial).unwrap().count(), 6);
        assert_eq!(trial.steady, Some(true), "five equal values after the warm-up");
        assert!(trial.started.ends_with('Z') && trial.started.contains('T'), "{}", trial.started);
    }
    assert!(reader.run().ended.is_some());
    assert!(reader.capture("client").is_some());
    assert!(reader.capture("server").is_none());
    assert!(
        notices(&path).contains(&"capture-missing".to_owned()),
        "a missing capture is reported, not fatal"
    );
}

#[test]
fn a_trial_without_series_gets_its_headline_over_time_of_bounded_length() {
    let folder = TempDir::new().unwrap();
    run(&folder.path().join("short"), STUDY, &FakeTestbed::new());
    for trial in recorded(&folder.path().join("short")) {
        let outcome = trial.outcome.measured().unwrap();
        let [series] = outcome.series.as_slice() else { panic!("{:?}", outcome.series) };
        assert_eq!((series.name.as_str(), series.y.unit), ("goodput", Unit::BitsPerSecond));
        assert_eq!((series.x.name.as_str(), series.x.unit), ("time", Unit::Nanoseconds));
        let goodput = outcome.headline().unwrap().value;
        // Six intervals of a second; the first is warm-up.
        let expected: Vec<(f64, f64)> = (2..=6).map(|second| (f64::from(second) * 1e9, goodput)).collect();
        assert_eq!(series.points, expected);
    }
    run(&folder.path().join("long"), STUDY, &FakeTestbed { intervals: 1000, ..FakeTestbed::new() });
    let text = std::fs::read_to_string(folder.path().join("long/trials.jsonl")).unwrap();
    assert!(text.lines().all(|line| line.len() < 8 << 10), "a line of a trial stays short");
    for trial in recorded(&folder.path().join("long")) {
        let points = trial.outcome.measured().unwrap().series[0].points.len();
        assert!((64..=MAX_TIME_POINTS).contains(&points), "{points}");
    }
}

#[test]
fn a_failed_trial_does_not_end_the_study_and_is_retried_by_resuming() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let mut testbed = FakeTestbed::new();
    testbed.result = Rc::new(|place, _| if place == 4 { Err(failed("port in use")) } else { Ok(1e9) });
    let end = run(&path, STUDY, &testbed);
    assert_eq!((end.reason, end.done_count, end.failed_count), (EndReason::Complete, 8, 1));
    let trials = recorded(&path);
    assert!(matches!(&trials[4].outcome, TrialOutcome::Failed(failure) if failure.message == "port in use"));
    let second = FakeTestbed::new();
    let end = resume(&path, &second);
    assert_eq!((end.done_count, end.failed_count), (9, 0));
    assert_eq!(second.flows().len(), 1, "only the failed one");
    let numbers: BTreeSet<u32> = recorded(&path).iter().map(|trial| trial.trial).collect();
    assert_eq!(numbers.len(), 9);
    assert_eq!(recorded(&path).len(), 9);
}

#[test]
fn stopping_keeps_the_samples_and_resuming_keeps_order_and_seed() {
    let folder = TempDir::new().unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    let reference = FakeTestbed::new();
    run(&whole, STUDY, &reference);
    let stopped = FakeTestbed { stop_in: Some(3), ..FakeTestbed::new() };
    let end = run(&cut, STUDY, &stopped);
    assert_eq!((end.reason, end.done_count), (EndReason::Stopped, 3));
    let partial = recorded(&cut).pop().unwrap();
    assert!(!partial.outcome.measured().unwrap().complete);
    assert_eq!(
        Reader::open(&cut).unwrap().samples::<Interval>(&partial).unwrap().count(),
        2,
        "samples taken so far"
    );
    let second = FakeTestbed::new();
    assert_eq!(resume(&cut, &second).reason, EndReason::Complete);
    let windows = |testbed: &FakeTestbed| testbed.flows().iter().map(|flow| flow.window).collect::<Vec<_>>();
    assert_eq!(windows(&second), windows(&reference)[3..], "the same order goes on");
    assert_eq!(recorded(&cut).len(), 9);
}

#[test]
fn a_lost_agent_ends_the_run_which_can_be_resumed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let mut testbed = FakeTestbed::new();
    testbed.result =
        Rc::new(|place, _| if place == 2 { Err(TrialError::lost("beta is gone")) } else { Ok(1e9) });
    let end = run(&path, STUDY, &testbed);
    assert_eq!(end.reason, EndReason::Lost("beta is gone".to_owned()));
    assert_eq!(testbed.flows().len(), 3, "nothing is tried on a lost agent");
    assert!(notices(&path).contains(&"peer-lost".to_owned()));
    assert_eq!(resume(&path, &FakeTestbed::new()).done_count, 9);
}

#[test]
fn resuming_rejects_changed_inputs_and_names_them() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    run(&path, STUDY, &FakeTestbed { stop_in: Some(1), ..FakeTestbed::new() });
    let refused = |study: Option<&StudyFile>, testbed: FakeTestbed| {
        let error = Runner::resume(&path, study, &registry(), testbed).unwrap_err();
        assert!(matches!(error, StudyError::Changed { .. }), "{error}");
        error.to_string()
    };
    let changed = file::parse(&STUDY.replace("3MiB", "4MiB"), "mine.toml", &registry()).unwrap();
    let message = refused(Some(&changed), FakeTestbed::new());
    assert!(message.contains("experiment window was changed"), "{message}");
    let message = refused(None, FakeTestbed { server: magny_cours("beta"), ..FakeTestbed::new() });
    assert!(message.contains("the server's set of cores was 0-1, is 0-47"), "{message}");
    let message = refused(None, FakeTestbed { lab: Some(lab("wan")), ..FakeTestbed::new() });
    assert!(message.contains("it ran on real hosts, not in the lab wan"), "{message}");
    assert!(!message.contains("server"), "what did not change is not named: {message}");
}

#[test]
fn of_several_hosts_of_one_role_messages_name_the_one() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let bench = |others: Vec<HostReport>| FakeTestbed { others, ..FakeTestbed::new() };
    run(&path, STUDY, &bench(vec![small("gamma"), small("delta")]));
    let reader = Reader::open(&path).unwrap();
    let missing = reader.run().notices.iter().filter(|notice| notice.id == "capture-missing");
    let hosts: Vec<_> = missing.map(|notice| notice.message.split(" was not").next().unwrap()).collect();
    assert_eq!(hosts, ["the server", "gamma", "delta"]);
    let refused = |others| {
        let error = Runner::resume(&path, None, &registry(), bench(others)).unwrap_err();
        assert!(matches!(error, StudyError::Changed { .. }), "{error}");
        error.to_string()
    };
    let message = refused(vec![small("gamma"), magny_cours("delta")]);
    assert!(message.contains("delta's set of cores was 0-1, is 0-47"), "{message}");
    assert!(!message.contains("gamma") && !message.contains("the host"), "{message}");
    let message = refused(vec![small("delta")]);
    assert!(
        message.contains("gamma (host), delta (host), not on alpha (client), beta (server), delta (host)"),
        "{message}"
    );
}

#[test]
fn a_second_start_in_the_same_folder_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    run(&path, STUDY, &FakeTestbed::new());
    let error = Runner::start(&path, request(STUDY), FakeTestbed::new()).unwrap_err();
    assert!(matches!(error, StudyError::Record(RecordError::Exists { .. })), "{error}");
}

#[test]
fn a_full_disk_ends_the_run_clearly_and_keeps_what_was_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let testbed = FakeTestbed::new();
    let runner = Runner::start(&path, request(STUDY), testbed.clone()).unwrap();
    // full(4): every write to /dev/full fails with ENOSPC.
    symlink("/dev/full", path.join("samples/000004.jsonl")).unwrap();
    let stop = AtomicBool::new(false);
    let error = runner.run(&stop, &mut |_| {}).unwrap_err();
    assert!(matches!(error, StudyError::Record(RecordError::Full { .. })), "{error:?}");
    assert!(error.to_string().contains("000004.jsonl"), "{error}");
    assert!(stop.load(Ordering::Relaxed), "the running trial was ended");
    assert_eq!(recorded(&path).len(), 4);
    std::fs::remove_file(path.join("samples/000004.jsonl")).unwrap();
    assert_eq!(resume(&path, &FakeTestbed::new()).done_count, 9);
}

#[test]
fn precise_cells_are_not_repeated() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let text = STUDY.replace("repetitions = 3", "repetitions = 20\nprecision-ratio = 0.05");
    let mut testbed = FakeTestbed::new();
    // The 3 MiB cell scatters by 40 %, the others not at all.
    testbed.result = Rc::new(|place, config| {
        let wild = config.window.is_some_and(|window| window.0 == 3 << 20);
        Ok(if wild { 20e9 + (place % 5) as f64 * 2e9 } else { 20e9 })
    });
    let runner = Runner::start(&path, request(&text), testbed.clone()).unwrap();
    let mut skipped = Vec::new();
    let end = runner
        .run(&AtomicBool::new(false), &mut |event| {
            if let StudyEvent::TrialSkipped { reason, .. } = event {
                skipped.push(reason);
            }
        })
        .unwrap();
    let count = |mib: u64| {
        testbed.flows().iter().filter(|flow| flow.window.is_some_and(|window| window.0 == mib << 20)).count()
    };
    assert_eq!((count(1), count(2)), (6, 6), "an interval of 95 % needs six values, also equal ones");
    assert!(count(3) > 8, "{}", count(3));
    assert_eq!(end.skipped_count, skipped.len());
    assert!(skipped.iter().all(|reason| *reason == SkipReason::Precise));
    assert_eq!(notices(&path).iter().filter(|id| *id == "precise-enough").count(), 1);
}

#[test]
fn the_time_left_shrinks_and_positions_count_up() {
    let folder = TempDir::new().unwrap();
    let runner = Runner::start(&folder.path().join("run"), request(STUDY), FakeTestbed::new()).unwrap();
    let (mut lefts, mut positions, mut estimates) = (Vec::new(), Vec::new(), 0);
    runner
        .run(&AtomicBool::new(false), &mut |event| match event {
            StudyEvent::Scheduled { left, .. } => lefts.push(left),
            StudyEvent::TrialStarted { position, .. } => positions.push(position),
            StudyEvent::TrialEnded { left, estimate, .. } => {
                lefts.push(left);
                estimates += usize::from(estimate.is_some());
            }
            _ => {}
        })
        .unwrap();
    assert_eq!(positions, (1..=9).collect::<Vec<_>>());
    assert!(lefts.windows(2).all(|pair| pair[1] < pair[0]), "{lefts:?}");
    assert_eq!(lefts.last(), Some(&TimeSpan(0)));
    assert_eq!(estimates, 6, "from the second repetition on");
}

#[test]
fn the_lab_is_set_for_each_cell_and_restored() {
    let folder = TempDir::new().unwrap();
    let text = STUDY
        .replace("window = [\"1MiB\", \"2MiB\", \"3MiB\"]", "mtu = [1500]\nreceive-steering = [1, \"off\"]");
    let testbed = FakeTestbed { lab: Some(lab("wan")), ..FakeTestbed::new() };
    let end = run(&folder.path().join("run"), &text, &testbed);
    assert_eq!(end.done_count, 6);
    let sets: Vec<_> = testbed
        .calls
        .borrow()
        .iter()
        .filter_map(|call| match call {
            Call::Set(environment) => Some(environment.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(sets.len(), 7);
    let (last, before) = sets.split_last().unwrap();
    assert_eq!(*last, clearstream_study::Environment::default(), "restored at the end");
    assert!(before.iter().all(|set| set.mtu_bytes == Some(1500)));
    let off = before.iter().filter(|set| set.receive_steering == Some(Steering::Off)).count();
    assert_eq!(off, 3);
    let trials = recorded(&folder.path().join("run"));
    assert!(trials.iter().all(|trial| trial.delay_lines.len() == 1));
    assert!(trials.iter().all(|trial| delay_line_notices(trial) == 0));
}

fn delay_line_notices(trial: &TrialDocument) -> usize {
    let outcome = trial.outcome.measured().unwrap();
    outcome.notices.iter().filter(|notice| notice.id == DELAY_LINE_LIMIT_NOTICE).count()
}

#[test]
fn a_trial_that_the_delay_line_limited_is_marked() {
    let folder = TempDir::new().unwrap();
    let line = DelayLineStats { relay_dropped_count: 3, relay_limited: true, ..DelayLineStats::default() };
    let testbed = FakeTestbed { lab: Some(lab("wan")), line, ..FakeTestbed::new() };
    run(&folder.path().join("run"), STUDY, &testbed);
    let trials = recorded(&folder.path().join("run"));
    assert!(!trials.is_empty());
    assert!(trials.iter().all(|trial| trial.delay_lines[0].relay_limited && delay_line_notices(trial) == 1));
}

#[test]
fn the_built_in_study_runs_through_on_a_bench_without_hosts() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let request = RunRequest {
        study: file::load("clearstream-40ge", &registry()).unwrap(),
        options: ScheduleOptions { mode: Mode::Quick, seed: 1, ..ScheduleOptions::default() },
        registry: registry(),
        program_version: "0.1.0".to_owned(),
    };
    let testbed = FakeTestbed { lab: Some(lab("wan-1650km")), ..FakeTestbed::new() };
    let end =
        Runner::start(&path, request, testbed).unwrap().run(&AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(end.done_count, end.scheduled_count);
    let names: BTreeSet<String> = recorded(&path).into_iter().map(|trial| trial.experiment).collect();
    assert_eq!(names.len(), 8);
}

/// A lucky narrow range of few values ends nothing: three equal ones hold the median with 75 %.
#[test]
fn a_lucky_narrow_range_does_not_stop_repeating() {
    let folder = TempDir::new().unwrap();
    let text = STUDY.replace("repetitions = 3", "repetitions = 8\nprecision-ratio = 0.05");
    let mut testbed = FakeTestbed::new();
    // Five trials of each cell agree by luck, the others do not.
    testbed.result = Rc::new(|place, _| Ok(if place < 15 { 20e9 } else { 16e9 + (place % 2) as f64 * 8e9 }));
    let end = run(&folder.path().join("run"), &text, &testbed);
    assert_eq!((end.done_count, end.skipped_count), (24, 0));
}

fn treated() -> FakeTestbed {
    let commands = Treatments { before: "sysctl -q -w a=1".to_owned(), after: "sysctl -q -w a=2".to_owned() };
    FakeTestbed { treatments: Some(commands), ..FakeTestbed::new() }
}

#[test]
fn both_treatments_of_a_cell_are_measured_one_after_the_other_in_a_random_order() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let text = STUDY.replace("repetitions = 3", "repetitions = 8");
    let end = run(&path, &text, &treated());
    assert_eq!(end.done_count, 3 * 8 * 2);
    let trials = recorded(&path);
    let mut after_first = 0;
    for pair in trials.chunks(2) {
        let level = |trial: &TrialDocument| trial.factors["treatment"].as_str().unwrap().to_owned();
        let (one, other) = (level(&pair[0]), level(&pair[1]));
        assert_ne!(one, other, "a pair has one of each");
        assert_eq!(pair[0].factors["window"], pair[1].factors["window"]);
        assert_eq!(pair[0].repetition, pair[1].repetition);
        after_first += usize::from(one == "after");
    }
    assert!((4..=20).contains(&after_first), "{after_first} of 24 pairs began with `after`");
    let comparison = clearstream_study::compare_levels(
        &Reader::open(&path).unwrap(),
        "treatment=before",
        "treatment=after",
        None,
        0.05,
    )
    .unwrap();
    assert_eq!(comparison.effects[0].pair_count, 24);
    assert_eq!(comparison.effects[0].verdict, clearstream_study::Verdict::Same);
}

#[test]
fn a_run_of_two_treatments_goes_on_with_the_same_two_only() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    run(&path, STUDY, &FakeTestbed { stop_in: Some(3), ..treated() });
    let error =
        Runner::resume(&path, Some(&study()), &registry(), FakeTestbed::new()).unwrap_err().to_string();
    assert!(error.contains("it ran with --before 'sysctl -q -w a=1'"), "{error}");
    assert_eq!(resume(&path, &treated()).done_count, 18);
}

#[test]
fn too_few_repetitions_to_prove_anything_are_named_before_the_run_and_in_its_record() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let runner = Runner::start(&path, request(STUDY), FakeTestbed::new()).unwrap();
    let planned: Vec<_> =
        runner.schedule().notices.iter().filter(|notice| notice.id == "proves-nothing").collect();
    assert_eq!(planned.len(), 1);
    let message = &planned[0].message;
    let weak = "in window (3 repetitions: 3 pairs at best, probability by chance 0.25 at least; 6 repetitions are needed)";
    assert!(
        message.contains("no difference between levels can be proven") && message.contains(weak),
        "{message}"
    );
    runner.run(&AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(notices(&path).contains(&"proves-nothing".to_owned()));
    let enough = STUDY.replace("repetitions = 3", "repetitions = 6");
    let runner = Runner::start(&folder.path().join("six"), request(&enough), FakeTestbed::new()).unwrap();
    assert!(runner.schedule().notices.is_empty(), "{:?}", runner.schedule().notices);
    // Two factors: pairs of one are repeated over the levels of the other.
    let two_factors = STUDY.replace("window = [", "flows = [1, 2]\nwindow = [").replace("\"1MiB\", ", "");
    let runner =
        Runner::start(&folder.path().join("two_factors"), request(&two_factors), FakeTestbed::new()).unwrap();
    assert!(
        runner.schedule().notices.is_empty(),
        "3 repetitions x 2 windows: {:?}",
        runner.schedule().notices
    );
}

#[test]
fn options_of_a_resumed_run_are_those_of_its_record() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    run(&path, STUDY, &FakeTestbed::new());
    let refused = |options: ResumeOptions| options.check(&path).unwrap_err().to_string();
    // Options left out, and options given unchanged.
    ResumeOptions::default().check(&path).unwrap();
    let same = ResumeOptions { mode: Some(Mode::Standard), seed: Some(7), ..ResumeOptions::default() };
    same.check(&path).unwrap();
    let name = study().experiments[0].name.clone();
    let other = ResumeOptions {
        mode: Some(Mode::Quick),
        seed: Some(8),
        only: vec![name.clone()],
        budget: Some("20min".parse().unwrap()),
    };
    let error = refused(other);
    for part in [
        "it ran in mode standard, not quick",
        "it ran with --seed 7, not 8",
        &format!("it ran all experiments, not --experiment {name}"),
        "it ran without --budget",
        "leave these options out",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = refused(ResumeOptions { seed: Some(0), ..ResumeOptions::default() });
    assert!(error.contains("--seed 7, not 0;"), "only what differs: {error}");
}
