//! Start, progress events and result of a run.

use std::path::PathBuf;

use clearstream_schema::{TimeSpan, notice::Notice, record::TrialDocument, study::StudyFile};
use clearstream_stats::IntervalEstimate;
use clearstream_workload::{Registry, Sample};
use jiff::Timestamp;

use crate::{Schedule, ScheduleOptions, ScheduledTrial, SkipReason};

/// Start of a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The study.
    pub study: StudyFile,
    /// Mode, seed, selection and budget; whether there is a lab is found from the testbed.
    pub options: ScheduleOptions,
    /// The workloads that there are.
    pub registry: Registry,
    /// Version of the program, for the record.
    pub program_version: String,
}

/// Progress events of a study.
#[derive(Debug)]
pub enum StudyEvent<'a> {
    /// The schedule is complete, nothing has run yet.
    Scheduled {
        /// The schedule.
        schedule: &'a Schedule,
        /// Trials that an earlier session had done.
        done_count: usize,
        /// Time needed.
        left: TimeSpan,
    },
    /// A trial begins.
    TrialStarted {
        /// Its place in the schedule; [`Schedule::cell`] and [`Schedule::experiment`] lead to the rest.
        trial: &'a ScheduledTrial,
        /// The schedule.
        schedule: &'a Schedule,
        /// Number of trials done or left out, this one included.
        position: usize,
        /// Time until the end of the run.
        left: TimeSpan,
    },
    /// Part of the running trial is measured.
    Sample {
        /// The trial.
        trial: &'a ScheduledTrial,
        /// As the workload has it.
        sample: &'a Sample,
    },
    /// Something to know, about the running trial or about the run.
    Notice(&'a Notice),
    /// A trial is recorded.
    TrialEnded {
        /// As recorded.
        document: &'a TrialDocument,
        /// The cell's median of the headline metric with its interval (95 % or a range), from two repetitions on.
        estimate: Option<IntervalEstimate>,
        /// Time until the end of the run.
        left: TimeSpan,
    },
    /// A trial is left out.
    TrialSkipped {
        /// Trial.
        trial: &'a ScheduledTrial,
        /// Reason.
        reason: SkipReason,
    },
}

/// Reason for the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// Every trial was run or left out.
    Complete,
    /// The stop flag was raised; the run can be resumed.
    Stopped,
    /// An agent was lost; the run can be resumed.
    Lost(String),
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct RunEnd {
    /// The run folder.
    pub folder: PathBuf,
    /// Reason for its end.
    pub reason: EndReason,
    /// Trials scheduled.
    pub scheduled_count: usize,
    /// Trials with a result, those of earlier sessions included.
    pub done_count: usize,
    /// Trials that could not be run, or were cut short, in this session.
    pub failed_count: usize,
    /// Trials left out by precision or budget.
    pub skipped_count: usize,
}

/// Folder name for a run of a study that starts now: name and time in UTC.
pub fn run_id(study: &StudyFile) -> String {
    format!("{}-{}", study.name, Timestamp::now().strftime("%Y%m%d-%H%M%S"))
}
