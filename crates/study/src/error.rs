//! Errors of a study before, while and after it runs.

use std::path::PathBuf;

use clearstream_configfile::ConfigError;
use clearstream_record::RecordError;
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
};

/// A study could not be read, scheduled, run or resumed.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A study file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No experiment of this name.
    #[error("study {study} has no experiment \"{name}\"{hint} (it has: {})", known.join(", "))]
    Experiment {
        /// The study.
        study: String,
        /// As requested.
        name: String,
        /// Suggestion, when known.
        hint: String,
        /// Its experiments.
        known: Vec<String>,
    },
    /// A factor that only a lab can set, on real hosts.
    #[error(
        "experiment {experiment}: only a lab can set \"{factor}\"; run the study with --lab, \
         or put the factor below [experiment.lab] so that real hosts do without it"
    )]
    LabOnly {
        /// The experiment.
        experiment: String,
        /// The factor.
        factor: String,
    },
    /// A workload that only a lab can do.
    #[error("experiment {experiment}: {reason}")]
    LabWorkload {
        /// The experiment.
        experiment: String,
        /// Reason, and which lab to use.
        reason: String,
    },
    /// A record names a workload that this program does not have.
    #[error("experiment {experiment}: there is no workload `{workload}` (known: {})", known.join(", "))]
    Workload {
        /// The experiment.
        experiment: String,
        /// As it is called there.
        workload: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// No host has a role that the workload needs.
    #[error("experiment {experiment} needs a host with the role \"{role}\": name one with --to or --lab")]
    Role {
        /// The experiment.
        experiment: String,
        /// The role.
        role: String,
    },
    /// Options that do not fit together.
    #[error("experiment {experiment}: {failure}")]
    Options {
        /// The experiment.
        experiment: String,
        /// Item, and the correction.
        #[source]
        failure: Failure,
    },
    /// A level that this host cannot take.
    #[error("experiment {experiment}: factor \"{factor}\": {message}")]
    Level {
        /// The experiment.
        experiment: String,
        /// The factor.
        factor: String,
        /// Problem, and the available ones.
        message: String,
    },
    /// More cells than can be intended.
    #[error(
        "experiment {experiment} has {cell_count} cells, more than the {limit} that are left for it: leave out levels"
    )]
    TooLarge {
        /// The experiment.
        experiment: String,
        /// Cells, or those up to the first that is too many.
        cell_count: usize,
        /// The most that is run, less those of the experiments before.
        limit: usize,
    },
    /// More trials than can be intended.
    #[error("the study has {trial_count} trials, more than {limit}: leave out repetitions or levels")]
    TooLong {
        /// Trials.
        trial_count: u64,
        /// The most that is run.
        limit: u64,
    },
    /// A host could not be described.
    #[error("cannot describe {host}: {failure}")]
    Describe {
        /// The host.
        host: String,
        /// Its reply.
        #[source]
        failure: Failure,
    },
    /// An agent is gone before the first trial.
    #[error("{reason}")]
    Lost {
        /// Item and problem.
        reason: String,
    },
    /// A run cannot be resumed since something is not what it was.
    #[error("{} cannot be resumed: {}; start a new run", folder.display(), changes.join("; "))]
    Changed {
        /// The run.
        folder: PathBuf,
        /// Change.
        changes: Vec<String>,
    },
    /// A run was to be resumed with other options than those it was started with.
    #[error(
        "{} was started otherwise: {}; leave these options out to go on as it was started, or start a new run \
         with them", folder.display(), changes.join("; ")
    )]
    OtherOptions {
        /// The run.
        folder: PathBuf,
        /// Difference.
        changes: Vec<String>,
    },
    /// The run folder could not be written or read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Classified for StudyError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Config(error) => error.failure_kind(),
            Self::Experiment { .. } => FailureKind::Name,
            Self::LabOnly { .. }
            | Self::LabWorkload { .. }
            | Self::Role { .. }
            | Self::Workload { .. }
            | Self::Level { .. }
            | Self::TooLarge { .. }
            | Self::TooLong { .. }
            | Self::Changed { .. }
            | Self::OtherOptions { .. } => FailureKind::Invalid,
            Self::Describe { failure, .. } | Self::Options { failure, .. } => failure.kind,
            Self::Lost { .. } => FailureKind::Connection,
            Self::Record(error) => error.failure_kind(),
        }
    }
}
