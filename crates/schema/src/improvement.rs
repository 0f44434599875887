//! Document of a closed loop of changes and measurements on a path: steps tried,
//! changes kept, and the measurements that decided.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{diagnosis::End, flow::FlowConfig, notice::Notice, plan::Step};

/// Name of the format.
pub const IMPROVEMENT_SCHEMA: &str = "clearstream.improvement";

/// All steps, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Improvement {
    /// `clearstream.improvement`.
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name of the client's host.
    pub client: String,
    /// Name of the server's host.
    pub server: String,
    /// Decision rule for changes.
    pub rule: DecisionRule,
    /// The requested flow.
    pub requested: FlowConfig,
    /// The flow with the options that were kept.
    pub kept: FlowConfig,
    /// Steps, the rejected ones included.
    pub steps: Vec<TriedStep>,
    /// The requested flow on the hosts as they were: first runs of all.
    pub before: Runs,
    /// The flow and the hosts as they are now: last runs.
    pub after: Runs,
    /// Changes now effective on hosts, and how to restore the previous settings.
    pub journals: Vec<KeptJournal>,
    /// Reason for ending.
    pub end: LoopEnd,
    /// The limit of the path now, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Goodput of the requested or kept flow in the last diagnosis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_bps: Option<f64>,
    /// Suggested next step where the last diagnosis did not find the limit, or found contention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// Rule that decides whether a change is kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionRule {
    /// Pairs of runs (baseline, treatment) before the first interim analysis.
    pub pair_count: u32,
    /// A gain below it does not matter, 0.02 for 2 %.
    pub threshold_ratio: f64,
    /// Probability at which a difference counts as proven.
    pub level_ratio: f64,
    /// Maximum number of interim analyses: while the runs show a gain without
    /// proving it, as many further pairs are measured.
    #[serde(default = "once")]
    pub look_count: u32,
    /// Of the order within pairs.
    pub seed: u64,
}

fn once() -> u32 {
    1
}

/// One change, measured against being without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriedStep {
    /// The presumed limit of the path, in one sentence.
    pub limit: String,
    /// The change.
    pub candidate: Candidate,
    /// Runs without it.
    pub before: Runs,
    /// Runs with it.
    pub after: Runs,
    /// Typical ratio of goodput, pair by pair (Hodges-Lehmann); absent without runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_ratio: Option<f64>,
    /// Probability of such a difference if the change did nothing (two-sided
    /// signed-rank test of the pairs); absent without runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability_ratio: Option<f64>,
    /// Verdict.
    pub verdict: Verdict,
}

/// A change that may help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Stable name: the same change has the same name.
    pub id: String,
    /// For people, what is done.
    pub title: String,
    /// Expected effect.
    pub reason: String,
    /// Settings changed, all of them together.
    pub changes: Vec<Change>,
}

/// Part of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// An option of the flow, by its key in a study; null takes it away.
    Option {
        /// `sender-cores`.
        key: String,
        /// As a study file would have it.
        value: serde_json::Value,
    },
    /// A setting of a host.
    Setting {
        /// Host.
        end: End,
        /// Setting and reason.
        step: Step,
    },
}

/// Measurements of several runs, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Runs {
    /// Goodput of each run.
    pub goodput_bps: Vec<f64>,
    /// CPU seconds of both ends' flow threads per 10^9 bytes, each run.
    pub cpu_seconds_per_gb: Vec<f64>,
    /// Segments retransmitted per 10^9 bytes, each run.
    pub retransmits_per_gb: Vec<f64>,
    /// Median smoothed round-trip time of each run; absent where it was not measured.
    pub rtt_ns: Vec<Option<u64>>,
}

/// Verdict on a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Proven better; it stays.
    Kept,
    /// No difference that is both proven and large enough to matter; reverted.
    NotProven,
    /// Proven worse; reverted.
    Worse,
    /// More goodput, but another metric got worse; reverted.
    SideEffect {
        /// The metric, with figures.
        what: String,
    },
    /// It could not be applied or measured; nothing was changed.
    Failed {
        /// Cause.
        reason: String,
    },
}

impl Verdict {
    /// Label for people.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::NotProven => "no proven gain",
            Self::Worse => "worse",
            Self::SideEffect { .. } => "cost too high",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Changes of a host that are effective, by the journal that restores them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptJournal {
    /// Host.
    pub end: End,
    /// Its name.
    pub host: String,
    /// Name for `clearstream plan revert` on that host.
    pub journal: String,
}

/// Reason for ending the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoopEnd {
    /// Nothing is left to try.
    NothingLeft,
    /// Nothing is left to try, and the last diagnosis did not find the limit.
    LimitUnknown,
    /// Nothing is left to try, and in the last diagnoses other processes held the cores of the flow: no
    /// conclusion about the path.
    Contended,
    /// The time that was given is over.
    TimeOver,
    /// Stopped; the change in test was rolled back.
    Stopped,
}
