//! From a study and two hosts to a list of trials in the order they are run.

use std::{collections::BTreeMap, sync::Arc};

use clearstream_configfile::did_you_mean;
use clearstream_schema::JsonSchema;
use clearstream_schema::{
    TimeSpan,
    notice::Notice,
    record::RunHost,
    study::{Experiment, StudyFile},
};
use clearstream_stats::{LEAST_PAIRS, Random, least_probability};
use clearstream_workload::{AnyWorkload, Registry};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Mode, StudyError,
    cells::{self, Cell, MAX_CELLS, Surroundings},
    factor::{Known, Treatment},
    variant::Effective,
};

/// Most trials of a study: at one a second more than two days.
const MAX_TRIALS: u64 = 200_000;

/// Options of a run.
#[derive(Debug, Clone, Default)]
pub struct ScheduleOptions {
    /// Mode.
    pub mode: Mode,
    /// Seed of the order of trials.
    pub seed: u64,
    /// The hosts are a lab's: its links and packet steering can be changed.
    pub in_lab: bool,
    /// Only these experiments; all when empty.
    pub only: Vec<String>,
    /// Time for the whole run: repetitions that do not fit are left out.
    pub budget: Option<TimeSpan>,
    /// Each cell is measured with both treatments, one right after the other.
    pub treated: bool,
}

/// All trials of a run, in order.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// In the order of the study.
    pub experiments: Vec<ScheduledExperiment>,
    /// In the order they are run; `trial` is the place in this list.
    pub trials: Vec<ScheduledTrial>,
    /// Repetitions left out and the like.
    pub notices: Vec<Notice>,
    /// Time for the whole run, when limited.
    pub budget: Option<TimeSpan>,
}

/// An experiment as it will be run.
#[derive(Debug, Clone)]
pub struct ScheduledExperiment {
    /// Name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Configuration of one trial.
    pub workload: Arc<dyn AnyWorkload>,
    /// Combinations of levels.
    pub cells: Vec<Cell>,
    /// Passes over all cells.
    pub repetitions: u32,
    /// Stop repeating a cell when the interval of its median is narrower than this share.
    pub precision_ratio: Option<f64>,
    /// Time for this experiment, when limited.
    pub budget: Option<TimeSpan>,
}

/// One cell measured once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledTrial {
    /// Number in the schedule.
    pub trial: u32,
    /// Place in [`Schedule::experiments`].
    pub experiment: usize,
    /// Place in [`ScheduledExperiment::cells`].
    pub cell: usize,
    /// Repetition, from 0.
    pub repetition: u32,
}

impl ScheduledExperiment {
    /// Time of one pass over all cells.
    pub fn pass_time(&self) -> TimeSpan {
        let overhead = self.workload.overhead().0;
        total(self.cells.iter().map(|cell| cell.time.0.saturating_add(overhead)))
    }

    /// Trials of all passes.
    fn trial_count(&self) -> u64 {
        self.cells.len() as u64 * u64::from(self.repetitions)
    }

    /// Time of all passes.
    pub fn time(&self) -> TimeSpan {
        TimeSpan(self.pass_time().0.saturating_mul(u64::from(self.repetitions)))
    }
}

/// Sum of times in nanoseconds; a file may name any duration.
fn total(times: impl Iterator<Item = u64>) -> TimeSpan {
    TimeSpan(times.fold(0, u64::saturating_add))
}

/// Lists the trials of a study on these hosts. The same arguments give the same
/// trials in the same order, with every version of this program.
///
/// Within an experiment each repetition is one pass over all cells in an order
/// of its own (randomised blocks): when the machine drifts, the drift falls on
/// all cells equally and shows as scatter between repetitions, not as an effect.
///
/// # Errors
/// Unknown experiments, levels that a host does not have, and factors that
/// only a lab can set.
pub fn schedule(
    study: &StudyFile,
    options: &ScheduleOptions,
    hosts: &[RunHost],
    registry: &Registry,
) -> Result<Schedule, StudyError> {
    let (in_lab, treated) = (options.in_lab, options.treated);
    let mut around = Surroundings { hosts, in_lab, treated, cells_left: MAX_CELLS };
    let mut experiments = Vec::new();
    for experiment in chosen(study, &options.only)? {
        let workload = registry.workload(&experiment.workload).ok_or_else(|| StudyError::Workload {
            experiment: experiment.name.clone(),
            workload: experiment.workload.clone(),
            known: registry.names().collect(),
        })?;
        let effective = Effective::of(&study.options, experiment, options.mode, options.in_lab);
        let known = Known { registry, workload: workload.as_ref() };
        let cells = cells::cells(experiment, &effective, known, around)?;
        around.cells_left = around.cells_left.saturating_sub(cells.len());
        // Measuring twice what does not vary adds nothing.
        let repetitions = if workload.varies() { effective.repetitions } else { 1 };
        experiments.push(ScheduledExperiment {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            workload,
            cells,
            repetitions,
            precision_ratio: effective.precision_ratio,
            budget: effective.budget,
        });
    }
    let mut notices = Vec::new();
    cut_to_own_budgets(&mut experiments, &mut notices);
    if let Some(budget) = options.budget {
        cut_to_budget(&mut experiments, budget, &mut notices);
    }
    notices.extend(proves_nothing(&experiments));
    let trial_count = experiments.iter().map(ScheduledExperiment::trial_count).sum();
    if trial_count > MAX_TRIALS {
        return Err(StudyError::TooLong { trial_count, limit: MAX_TRIALS });
    }
    let trials = order(&experiments, options.seed);
    Ok(Schedule { experiments, trials, notices, budget: options.budget })
}

fn chosen<'a>(study: &'a StudyFile, only: &[String]) -> Result<Vec<&'a Experiment>, StudyError> {
    let names = || study.experiments.iter().map(|experiment| experiment.name.as_str());
    if let Some(name) = only.iter().find(|name| !names().any(|known| known == name.as_str())) {
        return Err(StudyError::Experiment {
            study: study.name.clone(),
            name: name.clone(),
            hint: did_you_mean(name, names()),
            known: names().map(str::to_owned).collect(),
        });
    }
    let wanted = |experiment: &&Experiment| only.is_empty() || only.contains(&experiment.name);
    Ok(study.experiments.iter().filter(wanted).collect())
}

/// Leaves out the repetitions that an experiment's own budget has no time
/// for. The first pass always stays: a cell without any value is no result.
fn cut_to_own_budgets(experiments: &mut [ScheduledExperiment], notices: &mut Vec<Notice>) {
    for experiment in experiments {
        let (Some(budget), pass) = (experiment.budget, experiment.pass_time()) else { continue };
        let fitting = u32::try_from(budget.0 / pass.0.max(1)).unwrap_or(u32::MAX).max(1);
        if fitting < experiment.repetitions {
            notices.push(left_out(experiment, fitting, budget));
            experiment.repetitions = fitting;
        }
    }
}

fn cut_to_budget(experiments: &mut [ScheduledExperiment], budget: TimeSpan, notices: &mut Vec<Notice>) {
    let requested: Vec<u32> = experiments.iter().map(|experiment| experiment.repetitions).collect();
    let passes: Vec<u64> = experiments.iter().map(|experiment| experiment.pass_time().0).collect();
    let time = |(experiment, pass): (&ScheduledExperiment, &u64)| {
        pass.saturating_mul(u64::from(experiment.repetitions))
    };
    while total(experiments.iter().zip(&passes).map(time)) > budget {
        // The one that is repeated most loses least.
        let most = experiments
            .iter_mut()
            .zip(&passes)
            .max_by_key(|(experiment, pass)| (experiment.repetitions, time((*experiment, *pass))));
        match most {
            Some((experiment, _)) if experiment.repetitions > 1 => experiment.repetitions -= 1,
            _ => break,
        }
    }
    for (experiment, requested) in experiments.iter_mut().zip(requested) {
        let left = experiment.repetitions;
        if left < requested {
            experiment.repetitions = requested;
            notices.push(left_out(experiment, left, budget));
            experiment.repetitions = left;
        }
    }
}

fn left_out(experiment: &ScheduledExperiment, fitting: u32, budget: TimeSpan) -> Notice {
    Notice {
        id: "budget-repetitions".to_owned(),
        message: format!(
            "{}: {fitting} of {} repetitions fit into the {budget} allowed",
            experiment.name, experiment.repetitions
        ),
    }
}

fn order(experiments: &[ScheduledExperiment], seed: u64) -> Vec<ScheduledTrial> {
    let mut trials = Vec::new();
    for (place, experiment) in experiments.iter().enumerate() {
        for repetition in 0..experiment.repetitions {
            let stream = (place as u64) << 32 | u64::from(repetition);
            let mut random = Random::split(seed, stream);
            let mut pass = together(&experiment.cells);
            random.shuffle(&mut pass);
            for mut treated in pass {
                if treated.len() > 1 {
                    random.shuffle(&mut treated);
                }
                for cell in treated {
                    let trial = u32::try_from(trials.len()).unwrap_or(u32::MAX);
                    trials.push(ScheduledTrial { trial, experiment: place, cell, repetition });
                }
            }
        }
    }
    trials
}

/// Cells that differ in their treatment only are measured one right after the
/// other: what drifts between two passes must not come between them.
fn together(cells: &[Cell]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (place, cell) in cells.iter().enumerate() {
        match (cell.environment.treatment, groups.last_mut()) {
            (Some(Treatment::After), Some(pair)) => pair.push(place),
            _ => groups.push(vec![place]),
        }
    }
    groups
}

/// A notice that names the experiments that have levels to compare and too few pairs to prove any difference.
fn proves_nothing(experiments: &[ScheduledExperiment]) -> Option<Notice> {
    let weak: Vec<String> = experiments.iter().filter_map(too_few_pairs).collect();
    (!weak.is_empty()).then(|| Notice {
        id: "proves-nothing".to_owned(),
        message: format!("no difference between levels can be proven in {}", weak.join(", in ")),
    })
}

fn too_few_pairs(experiment: &ScheduledExperiment) -> Option<String> {
    let mut levels: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
    for (name, level) in experiment.cells.iter().flat_map(|cell| &cell.factors) {
        let seen = levels.entry(name).or_default();
        if !seen.contains(&level) {
            seen.push(level);
        }
    }
    // Two levels of a factor are compared in as many pairs as there are cells with one of them.
    let fewest = levels.values().map(Vec::len).filter(|count| *count > 1).min()?;
    let per_repetition = (experiment.cells.len() / fewest).max(1);
    let pairs = per_repetition * experiment.repetitions as usize;
    if pairs >= LEAST_PAIRS || !experiment.workload.compares() {
        return None;
    }
    Some(format!(
        "{} ({}: {} at best, probability by chance {} at least; {} repetitions are needed)",
        experiment.name,
        counted(experiment.repetitions as usize, "repetition"),
        counted(pairs, "pair"),
        least_probability(pairs),
        LEAST_PAIRS.div_ceil(per_repetition),
    ))
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A schedule as a table, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ScheduleTable {
    /// One row per experiment.
    pub experiments: Vec<ExperimentRow>,
    /// All trials.
    pub trial_count: usize,
    /// Time needed, setting up included.
    pub time: TimeSpan,
    /// Every trial in order.
    pub trials: Vec<TrialRow>,
    /// Repetitions left out and the like.
    pub notices: Vec<Notice>,
}

/// One experiment of a [`ScheduleTable`].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExperimentRow {
    /// Name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Combinations of levels.
    pub cell_count: usize,
    /// Passes over all cells.
    pub repetitions: u32,
    /// Cells times passes.
    pub trial_count: usize,
    /// Longest trial, warm-up included.
    pub trial_time: TimeSpan,
    /// All of it, setting up included.
    pub time: TimeSpan,
}

/// One trial of a [`ScheduleTable`].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrialRow {
    /// Number in the schedule.
    pub trial: u32,
    /// Experiment.
    pub experiment: String,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Level of each factor.
    pub factors: BTreeMap<String, Value>,
    /// Warm-up included, without setting up.
    pub time: TimeSpan,
}

impl Schedule {
    /// The experiment of a trial.
    pub fn experiment(&self, trial: &ScheduledTrial) -> &ScheduledExperiment {
        &self.experiments[trial.experiment]
    }

    /// The cell of a trial.
    pub fn cell(&self, trial: &ScheduledTrial) -> &Cell {
        &self.experiment(trial).cells[trial.cell]
    }

    /// Time needed, setting up included.
    pub fn time(&self) -> TimeSpan {
        total(self.experiments.iter().map(|experiment| experiment.time().0))
    }

    /// Text of a dry run.
    pub fn table(&self) -> ScheduleTable {
        let row = |experiment: &ScheduledExperiment| ExperimentRow {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            cell_count: experiment.cells.len(),
            repetitions: experiment.repetitions,
            trial_count: experiment.cells.len() * experiment.repetitions as usize,
            trial_time: experiment.cells.iter().map(|cell| cell.time).max().unwrap_or_default(),
            time: experiment.time(),
        };
        let trial = |trial: &ScheduledTrial| TrialRow {
            trial: trial.trial,
            experiment: self.experiment(trial).name.clone(),
            repetition: trial.repetition,
            factors: self.cell(trial).factors.clone(),
            time: self.cell(trial).time,
        };
        ScheduleTable {
            experiments: self.experiments.iter().map(row).collect(),
            trial_count: self.trials.len(),
            time: self.time(),
            trials: self.trials.iter().map(trial).collect(),
            notices: self.notices.clone(),
        }
    }
}
