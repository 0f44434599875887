//! Factors that are not options of a workload but states of the lab it runs in.

use std::fmt;

use clearstream_lab::RunningLab;
use serde_json::Value;

use crate::TrialError;

/// A state of a lab that is held until the guard is dropped.
pub trait Guard: fmt::Debug {}

/// A factor of a lab: `routes-over`.
pub trait EnvironmentFactor: Send + Sync + 'static {
    /// Name in study files.
    fn name(&self) -> &'static str;

    /// Validates a level.
    ///
    /// # Errors
    /// The suggested correction.
    fn check(&self, level: &Value) -> Result<(), String>;

    /// Applies the state of a level to the lab.
    ///
    /// # Errors
    /// The failed change; all changes are rolled back.
    fn set<'lab>(&self, lab: &'lab RunningLab, level: &Value) -> Result<Box<dyn Guard + 'lab>, TrialError>;
}

impl fmt::Debug for dyn EnvironmentFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
