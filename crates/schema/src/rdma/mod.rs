//! Options of `clearstream rdma` and the outcome of its runs.

use std::{borrow::Cow, fmt, net::SocketAddr, str::FromStr};

#[cfg(debug_assertions)]
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::JsonSchema;
use crate::{ByteCount, TimeSpan, notice::Notice};

mod options;
mod outcome;
mod sample;

pub use options::RdmaOptions;
pub use outcome::RDMA_SUMMARY_SCHEMA;
pub use sample::RdmaSample;

/// Largest message of `all` sizes.
const LARGEST_OF_ALL: u64 = 8 << 20;

/// Sizes to measure one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeList(pub Vec<ByteCount>);

/// Sizes that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read sizes from \"{0}\": write one (64KiB), several (1,64,4KiB), or `all` for 1 B to 8 MiB")]
pub struct ParseSizesError(String);

impl SizeList {
    /// 1 B to 8 MiB in powers of two.
    #[must_use]
    pub fn all() -> Self {
        Self((0..=LARGEST_OF_ALL.ilog2()).map(|power| ByteCount(1 << power)).collect())
    }

    /// The largest of them.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.0.iter().map(|size| size.0).max().unwrap_or(0)
    }
}

impl FromStr for SizeList {
    type Err = ParseSizesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::all());
        }
        let sizes: Result<Vec<ByteCount>, _> = text.split(',').map(str::parse).collect();
        sizes.map(Self).map_err(|_| ParseSizesError(text.to_owned()))
    }
}

impl fmt::Display for SizeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.pad("all");
        }
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&names.join(","))
    }
}

impl Serialize for SizeList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SizeList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(debug_assertions)]
impl JsonSchema for SizeList {
    fn schema_name() -> Cow<'static, str> {
        "SizeList".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Sizes with their unit and commas, or `all`",
            "examples": ["64KiB", "1B,64B,4KiB", "all"]
        })
    }
}

/// Operation of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RdmaOperation {
    /// Sends into receives that the peer posted.
    Send,
    /// Writes into the peer's memory; the peer's program is not involved (one-sided).
    #[default]
    Write,
    /// Reads out of the peer's memory; the peer's program is not involved (one-sided).
    Read,
}

/// Progress mode: who moves the bytes of a queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum RdmaProgress {
    /// The program's own calls of post and poll: the lowest latency.
    #[default]
    Inline,
    /// An engine thread: communication goes on while the program computes.
    Offloaded,
    /// The program's own calls, and a helper thread while it does not poll.
    Adaptive,
}

/// Wait mode of a program for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum RdmaWait {
    /// Polls and never sleeps: a core of its own is needed.
    Poll,
    /// Sleeps until the completion queue's notification.
    Sleep,
}

/// An RDMA test as requested. Keys, options and their defaults are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RdmaConfig {
    /// Bytes of a message: one size, several (1,64,4KiB), or `all` for 1 B to 8 MiB
    #[cfg_attr(feature = "cli", arg(long = "size", short = 's', visible_alias = "sizes", value_name = "BYTES", default_value_t = RdmaConfig::default().size))]
    pub size: SizeList,
    /// Measure the latency of single messages instead of bandwidth
    #[cfg_attr(feature = "cli", arg(long))]
    pub latency: bool,
    /// Let the peer send, write or read at the same time
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "latency"))]
    pub both_ways: bool,
    /// Queue pairs, each a TCP connection of its own
    #[cfg_attr(feature = "cli", arg(long, short = 'q', value_name = "COUNT", default_value_t = RdmaConfig::default().queue_pairs))]
    pub queue_pairs: u16,
    /// Requests in flight on each queue pair
    #[cfg_attr(feature = "cli", arg(long, value_name = "COUNT", default_value_t = RdmaConfig::default().depth, conflicts_with = "latency"))]
    pub depth: u32,
    /// Time to measure each size, after the warm-up
    #[cfg_attr(feature = "cli", arg(long, short = 't', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = RdmaConfig::default().duration))]
    pub duration: TimeSpan,
    /// Measure this many messages of each size on each queue pair instead of a time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'n', value_name = "COUNT", conflicts_with = "duration"))]
    pub iterations: Option<u64>,
    /// Leading part of each size that does not count
    #[cfg_attr(feature = "cli", arg(long, short = 'O', value_name = "TIME", value_parser = TimeSpan::or_seconds, default_value_t = RdmaConfig::default().warm_up))]
    pub warm_up: TimeSpan,
    /// Progress mode at both ends: who moves the bytes
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = RdmaConfig::default().progress))]
    pub progress: RdmaProgress,
    /// Wait mode for completions at both ends (default: sleep with offloaded progress, poll otherwise)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub wait: Option<RdmaWait>,
    /// Core that moves the bytes here: of this program's thread, or of the engine
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "CORE"))]
    pub core: Option<u32>,
    /// Core that moves the bytes at the peer: of its program's thread, or of its engine
    // The published key keeps its spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "CORE"))]
    pub remote_core: Option<u32>,
    /// Do not request CRCs (the peer may still require them)
    #[cfg_attr(feature = "cli", arg(long))]
    pub no_crc: bool,
    /// Request markers in what either end receives
    #[cfg_attr(feature = "cli", arg(long))]
    pub markers: bool,
    /// FPDUs that are larger than a TCP segment: less work where segments are small
    #[cfg_attr(feature = "cli", arg(long))]
    pub large_fpdus: bool,
    /// MPA revision to connect with: 1 (RFC 5044) or 2 (RFC 6581)
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", default_value_t = RdmaConfig::default().revision))]
    pub revision: u8,
    /// Reads that may be outstanding on a queue pair (IRD and ORD)
    #[cfg_attr(feature = "cli", arg(long, value_name = "COUNT", default_value_t = RdmaConfig::default().outstanding_reads))]
    pub outstanding_reads: u16,
    /// Messages up to this size are copied into the request when they are posted
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES", default_value_t = RdmaConfig::default().inline))]
    pub inline: ByteCount,
    /// Send or Write four bytes of immediate data with each message, which the receiver compares; messages may be empty
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(long))]
    pub immediate: bool,
    /// Compare what arrived with what was sent, byte for byte; costs time
    #[cfg_attr(feature = "cli", arg(long))]
    pub verify: bool,
    /// Use the protocol of perftest's client: the peer is ib_send_bw, ib_write_lat or another of them, with -R
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "cli", arg(long, conflicts_with_all = ["local", "both_ways", "immediate", "verify", "remote_core", "duration"]))]
    pub perftest: bool,
    /// Receives that the peer's ib_send_bw posts on each queue pair (its -r) (default: 512)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'r', value_name = "COUNT", requires = "perftest"))]
    pub rx_depth: Option<u32>,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            size: SizeList(vec![ByteCount(64 << 10)]),
            latency: false,
            both_ways: false,
            queue_pairs: 1,
            depth: 64,
            duration: TimeSpan::from_seconds(1),
            iterations: None,
            warm_up: TimeSpan::from_millis(100),
            progress: RdmaProgress::Inline,
            wait: None,
            core: None,
            remote_core: None,
            no_crc: false,
            markers: false,
            large_fpdus: false,
            revision: 2,
            outstanding_reads: 16,
            inline: ByteCount(64),
            immediate: false,
            verify: false,
            perftest: false,
            rx_depth: None,
        }
    }
}

impl RdmaConfig {
    /// Wait mode for completions.
    #[must_use]
    pub fn wait(&self) -> RdmaWait {
        self.wait.unwrap_or(match self.progress {
            RdmaProgress::Inline | RdmaProgress::Adaptive => RdmaWait::Poll,
            RdmaProgress::Offloaded => RdmaWait::Sleep,
        })
    }
}

/// Properties of one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RdmaSide {
    /// Address and port of the first queue pair's connection.
    pub address: SocketAddr,
    /// Progress mode: who moves the bytes; absent where the peer does not
    /// report it (perftest).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RdmaProgress>,
    /// Wait mode for completions; absent like the above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<RdmaWait>,
    /// Core that moves the bytes; absent when the scheduler chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
}

/// Effective settings of the connections of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RdmaEffective {
    /// This end.
    pub near: RdmaSide,
    /// The peer.
    pub far: RdmaSide,
    /// MPA revision.
    pub revision: u8,
    /// CRCs are made and checked, in both directions.
    pub crc: bool,
    /// This end puts markers into what it sends.
    pub markers_sent: bool,
    /// The peer puts markers into what it sends.
    pub markers_received: bool,
    /// Reads and atomics that this end may have outstanding (ORD).
    pub outstanding_reads: u16,
    /// Reads and atomics that the peer may have outstanding (IRD).
    pub incoming_reads: u16,
    /// Most bytes of one FPDU's payload and headers (MULPDU).
    pub mulpdu_bytes: u32,
    /// Messages up to this size are copied into their request.
    pub inline_bytes: u32,
    /// Both ends take immediate data with Sends and Writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub immediate: bool,
}

/// Time of single messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RdmaLatency {
    /// Messages measured.
    pub sample_count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Mean.
    pub mean_ns: u64,
}

/// One direction of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RdmaRate {
    /// Messages that had arrived when the time ended.
    pub message_count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first request until all was in the receiver's memory; with
    /// perftest until the last request was complete, as it counts.
    pub elapsed_ns: u64,
    /// `bytes * 8 / elapsed`.
    pub goodput_bps: f64,
    /// `message_count / elapsed`.
    pub messages_per_second: f64,
}

impl RdmaRate {
    /// Counts over a time.
    #[must_use]
    pub fn new(message_count: u64, size_bytes: u64, elapsed_ns: u64) -> Self {
        let seconds = elapsed_ns.max(1) as f64 / 1e9;
        let bytes = message_count.saturating_mul(size_bytes);
        Self {
            message_count,
            bytes,
            elapsed_ns,
            goodput_bps: bytes as f64 * 8.0 / seconds,
            messages_per_second: message_count as f64 / seconds,
        }
    }
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RdmaResult {
    /// Bytes of a message.
    pub size_bytes: u64,
    /// Requests in flight on each queue pair: less than requested where memory
    /// or outstanding Reads limit it.
    pub depth_count: u32,
    /// From client to server (a Read: from server to client); of a latency test, the
    /// rounds that it made.
    pub forward: RdmaRate,
    /// The opposite direction, with `both-ways`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<RdmaRate>,
    /// Half a round trip of Send and Write, the whole time of a Read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<RdmaLatency>,
    /// CPU time of this process while it measured.
    pub near_cpu_ns: u64,
    /// CPU time of the peer's process meanwhile; absent where it is not
    /// reported (perftest).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_cpu_ns: Option<u64>,
    /// Whether the received data equal the data sent; absent when not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// Whether each message came with the immediate data that was sent with it;
    /// absent without `immediate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immediate_verified: Option<bool>,
}

/// A finished test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RdmaSummary {
    /// Operation.
    pub operation: RdmaOperation,
    /// Requested configuration.
    pub requested: RdmaConfig,
    /// Effective settings.
    pub effective: RdmaEffective,
    /// One entry per size, in order.
    pub results: Vec<RdmaResult>,
    /// All sizes were measured for as long as requested.
    pub complete: bool,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// Least size of a ping: the text with its number fits, as rping wants it.
pub const PING_LEAST_BYTES: u64 = 26;
/// Most bytes of a ping that rping takes.
pub const PING_MOST_BYTES: u64 = (64 << 10) - 1;

/// A ping as requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PingConfig {
    /// Rounds to make (default: 10); 0 goes on until Ctrl-C. With --serve: end after this many
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'C', value_name = "COUNT"))]
    pub count: Option<u64>,
    /// Bytes of a ping, 26 to 65535 (default: 64). With --serve: the largest that is taken
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'S', value_name = "BYTES"))]
    pub size: Option<ByteCount>,
    /// Time between the starts of rounds (default: as fast as they go)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, short = 'i', value_name = "TIME", value_parser = TimeSpan::or_seconds))]
    pub interval: Option<TimeSpan>,
    /// Compare what comes back with what was sent. With --serve: what was read with what rping sends
    #[cfg_attr(feature = "cli", arg(long))]
    pub verify: bool,
    /// Do not request CRCs (the peer may still require them)
    #[cfg_attr(feature = "cli", arg(long))]
    pub no_crc: bool,
    /// MPA revision to connect with: 1 (RFC 5044) or 2 (RFC 6581)
    #[cfg_attr(feature = "cli", arg(long, value_name = "NUMBER", default_value_t = PingConfig::default().revision))]
    pub revision: u8,
}

impl Default for PingConfig {
    fn default() -> Self {
        Self { count: None, size: None, interval: None, verify: false, no_crc: false, revision: 2 }
    }
}

impl PingConfig {
    /// Rounds to make; `None` goes on.
    #[must_use]
    pub fn rounds(&self) -> Option<u64> {
        Some(self.count.unwrap_or(10)).filter(|count| *count > 0)
    }

    /// Bytes of a ping.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size.map_or(64, |size| size.0)
    }
}

/// A finished ping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PingSummary {
    /// Requested configuration.
    pub requested: PingConfig,
    /// This end's address and port.
    pub near: SocketAddr,
    /// The peer's address and port.
    pub far: SocketAddr,
    /// MPA revision in effect.
    pub revision: u8,
    /// CRCs are made and checked, in both directions.
    pub crc: bool,
    /// From the call of connect until the first message may leave: off this host
    /// 10 ms of it let a peer settle that needs that (siw); one of ClearStream
    /// needs none.
    pub connect_ns: u64,
    /// Rounds made.
    pub round_count: u64,
    /// Rounds whose text did not come back as it was; absent when not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch_count: Option<u64>,
    /// Time of a round: two Sends in each direction, a Read and a Write. Absent when
    /// there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<RdmaLatency>,
    /// All rounds were made.
    pub complete: bool,
}
