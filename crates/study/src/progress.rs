//! Progress of a run: state, remaining time, and the results of its cells so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clearstream_schema::{TimeSpan, outcome::Outcome, record::TrialDocument};
use clearstream_stats::{IntervalEstimate, median_interval};

use crate::schedule::{Schedule, ScheduledTrial};

/// Estimates of setting up are wrong by a little; a budget is not missed by that.
const TOLERANCE: f64 = 1.1;

/// Reason for not running a scheduled trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// The interval of the cell's median is narrow enough.
    Precise,
    /// The time allowed for the experiment or for the run is used up.
    Budget,
}

/// State of the runner while it runs.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Headline values of each cell: (experiment, cell).
    values: BTreeMap<(usize, usize), Vec<f64>>,
    /// Cells that need not be repeated.
    precise: BTreeSet<(usize, usize)>,
    settled: BTreeSet<u32>,
    /// Measured time around trials, by workload.
    overhead: BTreeMap<&'static str, Duration>,
    spent: BTreeMap<usize, Duration>,
    /// First trial of a pass that has no time left: (experiment, repetition).
    closed: BTreeMap<usize, u32>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            values: BTreeMap::new(),
            precise: BTreeSet::new(),
            settled: BTreeSet::new(),
            overhead: BTreeMap::new(),
            spent: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    /// Adds a trial of an earlier session.
    pub(crate) fn restore(&mut self, schedule: &Schedule, document: &TrialDocument) {
        if let Some(trial) = schedule.trials.get(document.trial as usize) {
            let time = self.nominal(schedule, trial);
            self.ended(schedule, trial, document, time, false);
        }
    }

    /// Adds a trial that ended after `elapsed`.
    pub(crate) fn ended(
        &mut self,
        schedule: &Schedule,
        trial: &ScheduledTrial,
        document: &TrialDocument,
        elapsed: Duration,
        learn: bool,
    ) {
        self.settled.insert(trial.trial);
        *self.spent.entry(trial.experiment).or_default() += elapsed;
        let complete = document.outcome.is_complete();
        let headline = document.outcome.measured().and_then(Outcome::headline);
        if let (true, Some(headline)) = (complete, headline) {
            self.values.entry((trial.experiment, trial.cell)).or_default().push(headline.value);
            self.judge(schedule, trial);
        }
        if learn && complete {
            // Half old, half new: settles within a few trials, forgives a slow one.
            let workload = &schedule.experiment(trial).workload;
            let known = self.overhead.entry(workload.name()).or_insert_with(|| workload.overhead().to_std());
            *known = (*known + elapsed.saturating_sub(schedule.cell(trial).time.to_std())) / 2;
        }
    }

    fn judge(&mut self, schedule: &Schedule, trial: &ScheduledTrial) {
        let cell = (trial.experiment, trial.cell);
        if let Some(ratio) = schedule.experiment(trial).precision_ratio {
            match self.estimate(trial) {
                // A narrow range of few values is luck: it need not hold the median.
                Some(estimate) if estimate.is_95() && estimate.width_ratio() <= ratio => {
                    self.precise.insert(cell)
                }
                _ => self.precise.remove(&cell),
            };
        }
    }

    fn is_precise(&self, trial: &ScheduledTrial) -> bool {
        self.precise.contains(&(trial.experiment, trial.cell))
    }

    /// Adds a trial that will not be run.
    pub(crate) fn skipped(&mut self, trial: &ScheduledTrial) {
        self.settled.insert(trial.trial);
    }

    pub(crate) fn is_settled(&self, trial: &ScheduledTrial) -> bool {
        self.settled.contains(&trial.trial)
    }

    pub(crate) fn settled_count(&self) -> usize {
        self.settled.len()
    }

    /// Median and interval of a cell so far.
    pub(crate) fn estimate(&self, trial: &ScheduledTrial) -> Option<IntervalEstimate> {
        median_interval(self.values.get(&(trial.experiment, trial.cell))?)
    }

    /// Whether a trial can be left out.
    pub(crate) fn skip(&mut self, schedule: &Schedule, trial: &ScheduledTrial) -> Option<SkipReason> {
        if trial.repetition == 0 {
            return None;
        }
        // The budget first: it is decided at the first trial of a pass, whatever that one is.
        if self.out_of_time(schedule, trial) {
            return Some(SkipReason::Budget);
        }
        self.is_precise(trial).then_some(SkipReason::Precise)
    }

    /// Decided once for each pass, at its first trial, so that all cells keep
    /// the same number of values.
    fn out_of_time(&mut self, schedule: &Schedule, trial: &ScheduledTrial) -> bool {
        if let Some(closed) = self.closed.get(&trial.experiment) {
            return trial.repetition >= *closed;
        }
        let pass = |other: &&ScheduledTrial| {
            other.experiment == trial.experiment && other.repetition == trial.repetition
        };
        if schedule.trials.iter().filter(pass).any(|other| other.trial < trial.trial) {
            return false;
        }
        let pass: Duration = schedule
            .trials
            .iter()
            .filter(pass)
            .filter(|other| !self.is_precise(other))
            .map(|other| self.nominal(schedule, other))
            .sum();
        let own = |budget: TimeSpan| {
            let spent = self.spent.get(&trial.experiment).copied().unwrap_or_default();
            spent + pass > budget.to_std().mul_f64(TOLERANCE)
        };
        let whole = |budget: TimeSpan| {
            let spent: Duration = self.spent.values().sum();
            let first_passes = schedule.trials.iter().filter(|other| {
                other.experiment > trial.experiment && other.repetition == 0 && !self.is_settled(other)
            });
            let needed: Duration = first_passes.map(|other| self.nominal(schedule, other)).sum();
            spent + pass + needed > budget.to_std().mul_f64(TOLERANCE)
        };
        let out = schedule.experiment(trial).budget.is_some_and(own) || schedule.budget.is_some_and(whole);
        if out {
            self.closed.insert(trial.experiment, trial.repetition);
        }
        out
    }

    /// Time that a trial is expected to take, setting up included.
    fn nominal(&self, schedule: &Schedule, trial: &ScheduledTrial) -> Duration {
        let workload = &schedule.experiment(trial).workload;
        let measured = self.overhead.get(workload.name()).copied();
        schedule.cell(trial).time.to_std() + measured.unwrap_or_else(|| workload.overhead().to_std())
    }

    /// Estimated time until the end.
    pub(crate) fn left(&self, schedule: &Schedule) -> TimeSpan {
        let left = |trial: &&ScheduledTrial| {
            let closed = self.closed.get(&trial.experiment).is_some_and(|closed| trial.repetition >= *closed);
            !self.is_settled(trial) && !closed && !self.is_precise(trial)
        };
        let time: Duration =
            schedule.trials.iter().filter(left).map(|trial| self.nominal(schedule, trial)).sum();
        TimeSpan(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use clearstream_flow::Flow;
    use clearstream_schema::{
        control::FailureKind,
        host::HostReport,
        record::{RunHost, TrialOutcome},
    };
    use clearstream_workload::Registry;
    use serde_json::json;

    use super::*;
    use crate::{ScheduleOptions, file, schedule};

    /// Two cells of 10 s (and 0.7 s around each), four times.
    fn two_cells(extra: &str, budget: Option<TimeSpan>) -> Schedule {
        repeated(4, extra, budget)
    }

    fn repeated(repetitions: u32, extra: &str, budget: Option<TimeSpan>) -> Schedule {
        let text = format!(
            "schema = \"clearstream.study\"\nversion = 1\nname = \"m\"\ntitle = \"M\"\n[[experiment]]\n\
             name = \"w\"\ntitle = \"W\"\nworkload = \"flow\"\nfigure = \"throughput\"\nrepetitions = {repetitions}\n{extra}\
             [experiment.flow]\nduration = \"9s\"\n[experiment.factors]\nflows = [1, 2]\n"
        );
        let registry = Registry::default().with(Flow);
        let study = file::parse(&text, "m.toml", &registry).unwrap();
        let options = ScheduleOptions { budget, ..ScheduleOptions::default() };
        let host = |role: &str| RunHost {
            name: role.to_owned(),
            role: role.to_owned(),
            report: HostReport::default(),
            capture: None,
        };
        let mut schedule = schedule(&study, &options, &[host("client"), host("server")], &registry).unwrap();
        schedule.budget = budget;
        schedule
    }

    fn document(trial: &ScheduledTrial, goodput_bps: f64) -> TrialDocument {
        let goodput = json!({"name": "goodput", "unit": "b/s", "better": "higher", "value": goodput_bps});
        let outcome = json!({"measured": {"complete": true, "metrics": [goodput]}});
        clearstream_schema::json::from_value(json!({
            "schema": "clearstream.trial", "version": 2, "trial": trial.trial, "experiment": "w", "workload": "flow", "cell": trial.cell,
            "repetition": trial.repetition, "factors": {}, "started": "", "outcome": outcome,
        }))
        .unwrap()
    }

    fn run(
        schedule: &Schedule,
        elapsed: u64,
        goodput: impl Fn(&ScheduledTrial) -> f64,
    ) -> (Progress, Vec<Option<SkipReason>>) {
        let mut progress = Progress::new();
        let mut reasons = Vec::new();
        for trial in &schedule.trials {
            let reason = progress.skip(schedule, trial);
            match reason {
                Some(_) => progress.skipped(trial),
                None => {
                    let document = document(trial, goodput(trial));
                    progress.ended(schedule, trial, &document, Duration::from_secs(elapsed), true);
                }
            }
            reasons.push(reason);
        }
        (progress, reasons)
    }

    #[test]
    fn a_slow_machine_runs_fewer_passes_but_whole_ones() {
        // Scheduled are 21.4 s a pass; it takes 60 s.
        let schedule = two_cells("", Some(TimeSpan::from_seconds(150)));
        let (progress, reasons) = run(&schedule, 30, |_| 1.0);
        let ran = reasons.iter().filter(|reason| reason.is_none()).count();
        assert_eq!(ran % 2, 0, "{reasons:?}");
        assert_eq!(ran, 4, "two passes of 60 s fit into 150 s, three do not: {reasons:?}");
        assert!(reasons[4..].iter().all(|reason| *reason == Some(SkipReason::Budget)), "{reasons:?}");
        assert_eq!(progress.left(&schedule), TimeSpan(0));
    }

    #[test]
    fn the_first_pass_runs_whatever_the_budget() {
        let schedule = two_cells("", Some(TimeSpan::from_seconds(1)));
        let (_, reasons) = run(&schedule, 30, |_| 1.0);
        assert!(reasons[..2].iter().all(Option::is_none), "{reasons:?}");
        assert!(reasons[2..].iter().all(|reason| *reason == Some(SkipReason::Budget)), "{reasons:?}");
    }

    #[test]
    fn the_time_left_learns_what_setting_up_takes_and_forgets_precise_cells() {
        let schedule = repeated(7, "precision-ratio = 0.1\n", None);
        let mut progress = Progress::new();
        let before = progress.left(&schedule).seconds();
        assert!((before - 14.0 * 10.7).abs() < 1e-6, "{before}");
        for trial in &schedule.trials[..12] {
            let wild = if trial.cell == 0 { f64::from(trial.repetition) } else { 1.0 };
            progress.ended(&schedule, trial, &document(trial, 1.0 + wild), Duration::from_secs(12), true);
        }
        // One cell is precise; of the other, a trial is left, of 10 s and nearly 2 s around it.
        let left = progress.left(&schedule).seconds();
        assert!((11.9..12.0).contains(&left), "{left}");
        let last = |cell| schedule.trials[12..].iter().find(|trial| trial.cell == cell).unwrap();
        assert_eq!(progress.skip(&schedule, last(1)), Some(SkipReason::Precise));
        assert_eq!(progress.skip(&schedule, last(0)), None);
    }

    #[test]
    fn failed_trials_teach_nothing_about_time() {
        let schedule = two_cells("", None);
        let mut progress = Progress::new();
        let mut failed = document(&schedule.trials[0], 1.0);
        failed.outcome = TrialOutcome::Failed(clearstream_schema::control::Failure {
            kind: FailureKind::Busy,
            message: String::new(),
        });
        progress.ended(&schedule, &schedule.trials[0], &failed, Duration::from_millis(3), true);
        assert!((progress.left(&schedule).seconds() - 7.0 * 10.7).abs() < 1e-6);
        assert!(progress.estimate(&schedule.trials[0]).is_none());
    }
}
