//! Messages over TCP or MPI: what can be requested, and what one measurement returns.

use std::collections::BTreeMap;

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use clearstream_schema::{ByteCount, SizeRange, TimeSpan};

/// Perturbation of a range of sizes when none is requested: that of NetPIPE.
pub const DEFAULT_PERTURBATION_BYTES: u64 = 3;

/// Traffic pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MessageKind {
    /// One message at a time, to and fro: latency and block throughput.
    #[default]
    PingPong,
    /// Windows of messages from client to server, each window acknowledged: bandwidth.
    Stream,
    /// The same in both directions at once: sum of both bandwidths.
    Bidirectional,
}

/// Transfer and wait mode of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MessageMethod {
    /// `send` and `recv` that sleep.
    #[default]
    Blocking,
    /// `send` and `recv` with `MSG_DONTWAIT`, repeated until they succeed: both sides use a whole core.
    BusyPoll,
    /// `io_uring`: submissions that sleep until they are complete.
    IoUring,
}

/// What carries the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MessageTransport {
    /// One TCP connection.
    #[default]
    Tcp,
    /// Two ranks of an MPI job (`mpirun -np 2`), over whatever the MPI library uses.
    Mpi,
    /// Two ranks of an MPI job over iWARP in software: ClearStream's provider of libfabric.
    MpiIwarp,
}

impl MessageTransport {
    fn is_tcp(&self) -> bool {
        *self == Self::Tcp
    }

    /// Whether ranks of an MPI job exchange the messages.
    pub fn is_mpi(self) -> bool {
        matches!(self, Self::Mpi | Self::MpiIwarp)
    }
}

/// A measurement as requested. Keys, options and their defaults are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MessageConfig {
    /// Traffic pattern
    #[arg(long, value_enum, default_value_t = MessageConfig::default().kind)]
    pub kind: MessageKind,
    /// What carries the messages
    #[serde(skip_serializing_if = "MessageTransport::is_tcp")]
    #[arg(long, value_enum, default_value_t = MessageConfig::default().transport)]
    pub transport: MessageTransport,
    /// Command that starts an MPI job, with options of your own, as in "mpirun.openmpi --mca pml ob1" (default: mpirun)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "COMMAND")]
    pub mpirun: Option<String>,
    /// Library of the ranks, with the same path on both hosts, built by `make extras` (default: beside this program)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE")]
    pub mpi_library: Option<String>,
    /// One message size instead of a range
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, short = 's', value_name = "BYTES", conflicts_with = "sizes")]
    pub size: Option<ByteCount>,
    /// Message sizes: powers of two times the smallest, up to the largest
    #[arg(long, value_name = "FROM-TO", default_value_t = MessageConfig::default().sizes)]
    pub sizes: SizeRange,
    /// Also measure every size with so many bytes less and more, as NetPIPE does (default: 3B for a range, none for one size)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "BYTES")]
    pub perturbation: Option<ByteCount>,
    /// Messages in flight before the receiver acknowledges them (stream, bidirectional)
    #[arg(long, short = 'w', value_name = "COUNT", default_value_t = MessageConfig::default().window)]
    pub window: u32,
    /// Transfer and wait mode of both sides
    #[arg(long, value_enum, default_value_t = MessageConfig::default().method)]
    pub method: MessageMethod,
    /// Time to measure each size, after its warm-up
    #[arg(long, short = 't', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = MessageConfig::default().duration)]
    pub duration: TimeSpan,
    /// Round trips or windows per size instead of a time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, short = 'n', value_name = "COUNT", conflicts_with = "duration")]
    pub iterations: Option<u64>,
    /// Leading part of each size that does not count
    #[arg(long, short = 'O', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = MessageConfig::default().warm_up)]
    pub warm_up: TimeSpan,
    /// Check every byte received against a pattern (costs time that is measured)
    #[arg(long)]
    pub verify: bool,
    /// Leave Nagle's algorithm on (RFC 896) instead of setting `TCP_NODELAY`
    #[arg(long)]
    pub nagle: bool,
    /// Send buffer of both sides (`SO_SNDBUF`) (default: autotuned)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "BYTES")]
    pub send_buffer: Option<ByteCount>,
    /// Receive buffer of both sides (`SO_RCVBUF`) (default: autotuned)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "BYTES")]
    pub receive_buffer: Option<ByteCount>,
    /// Core of the client's thread
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "CORE")]
    pub client_core: Option<u32>,
    /// Core of the server's thread
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "CORE")]
    pub server_core: Option<u32>,
    /// Port of the server's data socket, for firewalls (default: any free one)
    #[serde(rename = "destination-port", alias = "port", skip_serializing_if = "Option::is_none")]
    #[arg(long, short = 'p', visible_alias = "destination-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

impl Default for MessageConfig {
    fn default() -> Self {
        Self {
            kind: MessageKind::default(),
            transport: MessageTransport::default(),
            mpirun: None,
            mpi_library: None,
            size: None,
            sizes: SizeRange { smallest: ByteCount(1), largest: ByteCount(8 << 20) },
            perturbation: None,
            window: 64,
            method: MessageMethod::default(),
            duration: TimeSpan::from_millis(200),
            iterations: None,
            warm_up: TimeSpan::from_millis(20),
            verify: false,
            nagle: false,
            send_buffer: None,
            receive_buffer: None,
            client_core: None,
            server_core: None,
            port: None,
        }
    }
}

/// A message size to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageSize {
    /// Bytes of a message.
    pub bytes: u64,
    /// A size less or plus the perturbation.
    pub is_perturbed: bool,
}

impl MessageConfig {
    /// Bytes by which sizes are perturbed; 0 for none.
    pub fn perturbation_bytes(&self) -> u64 {
        let default = if self.size.is_some() { 0 } else { DEFAULT_PERTURBATION_BYTES };
        self.perturbation.map_or(default, |bytes| bytes.0)
    }

    /// Every size to measure, ascending, none twice.
    pub fn message_sizes(&self) -> Vec<MessageSize> {
        let requested = self.size.map_or_else(|| self.sizes.sizes(), |size| vec![size.0]);
        let by = self.perturbation_bytes();
        let mut sizes: BTreeMap<u64, bool> = requested.iter().map(|size| (*size, false)).collect();
        if by > 0 {
            for size in requested {
                let less = size.checked_sub(by).filter(|less| *less > 0);
                for perturbed in less.into_iter().chain([size.saturating_add(by)]) {
                    sizes.entry(perturbed).or_insert(true);
                }
            }
        }
        sizes.into_iter().map(|(bytes, is_perturbed)| MessageSize { bytes, is_perturbed }).collect()
    }
}
