//! Factors that are not options of a workload but states of the lab it runs in.

use std::fmt;

use clearstream_lab::RunningLab;
use serde_json::Value;

use crate::TrialError;

/// A state of a lab that is held until this is dropped.
pub trait Guard: fmt::Debug {}

/// A factor that a lab has: `routes-over`.
pub trait EnvironmentFactor: Send + Sync + 'static {
    /// Name in study files.
    fn name(&self) -> &'static str;

    /// Whether a level can be meant.
    ///
    /// # Errors
    /// What to write instead.
    fn check(&self, level: &Value) -> Result<(), String>;

    /// Puts the lab into the state of a level.
    ///
    /// # Errors
    /// What could not be set; nothing is left half done.
    fn set<'lab>(&self, lab: &'lab RunningLab, level: &Value) -> Result<Box<dyn Guard + 'lab>, TrialError>;
}

impl fmt::Debug for dyn EnvironmentFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
