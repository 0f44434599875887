//! The record of a study run: one folder.
//!
//! ```text
//! <run>/run.json              RunDocument
//!       trials.jsonl          TrialDocument per line, appended as trials end
//!       samples/000000.jsonl  what the workload measured in each interval, one file per trial
//!       hosts/ROLE.tar.gz     capture of each host
//! ```
//! Readers must skip a torn last line: a run may have been killed.

use std::collections::BTreeMap;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    TimeSpan,
    control::Failure,
    host::HostReport,
    lab::{DelayLineStats, LabFile},
    notice::Notice,
    outcome::{Outcome, Unit},
    study::StudyFile,
};

/// Name of the run document's format.
pub const RUN_SCHEMA: &str = "clearstream.run";
/// Name of the trial document's format.
pub const TRIAL_SCHEMA: &str = "clearstream.trial";
/// Version of both.
pub const RECORD_VERSION: u32 = 2;

/// Factor of a run with [`Treatments`]: its levels are `before` and `after`.
pub const TREATMENT: &str = "treatment";

/// Two commands, run by the shell of the controlling machine, that make the two
/// states between which the trials of a study alternate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Treatments {
    /// Makes the state of the level `before`, in which the hosts are left.
    pub before: String,
    /// Makes the state of the level `after`.
    pub after: String,
}

/// A figure published by others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Description, one line.
    pub label: String,
    /// Paper and figure.
    pub source: String,
    /// Levels it belongs to, factor to level; empty when it holds for the whole experiment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, Value>,
    /// Metric that it is of.
    #[serde(default = "goodput")]
    pub metric: String,
    /// Unit as printed, such as `Gb/s` or `us`.
    #[serde(default = "gigabits")]
    pub unit: String,
    /// Low end, as printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// High end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

// Most published values are goodputs.
fn goodput() -> String {
    "goodput".to_owned()
}

fn gigabits() -> String {
    "Gb/s".to_owned()
}

impl Published {
    /// It names neither a number nor a metric: its label is printed, nothing is drawn.
    pub fn is_text(&self) -> bool {
        self.low.or(self.high).is_none() && self.metric == goodput() && self.unit == gigabits()
    }

    /// Low and high end of a metric in its stored unit; absent where this is of
    /// another metric or unit.
    pub fn range(&self, metric: &str, unit: Unit) -> (Option<f64>, Option<f64>) {
        match unit.factor_of(&self.unit).filter(|_| self.metric == metric) {
            Some(factor) => (self.low.map(|low| low * factor), self.high.map(|high| high * factor)),
            None => (None, None),
        }
    }
}

/// A host that took part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHost {
    /// Its name in figures and messages.
    pub name: String,
    /// Role: `client` connects, `server` listens; others by their workload.
    pub role: String,
    /// The document.
    pub report: HostReport,
    /// Its capture relative to the run folder, when one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
}

/// `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunDocument {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// Folder name: study, time.
    pub id: String,
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// End; absent while running or when killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Version of the program.
    pub program_version: String,
    /// `quick`, `standard` or `full`.
    pub mode: String,
    /// Seed of the order of trials.
    pub seed: u64,
    /// The study as run.
    pub study: StudyFile,
    /// Only these experiments of it; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Time allowed for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<TimeSpan>,
    /// The lab it ran in, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab: Option<LabFile>,
    /// Hosts that took part.
    pub hosts: Vec<RunHost>,
    /// Trials planned.
    pub planned_trial_count: u32,
    /// Commands between whose effects each cell was measured in pairs; the factor is [`TREATMENT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub treatments: Option<Treatments>,
    /// Lost capabilities of the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl RunDocument {
    /// The host of this role, the first of several.
    pub fn host(&self, role: &str) -> Option<&HostReport> {
        self.hosts.iter().find(|host| host.role == role).map(|host| &host.report)
    }
}

/// State of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// It was measured.
    Measured(Box<Outcome>),
    /// It could not be run; the study went on.
    Failed(Failure),
}

impl TrialOutcome {
    /// Results.
    pub fn measured(&self) -> Option<&Outcome> {
        match self {
            Self::Measured(outcome) => Some(outcome),
            Self::Failed(_) => None,
        }
    }

    /// Measured to its end: need not be repeated.
    pub fn is_complete(&self) -> bool {
        self.measured().is_some_and(|outcome| outcome.complete)
    }
}

/// One line of `trials.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialDocument {
    /// [`TRIAL_SCHEMA`].
    pub schema: String,
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// Number in planned order; names the samples file.
    pub trial: u32,
    /// Experiment name.
    pub experiment: String,
    /// Workload that was measured.
    pub workload: String,
    /// Cell within the experiment.
    pub cell: u32,
    /// Repetition within the cell, from 0.
    pub repetition: u32,
    /// Level of each factor.
    pub factors: BTreeMap<String, Value>,
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// Outcome.
    pub outcome: TrialOutcome,
    /// The series was steady after the warm-up (absent: too short to decide).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
    /// Samples file relative to the run folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<String>,
    /// Counters of the lab's delay lines in this trial, per direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_lines: Vec<DelayLineStats>,
}
