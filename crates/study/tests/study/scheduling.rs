//! From a study to trials: the product, the named core sets, the order, the time.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{magny_cours, nehalem, pair, registry, small};
use clearstream_schema::{TimeSpan, flow::FlowConfig, host::HostReport, study::StudyFile};
use clearstream_study::{Cell, Mode, Schedule, ScheduleOptions, StudyError, file, interrupt_core};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

fn built_in() -> StudyFile {
    file::load("clearstream-40ge", &registry()).unwrap()
}

fn schedule(
    study: &StudyFile,
    options: &ScheduleOptions,
    client: &HostReport,
    server: &HostReport,
) -> Result<Schedule, StudyError> {
    clearstream_study::schedule(study, options, &pair(client, server), &registry())
}

fn flow(cell: &Cell) -> FlowConfig {
    FlowConfig::deserialize(&cell.config).unwrap()
}

fn only(name: &str, mode: Mode, in_lab: bool) -> ScheduleOptions {
    ScheduleOptions { mode, in_lab, only: vec![name.to_owned()], seed: 1, ..ScheduleOptions::default() }
}

fn levels(schedule: &Schedule, factor: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    for cell in &schedule.experiments[0].cells {
        let level = cell.factors[factor].clone();
        if !seen.contains(&level) {
            seen.push(level);
        }
    }
    seen
}

#[test]
fn the_full_matrix_is_the_papers() {
    let (client, server) = (nehalem("sender"), nehalem("receiver"));
    let schedule = schedule(&built_in(), &only("pin-matrix", Mode::Full, false), &client, &server).unwrap();
    assert_eq!(schedule.trials.len(), 64, "8 x 8 measurements (TNC 2011, section 3)");
    let cell = &schedule.experiments[0].cells[0];
    assert_eq!(flow(cell).duration, TimeSpan::from_seconds(300), "each over 5 minutes");
    assert!(flow(cell).source_port.is_some(), "from a fixed source port");
    let big = schedule_of(&built_in(), &only("pin-matrix", Mode::Full, false), "amd");
    assert_eq!(big.trials.len(), 48 * 48);
}

fn schedule_of(study: &StudyFile, options: &ScheduleOptions, name: &str) -> Schedule {
    schedule(study, options, &magny_cours(name), &magny_cours(name)).unwrap()
}

#[test]
fn representative_cores_are_one_per_class_and_those_around_the_interrupt() {
    assert_eq!(interrupt_core(&nehalem("x")), Some(7));
    assert_eq!(interrupt_core(&small("x")), None);
    let (client, server) = (nehalem("sender"), nehalem("receiver"));
    let schedule =
        schedule(&built_in(), &only("pin-matrix", Mode::Standard, false), &client, &server).unwrap();
    // One of each package, the interrupt core 7 and its neighbour 6.
    assert_eq!(levels(&schedule, "receiver-cores"), [0, 4, 6, 7].map(|core| json!(core)));
    // 48 cores: eight nodes (0, 24, 1, 25, ...), interrupt core 0 and its nearest on the node, 4.
    let big = schedule_of(&built_in(), &only("pin-matrix", Mode::Standard, false), "amd");
    assert_eq!(levels(&big, "receiver-cores"), [0, 1, 2, 3, 4, 24, 25, 26, 27].map(|core| json!(core)));
}

#[test]
fn a_small_lab_still_gets_a_matrix_with_a_movable_interrupt_core() {
    let options = only("pin-matrix", Mode::Quick, true);
    let schedule = schedule(&built_in(), &options, &small("alpha"), &small("beta")).unwrap();
    assert_eq!(schedule.experiments[0].cells.len(), 2 * 2 * 2);
    assert_eq!(levels(&schedule, "receive-steering"), [json!(0), json!(1)]);
}

#[test]
fn offline_and_forbidden_cores_are_left_out_or_refused() {
    let mut server = nehalem("receiver");
    server.processing_units[5].online = false;
    server.processing_units[6].allowed = false;
    let study = built_in();
    let full = schedule(&study, &only("pin-matrix", Mode::Full, false), &nehalem("sender"), &server).unwrap();
    assert_eq!(levels(&full, "receiver-cores"), [0, 1, 2, 3, 4, 7].map(|core| json!(core)));
    let named = |core: u32| {
        let mut study = study.clone();
        let factors: BTreeMap<_, _> =
            [("receiver-cores".to_owned(), clearstream_schema::study::Levels::Listed(vec![json!(core)]))]
                .into();
        study.experiments.iter_mut().find(|experiment| experiment.name == "pin-matrix").unwrap().factors =
            factors;
        schedule(&study, &only("pin-matrix", Mode::Standard, false), &nehalem("sender"), &server)
            .unwrap_err()
            .to_string()
    };
    assert!(named(5).contains("core 5 is offline on receiver: it has 0-4,7"), "{}", named(5));
    assert!(named(6).contains("core 6 is not allowed"), "{}", named(6));
    assert!(named(48).contains("core 48 does not exist on receiver"), "{}", named(48));
}

#[test]
fn direction_decides_whose_cores_are_meant() {
    let study = built_in();
    let (amd, intel) = (magny_cours("amd"), nehalem("intel"));
    let sending = schedule(&study, &only("pin-row-sending", Mode::Full, false), &amd, &intel).unwrap();
    let receiving = schedule(&study, &only("pin-row-receiving", Mode::Full, false), &amd, &intel).unwrap();
    assert_eq!(sending.trials.len(), 48, "each of the 48 cores sends");
    assert_eq!(receiving.trials.len(), 48, "and receives, the data flowing back");
}

#[test]
fn lab_only_factors_are_refused_on_real_hosts() {
    let text = r#"schema = "clearstream.study"
version = 1
name = "mine"
title = "Mine"
[[experiment]]
name = "frames"
title = "Frames"
workload = "flow"
figure = "throughput"
[experiment.factors]
mtu = [1500, 9000]
"#;
    let study = file::parse(text, "mine.toml", &registry()).unwrap();
    let error = schedule(&study, &ScheduleOptions::default(), &small("a"), &small("b")).unwrap_err();
    assert!(matches!(&error, StudyError::LabOnly { factor, .. } if factor == "mtu"), "{error}");
    assert!(error.to_string().contains("--lab"), "{error}");
    let options = ScheduleOptions { in_lab: true, ..ScheduleOptions::default() };
    let schedule = schedule(&study, &options, &small("a"), &small("b")).unwrap();
    assert_eq!(schedule.experiments[0].cells[1].environment.mtu_bytes, Some(9000));
}

#[test]
fn gateways_are_for_labs_and_their_options_are_checked() {
    let study = file::load("native-client", &registry()).unwrap();
    let error = schedule(&study, &ScheduleOptions::default(), &small("a"), &small("b")).unwrap_err();
    assert!(
        matches!(&error, StudyError::LabWorkload { experiment, .. } if experiment == "shares"),
        "{error}"
    );
    let options = ScheduleOptions { in_lab: true, ..ScheduleOptions::default() };
    let schedule = schedule(&study, &options, &small("a"), &small("b")).unwrap();
    let cells: Vec<usize> = schedule.experiments.iter().map(|experiment| experiment.cells.len()).collect();
    assert_eq!(
        cells,
        [4, 6, 2],
        "weights and return paths; three failures with and without watch; one gateway and all"
    );
    // Two seconds before the failure and eight after it.
    assert!(schedule.experiments[1].cells.iter().all(|cell| cell.time == TimeSpan::from_seconds(10)));
    let text = |option: &str| {
        format!(
            "schema = \"clearstream.study\"\nversion = 1\nname = \"mine\"\ntitle = \"Mine\"\n[[experiment]]\n\
             name = \"g\"\ntitle = \"G\"\nworkload = \"gateways\"\nfigure = \"gateways\"\n\
             [experiment.gateways]\n{option}\n"
        )
    };
    assert!(file::parse(&text("watch = true"), "mine.toml", &registry()).is_ok());
    for (option, hint) in [
        ("wacth = true", "did you mean `watch`"),
        ("failure = \"silence\"", "did you mean `silent`"),
        ("settle = \"long\"", "17ms"),
    ] {
        let message = file::parse(&text(option), "mine.toml", &registry()).unwrap_err().to_string();
        assert!(message.starts_with("mine.toml:11: ") && message.contains(hint), "{message}");
    }
}

#[test]
fn an_unknown_experiment_is_named() {
    let error =
        schedule(&built_in(), &only("windows", Mode::Quick, false), &small("a"), &small("b")).unwrap_err();
    assert!(error.to_string().contains("did you mean `window`"), "{error}");
}

#[test]
fn every_pass_visits_every_cell_once_in_an_order_of_its_own() {
    let schedule = schedule_of(&built_in(), &only("window", Mode::Standard, false), "amd");
    let cells = schedule.experiments[0].cells.len();
    assert_eq!(cells, 15);
    let passes: Vec<Vec<usize>> =
        schedule.trials.chunks(cells).map(|pass| pass.iter().map(|trial| trial.cell).collect()).collect();
    assert_eq!(passes.len(), 3);
    for pass in &passes {
        assert_eq!(pass.iter().collect::<BTreeSet<_>>().len(), cells);
    }
    assert_ne!(passes[0], passes[1]);
    assert!(schedule.trials.iter().zip(0..).all(|(trial, place)| trial.trial == place));
}

/// The order is part of the record's meaning: a later version must resume it.
#[test]
fn the_order_of_a_seed_never_changes() {
    let schedule = schedule_of(&built_in(), &only("window", Mode::Quick, false), "amd");
    let order: Vec<usize> = schedule.trials.iter().map(|trial| trial.cell).collect();
    assert_eq!(order, ORDER);
}

#[test]
fn the_quick_demo_fits_into_three_minutes() {
    let options = ScheduleOptions { mode: Mode::Quick, in_lab: true, seed: 1, ..ScheduleOptions::default() };
    let schedule = schedule(&built_in(), &options, &small("alpha"), &small("beta")).unwrap();
    let seconds = schedule.time().seconds();
    assert!((120.0..185.0).contains(&seconds), "{seconds} s");
    let table = schedule.table();
    assert_eq!(table.trial_count, schedule.trials.len());
    assert_eq!(table.trials.len(), table.trial_count);
    assert!(table.experiments.iter().all(|row| row.trial_count == row.cell_count * row.repetitions as usize));
    let sum: u64 = table.experiments.iter().map(|row| row.time.0).sum();
    assert_eq!(sum, table.time.0);
}

/// A file may name any duration: centuries times cells do not fit into a number.
#[test]
fn times_of_centuries_add_up_to_the_longest_time() {
    let mut study = built_in();
    for experiment in &mut study.experiments {
        experiment.options.set("flow", "duration", json!("18446744073s"));
    }
    let schedule =
        schedule(&study, &only("window", Mode::Standard, false), &nehalem("one"), &nehalem("two")).unwrap();
    assert!(schedule.trials.len() > 1);
    assert_eq!(schedule.time(), TimeSpan(u64::MAX));
    assert_eq!(schedule.table().time, TimeSpan(u64::MAX));
}

#[test]
fn a_budget_takes_repetitions_never_cells() {
    let options = ScheduleOptions {
        budget: Some(TimeSpan::from_seconds(300)),
        ..only("window", Mode::Standard, false)
    };
    let cut = schedule_of(&built_in(), &options, "amd");
    assert_eq!(cut.trials.len(), 15, "one pass of 15 cells");
    assert!(cut.notices.iter().any(|notice| notice.id == "budget-repetitions"));
    let options = ScheduleOptions { budget: Some(TimeSpan::from_seconds(1)), ..options };
    assert_eq!(schedule_of(&built_in(), &options, "amd").trials.len(), 15);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Whatever the seed, a schedule has every cell as often as requested, and the same seed the same order.
    #[test]
    fn any_seed_gives_a_complete_schedule(seed: u64) {
        let options = ScheduleOptions { seed, in_lab: true, mode: Mode::Quick, ..ScheduleOptions::default() };
        let make = || schedule(&built_in(), &options, &small("alpha"), &small("beta")).unwrap();
        let schedule = make();
        let mut seen = BTreeSet::new();
        for trial in &schedule.trials {
            prop_assert!(seen.insert((trial.experiment, trial.cell, trial.repetition)));
        }
        let expected: usize =
            schedule.experiments.iter().map(|experiment| experiment.cells.len() * experiment.repetitions as usize).sum();
        prop_assert_eq!(seen.len(), expected);
        prop_assert_eq!(make().trials, schedule.trials);
    }
}

/// Seed 1, quick, experiment `window`: two passes over eight cells, from another
/// implementation of the same published algorithms.
const ORDER: [usize; 16] = [4, 2, 5, 3, 1, 7, 6, 0, 2, 0, 4, 3, 1, 6, 5, 7];
