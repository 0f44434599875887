//! Studies: from a file to trials, from trials to a record.
//!
//! ```text
//! file -> schedule -> Runner (agents, lab) -> record folder -> compare
//! ```
//! [`file`] reads and validates a study; [`schedule`] makes the
//! list of trials for two hosts; [`Runner`] carries them out and records them,
//! each as it ends, so that a run can be stopped and resumed at any time, on a
//! [`Testbed`] and with workloads that it knows by their contract only;
//! [`compare_levels`] and [`compare_runs`] find differences, in pairs. Nothing here draws or prints.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cells;
mod check;
mod compare;
mod cores;
mod error;
mod event;
mod factor;
pub mod file;
mod headline;
mod host_testbed;
mod metrics;
mod progress;
mod relation;
mod resume;
mod runner;
mod schedule;
mod testbed;
mod treatment;
mod variant;

pub use cells::Cell;
pub use clearstream_stats::PRACTICAL_RATIO;
pub use compare::{
    CellComparison, CheckedCell, CompareError, Compared, Comparison, DependsOn, EffectComparison,
    LevelEffect, Pairing, ReferenceCheck, Trend, TrendCell, TrendChange, TrendPoint, TrendRun, Verdict,
    check_against, compare_levels, compare_runs, trend,
};
pub use cores::interrupt_core;
pub use error::StudyError;
pub use event::{EndReason, RunEnd, RunRequest, StudyEvent, run_id};
pub use factor::{Environment, Steering, Treatment};
pub use host_testbed::HostTestbed;
pub use progress::SkipReason;
pub use resume::ResumeOptions;
pub use runner::{Runner, schedule_on};
pub use schedule::{
    ExperimentRow, Schedule, ScheduleOptions, ScheduleTable, ScheduledExperiment, ScheduledTrial, TrialRow,
    schedule,
};
pub use testbed::Testbed;
pub use variant::Mode;
