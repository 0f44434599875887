//! How far a run is, how long it still takes, and what its cells say so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clearstream_schema::{
    TimeSpan,
    record::{TrialDocument, TrialOutcome},
    study::Workload,
};
use clearstream_stats::{IntervalEstimate, median_interval};

use crate::plan::{Plan, PlannedTrial, usual_overhead};

/// With fewer values the interval of a median is the whole range of two; a
/// cell is not called precise on the strength of that.
pub(crate) const MINIMUM_REPETITIONS: usize = 3;
/// Estimates of setting up are wrong by a little; a budget is not missed by that.
const TOLERANCE: f64 = 1.1;

/// Why a planned trial is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// The interval of the cell's median is narrow enough.
    Precise,
    /// The time allowed for the experiment or for the run is used up.
    Budget,
}

/// What the runner knows while it runs.
#[derive(Debug)]
pub(crate) struct Progress {
    seed: u64,
    /// Goodputs of each cell: (experiment, cell).
    values: BTreeMap<(usize, usize), Vec<f64>>,
    settled: BTreeSet<u32>,
    /// Measured time around trials, by workload.
    overhead: [(Workload, Duration); 3],
    spent: BTreeMap<usize, Duration>,
    /// First trial of a pass that has no time left: (experiment, repetition).
    closed: BTreeMap<usize, u32>,
}

impl Progress {
    pub(crate) fn new(seed: u64) -> Self {
        let usual = |workload| (workload, usual_overhead(workload).to_std());
        Self {
            seed,
            values: BTreeMap::new(),
            settled: BTreeSet::new(),
            overhead: [Workload::Flow, Workload::Probe, Workload::Inspect].map(usual),
            spent: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    /// Takes in a trial of an earlier session.
    pub(crate) fn restore(&mut self, plan: &Plan, document: &TrialDocument) {
        if let Some(trial) = plan.trials.get(document.trial as usize) {
            let time = self.nominal(plan, trial);
            self.ended(plan, trial, document, time, false);
        }
    }

    /// Takes in a trial that ended after `elapsed`.
    pub(crate) fn ended(
        &mut self,
        plan: &Plan,
        trial: &PlannedTrial,
        document: &TrialDocument,
        elapsed: Duration,
        learn: bool,
    ) {
        self.settled.insert(trial.trial);
        *self.spent.entry(trial.experiment).or_default() += elapsed;
        let complete = match &document.outcome {
            TrialOutcome::Flow(summary) if summary.complete => {
                self.values.entry((trial.experiment, trial.cell)).or_default().push(summary.goodput_bps);
                true
            }
            TrialOutcome::Probe(_) | TrialOutcome::Inspect => true,
            TrialOutcome::Flow(_) | TrialOutcome::Failed(_) => false,
        };
        let workload = plan.experiment(trial).workload;
        let known = self.overhead.iter_mut().find(|(of, _)| *of == workload);
        if let (true, true, Some((_, known))) = (learn, complete, known) {
            // Half old, half new: settles within a few trials, forgives a slow one.
            *known = (*known + elapsed.saturating_sub(plan.cell(trial).time.to_std())) / 2;
        }
    }

    /// Takes in a trial that will not be run.
    pub(crate) fn skipped(&mut self, trial: &PlannedTrial) {
        self.settled.insert(trial.trial);
    }

    pub(crate) fn is_settled(&self, trial: &PlannedTrial) -> bool {
        self.settled.contains(&trial.trial)
    }

    pub(crate) fn settled_count(&self) -> usize {
        self.settled.len()
    }

    /// Median and interval of a cell so far.
    pub(crate) fn estimate(&self, trial: &PlannedTrial) -> Option<IntervalEstimate> {
        median_interval(self.values.get(&(trial.experiment, trial.cell))?, self.seed)
    }

    /// Whether a trial can be left out.
    pub(crate) fn skip(&mut self, plan: &Plan, trial: &PlannedTrial) -> Option<SkipReason> {
        if trial.repetition == 0 {
            return None;
        }
        let values = self.values.get(&(trial.experiment, trial.cell)).map_or(0, Vec::len);
        if let (Some(ratio), true) = (plan.experiment(trial).precision_ratio, values >= MINIMUM_REPETITIONS)
            && self.estimate(trial).is_some_and(|estimate| estimate.width_ratio() <= ratio)
        {
            return Some(SkipReason::Precise);
        }
        self.out_of_time(plan, trial).then_some(SkipReason::Budget)
    }

    /// Decided once for each pass, at its first trial, so that all cells keep
    /// the same number of values.
    fn out_of_time(&mut self, plan: &Plan, trial: &PlannedTrial) -> bool {
        if let Some(closed) = self.closed.get(&trial.experiment) {
            return trial.repetition >= *closed;
        }
        let pass = |other: &&PlannedTrial| {
            other.experiment == trial.experiment && other.repetition == trial.repetition
        };
        if plan.trials.iter().filter(pass).any(|other| other.trial < trial.trial) {
            return false;
        }
        let pass: Duration = plan.trials.iter().filter(pass).map(|other| self.nominal(plan, other)).sum();
        let own = |budget: TimeSpan| {
            let spent = self.spent.get(&trial.experiment).copied().unwrap_or_default();
            spent + pass > budget.to_std().mul_f64(TOLERANCE)
        };
        let whole = |budget: TimeSpan| {
            let spent: Duration = self.spent.values().sum();
            let first_passes = plan.trials.iter().filter(|other| {
                other.experiment > trial.experiment && other.repetition == 0 && !self.is_settled(other)
            });
            let needed: Duration = first_passes.map(|other| self.nominal(plan, other)).sum();
            spent + pass + needed > budget.to_std().mul_f64(TOLERANCE)
        };
        let out = plan.experiment(trial).budget.is_some_and(own) || plan.budget.is_some_and(whole);
        if out {
            self.closed.insert(trial.experiment, trial.repetition);
        }
        out
    }

    /// Time that a trial is expected to take, setting up included.
    fn nominal(&self, plan: &Plan, trial: &PlannedTrial) -> Duration {
        let workload = plan.experiment(trial).workload;
        let overhead =
            self.overhead.iter().find(|(of, _)| *of == workload).map_or(Duration::ZERO, |(_, time)| *time);
        plan.cell(trial).time.to_std() + overhead
    }

    /// Time until the end, as far as that can be told.
    pub(crate) fn left(&self, plan: &Plan) -> TimeSpan {
        let left = |trial: &&PlannedTrial| {
            let closed = self.closed.get(&trial.experiment).is_some_and(|closed| trial.repetition >= *closed);
            !self.is_settled(trial) && !closed
        };
        let time: Duration = plan.trials.iter().filter(left).map(|trial| self.nominal(plan, trial)).sum();
        TimeSpan(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}
