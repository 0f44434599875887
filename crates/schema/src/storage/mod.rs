//! Storage benchmarks: what can be requested, and what one measurement returns. Terms are those of IOR.

pub mod comparison;
pub mod metadata;
mod stream;

pub use stream::*;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ByteCount, DataKind, TimeSpan};

/// How the ranks transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum StreamBackend {
    /// `pwrite` and `pread`, one at a time.
    #[default]
    Posix,
    /// A shared mapping of the block.
    Mmap,
    /// `io_uring`, with `--queue-depth` transfers in flight.
    IoUring,
}

/// Order of reading back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum StreamReorder {
    /// Each rank reads what it wrote.
    #[default]
    None,
    /// Each rank reads what the rank of the same place on the next host wrote.
    Constant,
    /// Each rank reads what another one wrote, in an order that differs by iteration.
    Random,
}

/// Streaming I/O as requested. Keys, options and their defaults are these lines; letters are those of IOR.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StreamConfig {
    /// Directory on the client: an absolute path, or in a lab the name of a mount
    #[cfg_attr(feature = "cli", arg(skip))]
    pub directory: String,
    /// Ranks on the client, each a thread of one process; with --hosts on each host
    #[cfg_attr(feature = "cli", arg(long, short = 'N', value_name = "COUNT", default_value_t = StreamConfig::default().tasks))]
    pub tasks: u32,
    /// Bytes of one transfer, one system call
    #[cfg_attr(feature = "cli", arg(long, short = 't', value_name = "BYTES", value_parser = ByteCount::or_ior, default_value_t = StreamConfig::default().transfer))]
    pub transfer: ByteCount,
    /// Contiguous bytes of a rank in each segment
    #[cfg_attr(feature = "cli", arg(long, short = 'b', value_name = "BYTES", value_parser = ByteCount::or_ior, default_value_t = StreamConfig::default().block))]
    pub block: ByteCount,
    /// Segments: each has a block of every rank
    #[cfg_attr(feature = "cli", arg(long, short = 's', value_name = "COUNT", default_value_t = StreamConfig::default().segments))]
    pub segments: u64,
    /// A file per rank instead of one shared file
    #[cfg_attr(feature = "cli", arg(long, short = 'F'))]
    pub file_per_process: bool,
    /// Repetitions, each with files of its own
    #[cfg_attr(feature = "cli", arg(long, short = 'i', value_name = "COUNT", default_value_t = StreamConfig::default().iterations))]
    pub iterations: u32,
    /// Only write, unless --read is given too
    #[cfg_attr(feature = "cli", arg(long, short = 'w'))]
    pub write: bool,
    /// Only read what an earlier run with --keep and the same --name wrote, which stays, unless --write is given too
    #[cfg_attr(feature = "cli", arg(long, short = 'r'))]
    pub read: bool,
    /// Take a transfer that is done in part for an error, instead of going on with the rest (IOR: -x)
    #[cfg_attr(feature = "cli", arg(long, short = 'x'))]
    pub single_attempt: bool,
    /// Order of reading back
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "ORDER", default_value_t = StreamConfig::default().reorder))]
    pub reorder: StreamReorder,
    /// With -C: read what the rank this many places further wrote (default: ranks of a host)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'Q', value_name = "RANKS"))]
    pub reorder_offset: Option<u32>,
    /// Seed of random orders: of -Z and of -z
    #[cfg_attr(feature = "cli", arg(long, short = 'X', value_name = "NUMBER", default_value_t = StreamConfig::default().seed))]
    pub seed: u64,
    /// Transfers of a block in random order
    #[cfg_attr(feature = "cli", arg(long, short = 'z'))]
    pub random_offsets: bool,
    /// What is written: random (nothing compresses or repeats), zero, or compress:N
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND", default_value_t = StreamConfig::default().data))]
    pub data: DataKind,
    /// Flush with fsync after each transfer that is written, within its time
    #[cfg_attr(feature = "cli", arg(long, short = 'Y'))]
    pub fsync_per_write: bool,
    /// Flush with fsync after writing, within the measured time
    #[cfg_attr(feature = "cli", arg(long, short = 'e'))]
    pub fsync: bool,
    /// End each phase after so long; what is read is what was written until then (IOR: -D)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'D', value_name = "TIME", value_parser = TimeSpan::or_seconds))]
    pub stonewall: Option<TimeSpan>,
    /// With --stonewall: ranks go on until each has as much as the fastest
    #[cfg_attr(feature = "cli", arg(long, requires = "stonewall"))]
    pub wear_out: bool,
    /// Barriers between open, transfers and close
    #[cfg_attr(feature = "cli", arg(long, short = 'g'))]
    pub barriers: bool,
    /// Write a pattern of offset and rank, and check it when reading (costs time that is measured)
    #[cfg_attr(feature = "cli", arg(long, short = 'W'))]
    pub verify: bool,
    /// How ranks transfer
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = StreamConfig::default().backend))]
    pub backend: StreamBackend,
    /// Transfers in flight per rank (io_uring)
    #[cfg_attr(feature = "cli", arg(long, value_name = "COUNT", default_value_t = StreamConfig::default().queue_depth))]
    pub queue_depth: u32,
    /// Past the page cache: O_DIRECT
    #[cfg_attr(feature = "cli", arg(long))]
    pub direct: bool,
    /// Drop the client's cached pages of the files before reading (posix_fadvise)
    #[cfg_attr(feature = "cli", arg(long))]
    pub drop_caches: bool,
    /// Pause between phases
    #[cfg_attr(feature = "cli", arg(long, short = 'd', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = StreamConfig::default().pause))]
    pub pause: TimeSpan,
    /// Write over the files that an earlier run with --keep and the same --name left, instead of new ones; they stay
    #[cfg_attr(feature = "cli", arg(long, short = 'E', requires = "name"))]
    pub existing: bool,
    /// With -w -E: part of the transfers that read instead of writing, 1 to 99 % (fio: rwmixread)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PERCENT", requires = "existing"))]
    pub mix_reads: Option<u8>,
    /// Keep the files
    #[cfg_attr(feature = "cli", arg(long, short = 'k'))]
    pub keep: bool,
    /// Folder in the directory that has the files (default: a new one)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub name: Option<String>,
    /// Write rank, place, begin and end of every operation to this file as CSV, behind each phase (of rank 0's host)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub operations: Option<String>,
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

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            directory: String::new(),
            tasks: 1,
            transfer: ByteCount(1 << 20),
            block: ByteCount(256 << 20),
            segments: 1,
            file_per_process: false,
            iterations: 1,
            write: false,
            read: false,
            single_attempt: false,
            reorder: StreamReorder::default(),
            reorder_offset: None,
            seed: 0,
            random_offsets: false,
            data: DataKind::default(),
            fsync_per_write: false,
            fsync: false,
            stonewall: None,
            wear_out: false,
            barriers: false,
            verify: false,
            backend: StreamBackend::default(),
            queue_depth: 16,
            direct: false,
            drop_caches: false,
            pause: TimeSpan(0),
            existing: false,
            mix_reads: None,
            keep: false,
            name: None,
            operations: None,
            hosts: None,
            mpirun: None,
            mpi_library: None,
        }
    }
}

impl StreamConfig {
    /// Ranks of all hosts.
    pub fn rank_count(&self) -> u64 {
        let hosts = self.hosts.as_deref().map_or(1, |list| host_names(list).len());
        u64::from(self.tasks) * hosts as u64
    }

    /// Phases of an iteration: both, unless one was chosen.
    pub fn phases(&self) -> &'static [StreamPhase] {
        match (self.write, self.read, self.mix_reads) {
            (true, false, Some(_)) => &[StreamPhase::Mixed],
            (true, true, Some(_)) => &[StreamPhase::Mixed, StreamPhase::Read],
            (true, false, None) => &[StreamPhase::Write],
            (false, true, _) => &[StreamPhase::Read],
            _ => &[StreamPhase::Write, StreamPhase::Read],
        }
    }

    /// Transfers of a rank.
    pub fn transfer_count(&self) -> u64 {
        self.segments.saturating_mul(self.block.0 / self.transfer.0.max(1))
    }
}

/// Names of a list of hosts, `a,b`.
pub fn host_names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// What all ranks are doing now, once per second (`--live`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageLive {
    /// The phase: `write`, `file create`.
    pub phase: String,
    /// Iteration, from 0.
    pub iteration: u32,
    /// Since the phase began.
    pub elapsed_ns: u64,
    /// Operations of the phase until now.
    pub operation_count: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Operations per second, of the last second.
    pub operations_per_second: f64,
    /// Bits per second, of the last second.
    pub bandwidth_bps: f64,
    /// Operations that the phase has if nothing ends it early.
    pub expected_count: u64,
    /// Time left, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<u64>,
    /// Ranks that are in it, as far as they were heard of.
    pub rank_count: u64,
}

/// Latency of single operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StorageLatency {
    /// Operations.
    pub sample_count: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// A figure over iterations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageStatistics {
    /// Largest.
    pub max: f64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the iterations themselves (divisor n); 0 for one.
    pub standard_deviation: f64,
}

impl StorageStatistics {
    /// Of these values; nothing of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Some(Self {
            max: values.iter().copied().reduce(f64::max)?,
            min: values.iter().copied().reduce(f64::min)?,
            mean,
            standard_deviation: variance.sqrt(),
        })
    }
}

/// When a rank worked in a phase, after the first rank's begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankSpan {
    /// Its begin; that of the first rank is 0.
    pub begin_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

/// How the times of several ranks were brought onto one clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StorageClock {
    /// What was done for it.
    pub method: ClockMethod,
    /// Maximum error of the phase's time that comes of it.
    pub uncertainty_ns: u64,
}

/// What joins the clocks of ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClockMethod {
    /// All ranks have the same one: threads, or processes of one kernel.
    #[default]
    OneClock,
    /// Clocks of several hosts, joined by offsets that were measured before and after the phase.
    JoinedClocks,
    /// Rank 0's clock, from before the barrier that begins the phase to behind the one that ends it.
    Barriers,
}

/// Where what was read, or found by stat, can have come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientCache {
    /// From the cache of this host: nothing was done against it.
    Possible,
    /// From the cache of this host as far as the kernel kept it: the pages were advised out
    /// (posix_fadvise(2)), which is no order.
    Advised,
    /// Not from the page cache of this host, which was dropped before (`/proc/sys/vm/drop_caches`).
    Dropped,
    /// Not from the page cache of this host (`O_DIRECT`).
    Bypassed,
    /// The file system keeps its files in this host's memory.
    Memory,
}
