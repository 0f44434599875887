//! File semantics that a mount gives: what can be requested, and what was found.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    TimeSpan,
    control::Failure,
    human,
    notice::Notice,
    outcome::{Metric, MetricKind, Outcome, Unit},
    storage::host_names,
};

/// Name of the format.
pub const STORAGE_SEMANTICS_SCHEMA: &str = "clearstream.storage-semantics";

/// Checks as requested. Keys, options and their defaults are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SemanticsConfig {
    /// Directory on the client: an absolute path, or in a lab the name of a mount
    #[cfg_attr(feature = "cli", arg(skip))]
    pub directory: String,
    /// The client, or two clients of the directory, `a,b` (default: the first one of the lab that has the mount)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub hosts: Option<String>,
    /// Maximum wait for a change by one process to be seen by another, on this mount or the other one (attribute caches of
    /// NFS: 70s)
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", default_value_t = SemanticsConfig::default().wait))]
    pub wait: TimeSpan,
    /// Maximum duration of all checks
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", default_value_t = SemanticsConfig::default().timeout))]
    pub timeout: TimeSpan,
}

impl Default for SemanticsConfig {
    fn default() -> Self {
        Self {
            directory: String::new(),
            hosts: None,
            wait: TimeSpan::from_seconds(2),
            timeout: TimeSpan::from_seconds(300),
        }
    }
}

/// Checks as the standard has them: the headline.
const KEPT: MetricKind = MetricKind::higher("checks-kept", Unit::Count);
/// Checks by their other verdicts.
const OTHERS: [(SemanticsVerdict, MetricKind); 5] = [
    (SemanticsVerdict::Late, MetricKind::lower("checks-late", Unit::Count)),
    (SemanticsVerdict::No, MetricKind::lower("checks-deviating", Unit::Count)),
    (SemanticsVerdict::NotSupported, MetricKind::lower("checks-not-supported", Unit::Count)),
    (SemanticsVerdict::LeftOpen, MetricKind::lower("checks-left-open", Unit::Count)),
    (SemanticsVerdict::Inconclusive, MetricKind::lower("checks-inconclusive", Unit::Count)),
];
/// Longest time that a change stayed invisible at the other client, by check: zero where it was visible at once.
const STALENESS: [(&str, MetricKind); 21] = {
    const fn time(name: &'static str) -> MetricKind {
        MetricKind::lower(name, Unit::Nanoseconds)
    }
    [
        ("close-to-open", time("stale-close-to-open")),
        ("write-read", time("stale-write-read")),
        ("size", time("stale-size")),
        ("truncated", time("stale-truncated")),
        ("mode", time("stale-mode")),
        ("times", time("stale-times")),
        ("links", time("stale-links")),
        ("create", time("stale-create")),
        ("folder", time("stale-folder")),
        ("list", time("stale-list")),
        ("remove", time("stale-remove")),
        ("unlist", time("stale-unlist")),
        ("rename", time("stale-rename")),
        ("replace", time("stale-replace")),
        ("mmap-mmap", time("stale-mmap-mmap")),
        ("mmap-read", time("stale-mmap-read")),
        ("write-mmap", time("stale-write-mmap")),
        ("msync-read", time("stale-msync-read")),
        ("msync-open", time("stale-msync-open")),
        ("msync-mmap", time("stale-msync-mmap")),
        ("write-msync", time("stale-write-msync")),
    ]
};

impl SemanticsConfig {
    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        let has_peer = self.hosts.as_deref().is_some_and(|list| host_names(list).len() > 1);
        let staleness = STALENESS.iter().filter(|_| has_peer).map(|(_, kind)| *kind);
        std::iter::once(KEPT).chain(OTHERS.map(|(_, kind)| kind)).chain(staleness).collect()
    }
}

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
    /// False when it was interrupted, timed out or failed: later checks did not run.
    pub complete: bool,
    /// What ended it early, or what remains of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Duration of all checks.
    pub duration_ns: u64,
    /// Checks, in the order of areas.
    pub checks: Vec<SemanticsCheck>,
    /// What to know of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

impl StorageSemantics {
    /// As the outcome of a trial: how many checks have which verdict, and how long changes stayed invisible.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let count = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count() as f64;
        let counts = OTHERS.iter().map(|(verdict, kind)| kind.of(count(*verdict)));
        let staleness = STALENESS.iter().filter_map(|(check, kind)| self.staleness(check, *kind));
        let metrics = std::iter::once(KEPT.of(count(SemanticsVerdict::Yes))).chain(counts).chain(staleness);
        let outcome = Outcome { complete: self.complete, ..Outcome::of(metrics) };
        outcome.with_detail(STORAGE_SEMANTICS_SCHEMA, 1, self)
    }

    /// The longest of both directions; nothing where none of them came to a verdict.
    fn staleness(&self, check: &str, kind: MetricKind) -> Option<Metric> {
        let between_clients =
            |found: &&SemanticsCheck| found.check == check && found.clients != SemanticsClients::One;
        let times = self.checks.iter().filter(between_clients).filter_map(|found| match found.verdict {
            SemanticsVerdict::Yes => Some(0),
            _ => found.stale_ns,
        });
        times.max().map(|stale_ns| kind.of(stale_ns as f64))
    }
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
    /// How long an old state was visible, or a lock held: the time of the verdict `late`, and of `no` the bound, within which it
    /// did not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_ns: Option<u64>,
}

/// Detail of a check that has not run.
pub const NOT_RUN: &str = "it did not run before the end";

impl SemanticsCheck {
    /// Whether it was carried out.
    pub fn has_run(&self) -> bool {
        self.detail.as_deref() != Some(NOT_RUN)
    }

    /// What was found, with the error code; empty where there is nothing to add to the verdict. Of what is late, the time.
    pub fn found(&self) -> String {
        let late = || self.stale_ns.filter(|_| self.verdict == SemanticsVerdict::Late);
        let time = || late().map(|time| format!("after {}", human::time(time)));
        let mut found = self.detail.clone().or_else(time).unwrap_or_default();
        if let Some(errno) = self.errno.as_ref().filter(|errno| !found.contains(errno.as_str())) {
            found.push_str(&format!(": {errno}"));
        }
        found
    }
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
    /// Modes, owners and groups, and what they deny.
    Permissions,
    /// Timestamps.
    Timestamps,
    /// Allocation, direct access, attributes, names.
    Features,
}

impl SemanticsArea {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Atomicity => "atomicity",
            Self::Mappings => "shared mappings",
            Self::Coherence => "coherence between clients",
            Self::Permissions => "permissions and owners",
            Self::Timestamps => "timestamps",
            Self::Features => "features",
        }
    }
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

impl SemanticsClients {
    /// Their name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Two => "two",
            Self::ToPeer => "to peer",
            Self::FromPeer => "from peer",
        }
    }
}

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SemanticsVerdict {
    /// As the standard has it.
    Yes,
    /// It becomes as the standard has it, but not at once.
    Late,
    /// It deviates from the standard.
    No,
    /// The system call reports that the file system lacks it.
    NotSupported,
    /// It is not there, and the standard leaves that to the file system.
    LeftOpen,
    /// The check could not come to a verdict.
    Inconclusive,
}

impl SemanticsVerdict {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 6] =
        [Self::Yes, Self::Late, Self::No, Self::NotSupported, Self::LeftOpen, Self::Inconclusive];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Late => "late",
            Self::No => "no",
            Self::NotSupported => "not supported",
            Self::LeftOpen => "left open",
            Self::Inconclusive => "inconclusive",
        }
    }
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
