//! What a run of a workload is given, and what it says while it runs.

use std::sync::atomic::AtomicBool;

use clearstream_control::PeerError;
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::Notice,
    outcome::Metric,
};
use serde::Serialize;

use crate::HostSet;

/// Surroundings of one run.
pub struct Context<'run, 'hosts> {
    /// The hosts.
    pub hosts: &'run mut HostSet<'hosts>,
    /// Raised when the run has to end early: what was measured until then counts,
    /// and the outcome is not complete.
    pub stop: &'run AtomicBool,
    /// Where events go.
    pub on_event: &'run mut dyn FnMut(Event),
}

/// What happens while a workload runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An interval, or another part of the measurement, is done.
    Sample(Sample),
    /// Something to know.
    Notice(Notice),
}

/// Part of a measurement, kept in the record's samples file.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// One JSON document without a newline.
    pub json: String,
    /// The headline metric in this part; none during a warm-up.
    pub headline: Option<Metric>,
}

impl Sample {
    /// Of the workload's own document.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn new(document: &impl Serialize, headline: Option<Metric>) -> Result<Self, serde_json::Error> {
        Ok(Self { json: serde_json::to_string(document)?, headline })
    }
}

/// A trial without a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{failure}")]
pub struct TrialError {
    /// For the record.
    pub failure: Failure,
    /// An agent is gone: no further trial can be run.
    pub lost: bool,
}

impl TrialError {
    /// An agent is gone.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { failure: Failure { kind: FailureKind::Connection, message: message.into() }, lost: true }
    }

    /// A fault of this program.
    pub fn internal(message: impl Into<String>) -> Self {
        Failure { kind: FailureKind::Internal, message: message.into() }.into()
    }
}

impl From<Failure> for TrialError {
    fn from(failure: Failure) -> Self {
        Self { failure, lost: false }
    }
}

impl From<PeerError> for TrialError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Refused { failure, name } => {
                Failure { kind: failure.kind, message: format!("{name}: {}", failure.message) }.into()
            }
            // Both are there: the next trial may need none of that.
            error @ PeerError::Skew { .. } => Self::internal(error.to_string()),
            error => Self::lost(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for TrialError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("a document cannot be written as JSON: {error}"))
    }
}
