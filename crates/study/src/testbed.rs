//! Interface that runs one trial. The runner knows only this, so that its order,
//! its stopping and its records can be tried without hosts.

use std::sync::atomic::AtomicBool;

use clearstream_schema::{
    lab::{DelayLineStats, LabFile},
    notice::Notice,
    outcome::Outcome,
    record::{RunHost, Treatments},
};
use clearstream_workload::{AnyWorkload, Event, TrialError};
use serde_json::Value;

use crate::{Environment, StudyError};

/// Hosts with agents on them, and perhaps the lab they are in.
pub trait Testbed {
    /// Describes every host.
    ///
    /// # Errors
    /// An agent is gone or refuses.
    fn describe(&mut self) -> Result<Vec<RunHost>, StudyError>;

    /// The anonymized bundle of a host's files (`.tar.gz`), by its place in [`Testbed::describe`].
    ///
    /// # Errors
    /// When it is absent; the run goes on without.
    fn capture(&mut self, host: usize) -> Result<Vec<u8>, TrialError>;

    /// The lab, when there is one.
    fn lab(&self) -> Option<&LabFile>;

    /// The commands between which each cell is measured, if that was requested.
    fn treatments(&self) -> Option<&Treatments> {
        None
    }

    /// Puts the lab into this state and runs the command of its treatment; what is absent
    /// is restored to the lab file's value. `receivers` are the roles of the hosts that receive.
    /// Returns what was not available and was done without.
    ///
    /// # Errors
    /// When settings could not be applied.
    fn set(&mut self, environment: &Environment, receivers: &[&str]) -> Result<Vec<Notice>, TrialError>;

    /// Measures once.
    ///
    /// # Errors
    /// When it ended without a result.
    fn measure(
        &mut self,
        workload: &dyn AnyWorkload,
        config: &Value,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrialError>;

    /// Sets the counters of the lab's delay lines to zero.
    fn reset_delay_lines(&mut self);

    /// Counters since then; nothing without delay lines.
    fn delay_lines(&mut self) -> Vec<DelayLineStats>;
}
