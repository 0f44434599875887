//! Overlap of work and messages: what can be requested, and what one measurement
//! returns. The methods and their terms are those of COMB (W. Lawry, C. Wilson,
//! A. Maccabe, R. Brightwell, Cluster 2002).

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use clearstream_schema::{ByteCount, CountRange, TimeSpan, rdma::RdmaProgress};

/// What carries the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapTransport {
    /// A non-blocking TCP socket, read and written when the program polls.
    #[default]
    Tcp,
    /// Sends over software iWARP.
    Iwarp,
    /// Two ranks of an MPI job (`mpirun -np 2`), over whatever the MPI library uses.
    Mpi,
    /// Two ranks of an MPI job over iWARP in software: ClearStream's provider of libfabric.
    MpiIwarp,
}

impl OverlapTransport {
    /// Whether ranks of an MPI job exchange the messages.
    pub fn is_mpi(self) -> bool {
        matches!(self, Self::Mpi | Self::MpiIwarp)
    }
}

/// Method of COMB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapMethod {
    /// The client works, and after each interval of work replies to the messages that arrived.
    #[default]
    Polling,
    /// The client posts a window of messages in each direction, works, and waits for all of them.
    PostWorkWait,
}

/// A measurement as requested. Keys, options and their defaults are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct OverlapConfig {
    /// What carries the messages
    #[arg(long, value_enum, default_value_t = OverlapConfig::default().transport)]
    pub transport: OverlapTransport,
    /// Method of COMB
    #[arg(long, value_enum, default_value_t = OverlapConfig::default().method)]
    pub method: OverlapMethod,
    /// Who moves the bytes of a queue pair, on both sides (iwarp)
    #[arg(long, value_enum, default_value_t = OverlapConfig::default().progress)]
    pub progress: RdmaProgress,
    /// Command that starts an MPI job, with options of your own, as in "mpirun.openmpi --mca pml ob1" (default: mpirun)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "COMMAND")]
    pub mpirun: Option<String>,
    /// Library of the ranks, with the same path on both hosts, built by `make extras` (default: beside this program)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE")]
    pub mpi_library: Option<String>,
    /// Message size
    #[arg(long, short = 's', value_name = "BYTES", default_value_t = OverlapConfig::default().size)]
    pub size: ByteCount,
    /// Messages in flight: together (polling), or in each direction (post-work-wait)
    #[arg(long, short = 'w', value_name = "COUNT", default_value_t = OverlapConfig::default().window)]
    pub window: u32,
    /// Iterations of work between two polls, or while messages are posted: one count, or a range that is swept
    #[arg(long, value_name = "FROM-TO", default_value_t = OverlapConfig::default().work)]
    pub work: CountRange,
    /// Steps of the sweep in every decade of work
    #[arg(long, value_name = "COUNT", default_value_t = OverlapConfig::default().per_decade)]
    pub per_decade: u32,
    /// Time to measure each step, after its warm-up and without the work alone
    #[arg(long, short = 't', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = OverlapConfig::default().duration)]
    pub duration: TimeSpan,
    /// Intervals of work per step instead of a time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, short = 'n', value_name = "COUNT", conflicts_with = "duration")]
    pub iterations: Option<u64>,
    /// Leading part of each step that does not count
    #[arg(long, short = 'O', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = OverlapConfig::default().warm_up)]
    pub warm_up: TimeSpan,
    /// Check every byte received against a pattern (costs time that is measured)
    #[arg(long)]
    pub verify: bool,
    /// Core of the client's program, which works
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "CORE")]
    pub client_core: Option<u32>,
    /// Core of the server's program
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "CORE")]
    pub server_core: Option<u32>,
    /// Port of the server, for firewalls; iwarp also uses the next one (default: any free one)
    #[serde(rename = "destination-port", alias = "port", skip_serializing_if = "Option::is_none")]
    #[arg(long, short = 'p', visible_alias = "destination-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65534))]
    pub port: Option<u16>,
}

impl Default for OverlapConfig {
    fn default() -> Self {
        Self {
            transport: OverlapTransport::default(),
            method: OverlapMethod::default(),
            progress: RdmaProgress::default(),
            mpirun: None,
            mpi_library: None,
            size: ByteCount(100 << 10),
            window: 16,
            work: CountRange { smallest: 100, largest: 100_000_000 },
            per_decade: 3,
            duration: TimeSpan::from_millis(200),
            iterations: None,
            warm_up: TimeSpan::from_millis(20),
            verify: false,
            client_core: None,
            server_core: None,
            port: None,
        }
    }
}

impl OverlapConfig {
    /// Intervals of work to measure, ascending.
    pub fn work_counts(&self) -> Vec<u64> {
        self.work.counts(self.per_decade)
    }
}
