//! Calls of a controller at the agent that has the ranks, and its events.

use clearstream_control::{Call, CallEvent, Delivery};
use clearstream_schema::{
    control::Failure,
    scope::Right,
    storage::{StreamConfig, StreamPoint},
};
use serde::{Deserialize, Serialize};

/// Starts a test; the reply is sent when its folder is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamRun {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Folder in it.
    pub folder: String,
    /// What to do.
    pub config: StreamConfig,
}

impl Call for StreamRun {
    const NAME: &'static str = "storage-stream-run";
    // It writes files.
    const NEEDS: Right = Right::Change;
    type Reply = StreamStarted;
}

/// Facts of a test that has started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamStarted {
    /// File system type with its source.
    pub file_system: String,
    /// Memory of the host, which may cache what is written.
    pub memory_bytes: u64,
    /// Host of each rank.
    pub hosts: Vec<String>,
}

/// Ends a test, early or after its end; the reply is sent when its files are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStop {
    /// Test number.
    pub test: u64,
}

impl Call for StreamStop {
    const NAME: &'static str = "storage-stream-stop";
    const NEEDS: Right = Right::Change;
    type Reply = StreamEnded;
}

/// How a test ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamEnded {
    /// Error that ended it early, unless it was stopped.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// The folder remains, and why, unless it was to be kept.
    #[serde(default)]
    pub remains: Option<String>,
}

/// Event: a phase is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamMeasured {
    /// Test number.
    pub test: u64,
    /// Result.
    pub point: StreamPoint,
}

impl CallEvent for StreamMeasured {
    const NAME: &'static str = "storage-stream-measured";
    const DELIVERY: Delivery = Delivery::Queued;
}

/// Event: all phases are measured, or the test has failed; [`StreamStop`] returns which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamFinished {
    /// Test number.
    pub test: u64,
}

impl CallEvent for StreamFinished {
    const NAME: &'static str = "storage-stream-finished";
    const DELIVERY: Delivery = Delivery::Queued;
}
