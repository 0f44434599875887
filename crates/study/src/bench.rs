//! What carries out one trial. The runner knows only this, so that its order,
//! its stopping and its records can be tried without hosts.

use std::sync::atomic::AtomicBool;

use clearstream_record::Side;
use clearstream_schema::{
    control::Failure,
    flow::{Direction, FlowConfig, FlowSummary, Interval, Notice},
    gateways::{GatewayConfig, GatewaySummary},
    host::HostReport,
    lab::{DelayLineStats, LabFile},
    probe::{ProbeConfig, ProbeSummary},
    record::Treatments,
};

use crate::{Environment, StudyError};

/// Two hosts with agents on them, and perhaps the lab they are in.
pub trait Bench {
    /// Describes a host.
    ///
    /// # Errors
    /// The agent is gone or refuses.
    fn describe(&mut self, side: Side) -> Result<HostReport, StudyError>;

    /// The scrubbed bundle of a host's files (`.tar.gz`).
    ///
    /// # Errors
    /// Why there is none; the run goes on without.
    fn capture(&mut self, side: Side) -> Result<Vec<u8>, TrialError>;

    /// The lab, when there is one.
    fn lab(&self) -> Option<&LabFile>;

    /// The commands between which each cell is measured, if that was requested.
    fn treatments(&self) -> Option<&Treatments> {
        None
    }

    /// Puts the lab into this state and runs the command of its treatment; what is absent goes back to what the lab
    /// file says. Gives what could not be had and was done without.
    ///
    /// # Errors
    /// What could not be set.
    fn set(&mut self, environment: &Environment, direction: Direction) -> Result<Vec<Notice>, TrialError>;

    /// Runs one flow test.
    ///
    /// # Errors
    /// Why it ended without a result.
    fn flow(
        &mut self,
        config: &FlowConfig,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(BenchEvent),
    ) -> Result<FlowSummary, TrialError>;

    /// Runs one probe.
    ///
    /// # Errors
    /// Why it ended without a result.
    fn probe(&mut self, config: &ProbeConfig, stop: &AtomicBool) -> Result<ProbeSummary, TrialError>;

    /// Runs one experiment with the lab's gateways.
    ///
    /// # Errors
    /// Why it ended without a result.
    fn gateways(&mut self, config: &GatewayConfig, stop: &AtomicBool) -> Result<GatewaySummary, TrialError>;

    /// Lets the lab's delay lines count anew.
    fn reset_delay_lines(&mut self);

    /// What they did since; nothing without delay lines.
    fn delay_lines(&mut self) -> Vec<DelayLineStats>;
}

/// What happens while a flow test runs.
#[derive(Debug)]
pub enum BenchEvent {
    /// An interval has passed on both sides.
    Interval(Box<Interval>),
    /// Something to know.
    Notice(Notice),
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
