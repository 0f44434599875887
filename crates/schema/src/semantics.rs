//! File semantics that a mount gives, as found by `storage semantics`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the format.
pub const STORAGE_SEMANTICS_SCHEMA: &str = "clearstream.storage-semantics";

/// File semantics of one mount, or of two mounts of one file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageSemantics {
    /// [`STORAGE_SEMANTICS_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// The mount.
    pub mount: SemanticsMount,
    /// The other mount of the same file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SemanticsMount>,
    /// Maximum wait for a change to become visible at the other client.
    pub wait_ns: u64,
    /// False when it was interrupted or timed out: later checks did not run.
    pub complete: bool,
    /// Duration of all checks.
    pub duration_ns: u64,
    /// Checks, in the order of areas.
    pub checks: Vec<SemanticsCheck>,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SemanticsMount {
    /// Its host; absent for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Directory that was tested.
    pub directory: String,
    /// File system type, of `/proc/self/mountinfo`; with its source.
    pub file_system: String,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SemanticsCheck {
    /// Area.
    pub area: SemanticsArea,
    /// Identifier of the check.
    pub check: String,
    /// What is checked, in a few terms.
    pub title: String,
    /// Clients that take part, and the direction of a change.
    pub clients: SemanticsClients,
    /// Verdict.
    pub verdict: SemanticsVerdict,
    /// The standard and section, or the manual page, that defines it.
    pub standard: String,
    /// What was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Error code of the kernel that led to the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// How long an old state was visible: a lower bound where it equals the maximum wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_ns: Option<u64>,
}

/// Areas of semantics, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SemanticsArea {
    /// flock(2), fcntl(2).
    Locks,
    /// Atomicity of creation, appending, renaming, removal.
    Atomicity,
    /// Shared mappings.
    Mappings,
    /// Visibility of changes at another client.
    Coherence,
    /// Timestamps.
    Timestamps,
    /// Allocation, direct access, attributes, names.
    Features,
}

/// Clients that take part in a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SemanticsClients {
    /// Processes on one mount.
    One,
    /// Processes on both mounts.
    Two,
    /// A change on the mount, observed on the peer's.
    ToPeer,
    /// A change on the peer's mount, observed on the mount.
    FromPeer,
}

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SemanticsVerdict {
    /// As the standard has it.
    Yes,
    /// It deviates from the standard.
    No,
    /// The system call reports that the file system lacks it.
    NotSupported,
    /// The check did not run to its end.
    Inconclusive,
}

/// Verdict with what led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemanticsFound {
    /// Verdict.
    pub verdict: SemanticsVerdict,
    /// What was found.
    pub detail: Option<String>,
    /// Number of the kernel's error code.
    pub errno: Option<i32>,
    /// How long an old state was visible.
    pub stale_ns: Option<u64>,
}

impl SemanticsFound {
    /// A verdict alone.
    pub fn new(verdict: SemanticsVerdict) -> Self {
        Self { verdict, detail: None, errno: None, stale_ns: None }
    }

    /// With what was found.
    #[must_use]
    pub fn with(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}
