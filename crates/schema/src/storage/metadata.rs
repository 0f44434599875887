//! File system metadata by several ranks: what can be requested, and what was measured. The model and the letters
//! of the options are those of mdtest.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClientCache, RankSpan, StorageClock, StorageLatency, StorageStatistics};
use crate::{
    ByteCount, DataKind, TimeSpan,
    control::Failure,
    notice::Notice,
    outcome::{MetricKind, Outcome, Unit},
};

/// Name of the format.
pub const STORAGE_METADATA_SCHEMA: &str = "clearstream.storage-metadata";

/// A measurement as requested. Keys, options and their defaults are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MetadataConfig {
    /// Directory on the client: an absolute path, or in a lab the name of a mount
    #[cfg_attr(feature = "cli", arg(skip))]
    pub directory: String,
    /// Further directories, which ranks have in turns with the first one (mdtest: -d A@B)
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub more_directories: Vec<String>,
    /// Items of each rank
    #[cfg_attr(feature = "cli", arg(long, short = 'n', value_name = "COUNT", default_value_t = MetadataConfig::default().items))]
    pub items: u64,
    /// Items of each rank in each directory of the tree, instead of --items
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'I', value_name = "COUNT", conflicts_with = "items"))]
    pub items_per_directory: Option<u64>,
    /// Depth of the tree of directories
    #[cfg_attr(feature = "cli", arg(long, short = 'z', value_name = "COUNT", default_value_t = MetadataConfig::default().depth))]
    pub depth: u32,
    /// Directories below each directory of the tree
    #[cfg_attr(feature = "cli", arg(long, short = 'b', value_name = "COUNT", default_value_t = MetadataConfig::default().branching))]
    pub branching: u64,
    /// A tree per rank instead of a shared one
    #[cfg_attr(feature = "cli", arg(long, short = 'u'))]
    pub unique_directory: bool,
    /// Only files
    #[cfg_attr(feature = "cli", arg(long, short = 'F', conflicts_with = "directories_only"))]
    pub files_only: bool,
    /// Only directories
    #[cfg_attr(feature = "cli", arg(long, short = 'D'))]
    pub directories_only: bool,
    /// Phases to run, of create (always, unless --name is of an earlier run), stat, read, rename and remove (default: all)
    #[cfg_attr(feature = "cli", arg(long, value_name = "PHASE,...", value_delimiter = ',', hide_default_value = true,
        hide_possible_values = true, default_values_t = MetadataConfig::default().phases))]
    pub phases: Vec<MetadataOperation>,
    /// Bytes that are written to each file when it is created
    #[cfg_attr(feature = "cli", arg(long, short = 'w', value_name = "BYTES", default_value_t = MetadataConfig::default().write_bytes))]
    pub write_bytes: ByteCount,
    /// What is written: random (nothing compresses or repeats), zero, or compress:N
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND", default_value_t = MetadataConfig::default().data))]
    pub data: DataKind,
    /// Flush each file with fsync after writing it, within its time (mdtest: -y)
    #[cfg_attr(feature = "cli", arg(long, short = 'y'))]
    pub fsync: bool,
    /// Items only in the deepest directories of the tree (mdtest: -L)
    #[cfg_attr(feature = "cli", arg(long, short = 'L'))]
    pub leaves_only: bool,
    /// With --stonewall: ranks go on creating until each has as many as the fastest
    #[cfg_attr(feature = "cli", arg(long, requires = "stonewall"))]
    pub wear_out: bool,
    /// Bytes that are read of each file
    #[cfg_attr(feature = "cli", arg(long, short = 'e', value_name = "BYTES", default_value_t = MetadataConfig::default().read_bytes))]
    pub read_bytes: ByteCount,
    /// Each phase after creation is of the items of the rank this many further than in the phase before
    #[cfg_attr(feature = "cli", arg(long, short = 'N', value_name = "RANKS", default_value_t = MetadataConfig::default().stride))]
    pub stride: u32,
    /// Iterations, each in a new tree
    #[cfg_attr(feature = "cli", arg(long, short = 'i', value_name = "COUNT", default_value_t = MetadataConfig::default().iterations))]
    pub iterations: u32,
    /// Create no item after this time of a phase; later phases are of the items that there are
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'W', value_name = "TIME", value_parser = TimeSpan::or_seconds))]
    pub stonewall: Option<TimeSpan>,
    /// Keep the items for later runs: there is no phase that removes them
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep: bool,
    /// Folder in the directory that has the trees (default: a new one); without the phase create that of an earlier run
    /// with --keep, whose items are used
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub name: Option<String>,
    /// Write rank, item, begin and end of every operation to this file as CSV, behind each phase (of rank 0's host)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub operations: Option<String>,
    /// Ranks on the client, each a thread; with --hosts on each host
    #[cfg_attr(feature = "cli", arg(long, value_name = "COUNT", default_value_t = MetadataConfig::default().tasks))]
    pub tasks: u32,
    /// Hosts of the ranks, `a,b`: --tasks on each, started by mpirun (in a lab: its hosts); without, threads on the client
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "HOST,..."))]
    pub hosts: Option<String>,
    /// Command that starts an MPI job, with options of your own, or srun (default: mpirun)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COMMAND", requires = "hosts"))]
    pub mpirun: Option<String>,
    /// Library with this site's MPI, built by `make extras` (default: beside this program)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub mpi_library: Option<String>,
}

impl Default for MetadataConfig {
    fn default() -> Self {
        Self {
            directory: String::new(),
            more_directories: Vec::new(),
            items: 1000,
            items_per_directory: None,
            depth: 0,
            branching: 1,
            unique_directory: false,
            files_only: false,
            directories_only: false,
            phases: MetadataOperation::ALL.to_vec(),
            write_bytes: ByteCount(0),
            data: DataKind::default(),
            fsync: false,
            leaves_only: false,
            wear_out: false,
            read_bytes: ByteCount(0),
            stride: 0,
            iterations: 1,
            stonewall: None,
            keep: false,
            name: None,
            operations: None,
            tasks: 1,
            hosts: None,
            mpirun: None,
            mpi_library: None,
        }
    }
}

/// What an operation is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataKind {
    /// Directories of the tree.
    Tree,
    /// Directories in it.
    Directory,
    /// Files in it.
    File,
}

impl MetadataKind {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Directory => "directory",
            Self::File => "file",
        }
    }
}

/// Operation on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum MetadataOperation {
    /// open(2) with `O_CREAT`, write(2), close(2); mkdir(2).
    Create,
    /// stat(2).
    Stat,
    /// open(2), read(2), close(2); of directories getdents(2).
    Read,
    /// rename(2) within the directory.
    Rename,
    /// unlink(2), rmdir(2).
    Remove,
}

impl MetadataOperation {
    /// All, in the order of their phases.
    pub const ALL: [Self; 5] = [Self::Create, Self::Stat, Self::Read, Self::Rename, Self::Remove];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Read => "read",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }
}

impl std::fmt::Display for MetadataOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// File system metadata by several ranks, in the model of mdtest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageMetadata {
    /// [`STORAGE_METADATA_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Directory that was tested.
    pub directory: String,
    /// Type and source of its file system.
    pub file_system: String,
    /// What was requested.
    pub requested: MetadataConfig,
    /// What carried the ranks' messages: `threads`, or an MPI library.
    pub transport: String,
    /// Hosts of the ranks, each once.
    pub hosts: Vec<String>,
    /// Directories of a tree.
    pub tree_count: u64,
    /// Items of each rank and kind.
    pub item_count: u64,
    /// False when it was interrupted, its time limit passed or it failed: the phases are those until then.
    pub complete: bool,
    /// What ended it early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Folder of the items that stay, of this run (`keep`) or of an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_folder: Option<String>,
    /// Phases, in the order in which they ran.
    pub phases: Vec<MetadataPhase>,
    /// Rates over iterations.
    pub summary: Vec<MetadataSummary>,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A phase up to the stonewall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetadataStonewall {
    /// Operations of all ranks until then.
    pub operation_count: u64,
    /// From the first rank's begin until the last one stood at the wall.
    pub time_ns: u64,
    /// Operations by that time.
    pub operations_per_second: f64,
}

/// One phase of one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetadataPhase {
    /// Iteration, from 0.
    pub iteration: u32,
    /// What it is applied to.
    pub kind: MetadataKind,
    /// Operation.
    pub operation: MetadataOperation,
    /// Operations that were done.
    pub operation_count: u64,
    /// From the first begin to the last end over the ranks that have items.
    pub total_ns: u64,
    /// What joined the ranks' clocks.
    #[serde(default)]
    pub clock: StorageClock,
    /// With `wear-out`: what there was when the stonewall's time was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stonewall: Option<MetadataStonewall>,
    /// Operations by that time.
    pub operations_per_second: f64,
    /// Latency of the operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<StorageLatency>,
    /// Where what was found by stat or read can have come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cache: Option<ClientCache>,
    /// Operations of each rank.
    pub rank_counts: Vec<u64>,
    /// When each rank worked.
    #[serde(default)]
    pub rank_spans: Vec<RankSpan>,
}

/// Rate of an operation over all iterations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetadataSummary {
    /// What it is applied to.
    pub kind: MetadataKind,
    /// Operation.
    pub operation: MetadataOperation,
    /// Operations per second.
    pub operations_per_second: StorageStatistics,
    /// Where what was found by stat or read can have come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cache: Option<ClientCache>,
}

/// Rate of each operation on files, then on directories.
const RATES: [(MetadataKind, MetadataOperation, MetricKind); 10] = {
    use MetadataKind::{Directory, File};
    use MetadataOperation::{Create, Read, Remove, Rename, Stat};
    const fn rate(name: &'static str) -> MetricKind {
        MetricKind::higher(name, Unit::PerSecond)
    }
    [
        (File, Create, rate("file-create")),
        (File, Stat, rate("file-stat")),
        (File, Read, rate("file-read")),
        (File, Rename, rate("file-rename")),
        (File, Remove, rate("file-remove")),
        (Directory, Create, rate("directory-create")),
        (Directory, Stat, rate("directory-stat")),
        (Directory, Read, rate("directory-read")),
        (Directory, Rename, rate("directory-rename")),
        (Directory, Remove, rate("directory-remove")),
    ]
};

impl MetadataConfig {
    /// Ranks of all hosts.
    pub fn rank_count(&self) -> u64 {
        let hosts = self.hosts.as_deref().map_or(1, |list| super::host_names(list).len());
        u64::from(self.tasks) * hosts as u64
    }

    /// Whether the items are those that an earlier run kept.
    pub fn uses_earlier(&self) -> bool {
        self.name.is_some() && !self.phases.contains(&MetadataOperation::Create)
    }

    /// Whether no phase was left out.
    pub fn has_all_phases(&self) -> bool {
        MetadataOperation::ALL.iter().all(|operation| self.phases.contains(operation))
    }

    /// Whether files and directories have the phase. All are created, but those of an earlier run; what is kept is not
    /// removed.
    pub fn has_phase(&self, operation: MetadataOperation) -> bool {
        match operation {
            MetadataOperation::Create => !self.uses_earlier(),
            MetadataOperation::Remove if self.keep => false,
            operation => self.phases.contains(&operation),
        }
    }

    /// Kinds of items, in the order of their phases.
    pub fn kinds(&self) -> &'static [MetadataKind] {
        match (self.files_only, self.directories_only) {
            (true, _) => &[MetadataKind::File],
            (_, true) => &[MetadataKind::Directory],
            _ => &[MetadataKind::Directory, MetadataKind::File],
        }
    }

    /// Metrics that a trial of this configuration can have, the headline first.
    pub fn metrics(&self) -> Vec<MetricKind> {
        let kinds = self.kinds();
        let is_measured = |(kind, operation, _): &&_| kinds.contains(kind) && self.has_phase(*operation);
        RATES.iter().filter(is_measured).map(|(.., metric)| *metric).collect()
    }
}

impl StorageMetadata {
    /// As the outcome of a trial: mean rates over the iterations.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let rate = |kind: MetadataKind, operation: MetadataOperation| {
            let found = self.summary.iter().find(|of| of.kind == kind && of.operation == operation)?;
            Some(found.operations_per_second.mean)
        };
        let metrics: Vec<_> = RATES
            .iter()
            .filter_map(|(kind, operation, metric)| Some(metric.of(rate(*kind, *operation)?)))
            .collect();
        let outcome =
            Outcome { complete: self.complete, notices: self.notices.clone(), ..Outcome::of(metrics) };
        outcome.with_detail(STORAGE_METADATA_SCHEMA, 1, self)
    }
}
