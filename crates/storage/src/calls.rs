//! Calls of a controller at the agent that has the ranks of a benchmark, and its events.

use clearstream_control::{Call, CallEvent, Delivery};
use clearstream_schema::{
    control::Failure,
    notice::Notice,
    scope::Right,
    storage::{
        StorageLive, StreamConfig, StreamPoint,
        metadata::{MetadataConfig, MetadataPhase},
    },
};
use serde::{Deserialize, Serialize};

use crate::mount::Mount;

/// What to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Benchmark {
    /// Streaming, in a folder of this name.
    Stream {
        /// Folder in the directory.
        folder: String,
        /// Options.
        config: StreamConfig,
    },
    /// Metadata.
    Metadata(MetadataConfig),
}

/// Starts a benchmark; the reply is sent when its options are checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageRun {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// What to do.
    pub benchmark: Benchmark,
}

impl Call for StorageRun {
    const NAME: &'static str = "storage-run";
    const NEEDS: Right = Right::Change;
    type Reply = StorageStarted;
}

/// Facts of a benchmark that has started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageStarted {
    /// The file system.
    pub mount: Mount,
    /// Those of further directories.
    #[serde(default)]
    pub more_mounts: Vec<Mount>,
    /// Memory of the host, which may cache what is written.
    pub memory_bytes: u64,
    /// Host of each rank.
    pub hosts: Vec<String>,
    /// Folders of killed runs that are still in the directory.
    #[serde(default)]
    pub left_over: Option<Notice>,
}

impl StorageStarted {
    /// Of ranks on these hosts.
    pub(crate) fn of(mount: Mount, hosts: Vec<String>) -> Self {
        Self { mount, more_mounts: Vec::new(), memory_bytes: 0, hosts, left_over: None }
    }
}

/// Ends a benchmark, early or after its end; the reply is sent when its files are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageStop {
    /// Test number.
    pub test: u64,
}

impl Call for StorageStop {
    const NAME: &'static str = "storage-stop";
    const NEEDS: Right = Right::Change;
    type Reply = StorageEnded;
}

/// How a benchmark ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageEnded {
    /// Error that ended it early, unless it was stopped.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// What to know of its files: that the folder remains, in which shape they were read.
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// Folder that stays with items of this or of an earlier run.
    #[serde(default)]
    pub kept_folder: Option<String>,
    /// Shape of the items of an earlier run.
    #[serde(default)]
    pub shape: Option<ItemShape>,
}

/// How many items an earlier run made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemShape {
    /// Directories of a tree.
    pub tree_count: u64,
    /// Items of each rank and kind.
    pub item_count: u64,
}

/// A phase that is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// Of streaming.
    Stream(Box<StreamPoint>),
    /// Of metadata.
    Metadata(Box<MetadataPhase>),
}

/// Event: a phase is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageMeasured {
    /// Test number.
    pub test: u64,
    /// The phase.
    pub measured: Measured,
}

impl CallEvent for StorageMeasured {
    const NAME: &'static str = "storage-measured";
    const DELIVERY: Delivery = Delivery::Queued;
}

/// Event: what the ranks do now, once per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageNow {
    /// Test number.
    pub test: u64,
    /// Absent between phases.
    #[serde(default)]
    pub live: Option<StorageLive>,
}

impl CallEvent for StorageNow {
    const NAME: &'static str = "storage-now";
    const DELIVERY: Delivery = Delivery::Droppable;
}

/// Event: all phases are measured, or the benchmark has failed; [`StorageStop`] returns which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFinished {
    /// Test number.
    pub test: u64,
}

impl CallEvent for StorageFinished {
    const NAME: &'static str = "storage-finished";
    const DELIVERY: Delivery = Delivery::Queued;
}
