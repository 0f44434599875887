//! Inputs of a run of a workload, and its events.

use std::sync::atomic::AtomicBool;

use clearstream_control::PeerError;
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
    notice::Notice,
    outcome::{Metric, Outcome},
};
use serde::Serialize;

use crate::HostSet;

/// Context of one run.
pub struct Context<'run, 'hosts> {
    /// The hosts.
    pub hosts: &'run mut HostSet<'hosts>,
    /// Set when the run has to end early: results so far count, and the outcome is marked incomplete.
    pub stop: &'run AtomicBool,
    /// Event callback.
    pub on_event: &'run mut dyn FnMut(Event),
}

/// Event of a running workload.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An interval, or another part of the measurement, is complete.
    Sample(Sample),
    /// A notice.
    Notice(Notice),
}

/// Part of a measurement, stored in the record's samples file.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// One JSON document without a newline.
    pub json: String,
    /// The headline metric in this part; none during a warm-up.
    pub headline: Option<Metric>,
    /// When this part ended, since the begin of the measurement; absent where it is no part of a
    /// time. Parts of equal length have the same ends in every repetition, so that a series over
    /// them can be compared.
    pub end_ns: Option<u64>,
    /// Which part it is, for the progress line of a command: `64 bytes`.
    pub part: Option<String>,
}

impl Sample {
    /// A sample with the workload's own document.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn new(document: &impl Serialize, headline: Option<Metric>) -> Result<Self, serde_json::Error> {
        Ok(Self { json: clearstream_schema::json::to_string(document)?, headline, end_ns: None, part: None })
    }

    /// With the end of its interval.
    #[must_use]
    pub fn ending_at(mut self, end_ns: u64) -> Self {
        self.end_ns = Some(end_ns);
        self
    }

    /// With the name of its part.
    #[must_use]
    pub fn named(mut self, part: String) -> Self {
        self.part = Some(part);
        self
    }
}

/// Samples of a run whose measurement calls back with each result, and which goes on after one that cannot be written.
pub struct Samples<'a> {
    on_event: &'a mut dyn FnMut(Event),
    first_error: Option<serde_json::Error>,
}

impl<'a> Samples<'a> {
    /// Passes samples on as events of a run.
    pub fn of(on_event: &'a mut dyn FnMut(Event)) -> Self {
        Self { on_event, first_error: None }
    }

    /// Passes on a sample, or keeps the first error.
    pub fn add(&mut self, sample: Result<Sample, serde_json::Error>) {
        match sample {
            Ok(sample) => (self.on_event)(Event::Sample(sample)),
            Err(error) => drop(self.first_error.get_or_insert(error)),
        }
    }

    /// Passes on a notice.
    pub fn notice(&mut self, notice: Notice) {
        (self.on_event)(Event::Notice(notice));
    }

    /// The result of the run, unless a sample could not be written.
    ///
    /// # Errors
    /// That of the first such sample.
    pub fn end<T>(self, result: T) -> Result<T, TrialError> {
        self.first_error.map_or(Ok(result), |error| Err(error.into()))
    }
}

/// A trial without a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{failure}")]
pub struct TrialError {
    /// Failure stored in the record.
    pub failure: Failure,
    /// An agent was lost: no further trial can be run.
    pub lost: bool,
    /// The run was stopped on request before it had a result.
    pub stopped: bool,
    /// What was measured until an agent was lost.
    pub partial: Option<Box<Outcome>>,
}

impl Classified for TrialError {
    fn failure_kind(&self) -> FailureKind {
        if self.stopped { FailureKind::Interrupted } else { self.failure.kind }
    }
}

impl TrialError {
    /// Error of a lost agent.
    pub fn lost(message: impl Into<String>) -> Self {
        let failure = Failure { kind: FailureKind::Connection, message: message.into() };
        Self { lost: true, ..failure.into() }
    }

    /// Error of a run that was stopped on request.
    pub fn stopped(message: impl Into<String>) -> Self {
        let failure = Failure { kind: FailureKind::Connection, message: message.into() };
        Self { stopped: true, ..failure.into() }
    }

    /// With what was measured until then.
    #[must_use]
    pub fn after(self, partial: Outcome) -> Self {
        Self { partial: Some(Box::new(partial)), ..self }
    }

    /// Internal error of this program.
    pub fn internal(message: impl Into<String>) -> Self {
        Failure { kind: FailureKind::Internal, message: message.into() }.into()
    }
}

impl From<Failure> for TrialError {
    fn from(failure: Failure) -> Self {
        Self { failure, lost: false, stopped: false, partial: None }
    }
}

impl From<PeerError> for TrialError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Refused { failure, name } => {
                Failure { kind: failure.kind, message: format!("{name}: {}", failure.message) }.into()
            }
            // Both agents are reachable: the next trial may not be affected.
            error @ PeerError::Skew { .. } => {
                Failure { kind: FailureKind::Connection, message: error.to_string() }.into()
            }
            // Both agents live.
            error @ PeerError::Stopped { .. } => Self::stopped(error.to_string()),
            error => Self::lost(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for TrialError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("a document cannot be written as JSON: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_wait_is_no_lost_agent() {
        let (name, reason) = ("dtn2".to_owned(), "interrupted".to_owned());
        let error = TrialError::from(PeerError::Stopped { name, reason });
        assert!(error.stopped && !error.lost, "{error:?}");
    }
}
