//! Negotiation of a measurement between client and server: private data of
//! connection requests, messages of the control channel, memory and queue
//! sizes with their limits.

use std::{net::SocketAddr, time::Duration};

use clearstream_iwarp::{
    stag::Stag,
    verbs::{AcceptOptions, ConnectOptions},
    work::Remote,
};
use clearstream_schema::rdma::{RdmaConfig, RdmaOperation};
use serde::{Deserialize, Serialize};

use crate::error::{RdmaError, peer_text};

/// First bytes of the private data of every connection of a measurement.
const MAGIC: [u8; 16] = *b"clearstream rdma";
/// Version of the private data and of the messages.
const VERSION: u8 = 1;
/// Version of a measurement whose messages have immediate data: others know none
/// such, and refuse it.
const VERSION_IMMEDIATE: u8 = 2;
/// Length of a [`Cookie`].
const COOKIE_BYTES: usize = 16;
/// Codes of a connection's purpose.
const CONTROL: u8 = 0;
const DATA: u8 = 1;
const PING: u8 = 2;
const VERBS: u8 = 3;
/// Length of an encoded [`ConnectionRequest`].
const REQUEST_BYTES: usize = MAGIC.len() + 2 + COOKIE_BYTES + 2;

const MAX_QUEUE_PAIRS: u16 = 1024;
/// Maximum number of work requests in flight on a queue pair.
const MAX_DEPTH: u32 = 16_384;
const MAX_MESSAGE_BYTES: u64 = 1 << 30;
/// Maximum memory that one side registers for a measurement.
const MAX_MEMORY_BYTES: u64 = 2 << 30;
/// Maximum memory for messages that are verified one by one.
const VERIFIED_MEMORY_BYTES: u64 = 64 << 20;

/// Random bytes that identify the connections of one measurement.
pub type Cookie = [u8; COOKIE_BYTES];

/// Private data of a connection request: measurement and purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionRequest {
    pub(crate) cookie: Cookie,
    pub(crate) purpose: ConnectionPurpose,
    /// Messages of the measurement have immediate data.
    pub(crate) immediate: bool,
}

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPurpose {
    /// Control channel of a measurement.
    Control,
    /// Data, on the queue pair of this index.
    Data(u16),
    /// Pings ([`crate::rping`]).
    Ping,
    /// The peer of timed verbs calls.
    Verbs,
}

impl ConnectionRequest {
    /// Encodes the private data.
    pub fn encode(self) -> Vec<u8> {
        let (kind, index) = match self.purpose {
            ConnectionPurpose::Control => (CONTROL, 0),
            ConnectionPurpose::Data(index) => (DATA, index),
            ConnectionPurpose::Ping => (PING, 0),
            ConnectionPurpose::Verbs => (VERBS, 0),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version(self.immediate), kind]);
        bytes.extend(self.cookie);
        bytes.extend(index.to_be_bytes());
        bytes
    }
}

/// Decoded private data of a connection request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateData {
    /// Request of this version.
    Request(ConnectionRequest),
    /// Request of another version of this program.
    OtherVersion,
    /// Absent, or of another program.
    Foreign,
}

impl PrivateData {
    /// Decodes the private data of a connection request.
    pub fn decode(bytes: &[u8]) -> Self {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else { return Self::Foreign };
        let (Some(&[version, kind]), true) = (rest.first_chunk(), bytes.len() == REQUEST_BYTES) else {
            return Self::OtherVersion;
        };
        let immediate = match version {
            VERSION => false,
            VERSION_IMMEDIATE => true,
            _ => return Self::OtherVersion,
        };
        let mut cookie = [0; COOKIE_BYTES];
        cookie.copy_from_slice(&rest[2..2 + COOKIE_BYTES]);
        let index = u16::from_be_bytes([rest[COOKIE_BYTES + 2], rest[COOKIE_BYTES + 3]]);
        let purpose = match kind {
            CONTROL => ConnectionPurpose::Control,
            DATA => ConnectionPurpose::Data(index),
            PING => ConnectionPurpose::Ping,
            VERBS => ConnectionPurpose::Verbs,
            _ => return Self::OtherVersion,
        };
        Self::Request(ConnectionRequest { cookie, purpose, immediate })
    }

    /// Whether messages of the measurement have immediate data.
    pub(crate) fn carries_immediate_data(&self) -> bool {
        matches!(self, Self::Request(ConnectionRequest { immediate: true, .. }))
    }
}

fn version(immediate: bool) -> u8 {
    if immediate { VERSION_IMMEDIATE } else { VERSION }
}

/// Returns the private data of an accepted connection, by which a client
/// recognizes the server.
pub(crate) fn accept_private_data(config: &RdmaConfig) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(version(config.immediate));
    bytes
}

/// Returns the options of the client's connections.
pub(crate) fn connect_options(config: &RdmaConfig, request: ConnectionRequest) -> ConnectOptions {
    ConnectOptions {
        private_data: request.encode(),
        ird: config.outstanding_reads,
        ord: config.outstanding_reads,
        crc: !config.no_crc,
        markers: config.markers,
        revision: config.revision,
        large_fpdus: config.large_fpdus,
        immediate_data: config.immediate,
        // The server is this program, which reads data right after its reply.
        settle: Some(Duration::ZERO),
        ..ConnectOptions::default()
    }
}

/// Returns the options of the server's connections.
pub(crate) fn accept_options(config: &RdmaConfig) -> AcceptOptions {
    AcceptOptions {
        private_data: accept_private_data(config),
        ird: config.outstanding_reads,
        ord: config.outstanding_reads,
        crc: !config.no_crc,
        markers: config.markers,
        large_fpdus: config.large_fpdus,
        immediate_data: config.immediate,
        ..AcceptOptions::default()
    }
}

/// Messages of the control channel, in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// Client: requests a measurement.
    Open {
        /// Operation.
        operation: RdmaOperation,
        /// Options.
        config: Box<RdmaConfig>,
    },
    /// Server: accepts; the data connections may be opened.
    Welcome,
    /// Server: rejects or has failed.
    Refused {
        /// Cause.
        reason: String,
        /// Another option would avoid it.
        option: bool,
    },
    /// Both: all data connections are established; the sender's memory.
    Memory(Advert),
    /// Client: prepare a run.
    Prepare(Run),
    /// Server: the run is prepared.
    Ready,
    /// Client: has stopped sending.
    Finish,
    /// Server: its results of the run.
    Report(Report),
}

impl Message {
    /// Returns the name of the message, for errors.
    fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Welcome => "welcome",
            Self::Refused { .. } => "refused",
            Self::Memory(_) => "memory",
            Self::Prepare(_) => "prepare",
            Self::Ready => "ready",
            Self::Finish => "finish",
            Self::Report(_) => "report",
        }
    }

    /// Creates the error of a message that is not the `expected` one.
    pub(crate) fn unexpected(self, peer: SocketAddr, expected: &str) -> RdmaError {
        match self {
            Self::Refused { reason, option: true } => {
                RdmaError::Option(format!("{peer}: {}", peer_text(&reason)))
            }
            Self::Refused { reason, option: false } => {
                RdmaError::Refused { peer, reason: peer_text(&reason) }
            }
            other => RdmaError::OtherPeer {
                peer,
                expected: "clearstream of this version",
                seen: format!("message \"{}\" instead of \"{expected}\"", other.name()),
            },
        }
    }
}

/// Registered memory of one side; the part of queue pair `n` begins `n` strides
/// after the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advert {
    /// STag of the memory that may be read.
    pub(crate) source_stag: u32,
    pub(crate) source_address: u64,
    /// Distance in bytes between the parts of two queue pairs.
    pub(crate) source_stride: u64,
    /// STag of the memory that may be written.
    pub(crate) sink_stag: u32,
    pub(crate) sink_address: u64,
    /// Distance in bytes between the parts of two queue pairs.
    pub(crate) sink_stride: u64,
}

/// The peer's memory of one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Remotely readable.
    pub(crate) source: Remote,
    /// Remotely writable.
    pub(crate) sink: Remote,
}

impl Advert {
    /// Returns the memory of each queue pair. The RNIC checks every access, so
    /// that a wrong advert only ends the connection.
    pub fn of_queue_pairs(&self, count: usize) -> Vec<RemoteMemory> {
        let place = |stag, address: u64, stride: u64, qp: u64| Remote {
            stag: Stag(stag),
            address: address.wrapping_add(stride.wrapping_mul(qp)),
        };
        (0..count as u64)
            .map(|qp| RemoteMemory {
                source: place(self.source_stag, self.source_address, self.source_stride, qp),
                sink: place(self.sink_stag, self.sink_address, self.sink_stride, qp),
            })
            .collect()
    }
}

/// One run: messages of one size, as warm-up or measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Message size in bytes.
    pub(crate) size: u64,
}

/// Server's results of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Messages that the server itself sent, wrote or read.
    pub(crate) sent: u64,
    /// Time from the server's first request until all was in the client's
    /// memory.
    pub(crate) elapsed_ns: u64,
    /// CPU time of the server's process.
    pub(crate) cpu_ns: u64,
    /// Number of messages or queue pairs that differed from what was sent;
    /// `None` without verification.
    pub(crate) mismatches: Option<u64>,
    /// Number of messages that came with other immediate data; `None` where they
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) immediate_mismatches: Option<u64>,
}

/// Memory and queue sizes of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a message slot, a multiple of 64.
    pub(crate) slot_bytes: u64,
    /// Slots for incoming messages of a queue pair; messages in flight use the
    /// same one unless they are verified.
    pub(crate) slots: u32,
    /// Work requests in flight on a queue pair.
    pub(crate) depth: u32,
    /// One in this many work requests is signaled.
    pub(crate) signal_interval: u32,
    pub(crate) queue_pairs: u16,
}

/// Receives beyond the depth, for credit messages. At most `depth /
/// signal_interval + 1` of these are in flight.
const CREDIT_RECEIVES: u32 = 9;

impl Layout {
    /// Computes the layout for a configuration.
    ///
    /// # Errors
    /// An invalid configuration, or more memory than a side may register.
    pub(crate) fn new(config: &RdmaConfig, operation: RdmaOperation) -> Result<Self, RdmaError> {
        check(config, operation)?;
        let queue_pairs = u64::from(config.queue_pairs);
        let slot_bytes = config.size.largest().max(1).next_multiple_of(64);
        let mut depth = if config.latency { 1 } else { config.depth };
        let verified = config.verify && operation != RdmaOperation::Write;
        if verified {
            let fitting = (VERIFIED_MEMORY_BYTES / slot_bytes / queue_pairs).max(1);
            depth = depth.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        }
        let slots = if verified { depth + CREDIT_RECEIVES } else { 1 };
        let memory = queue_pairs * slot_bytes * (u64::from(slots) + 1);
        if memory > MAX_MEMORY_BYTES {
            return Err(RdmaError::Option(format!(
                "{queue_pairs} queue pairs with messages of {} need {memory} bytes of memory on each side, and \
                 {MAX_MEMORY_BYTES} is the most: choose fewer, or smaller messages",
                config.size
            )));
        }
        let signal_interval = (depth / 4).max(1);
        Ok(Self { slot_bytes, slots, depth, signal_interval, queue_pairs: config.queue_pairs })
    }

    /// Returns the number of receives posted on each queue pair.
    pub(crate) fn receives(&self) -> u32 {
        self.depth + CREDIT_RECEIVES
    }
}

/// Validates a configuration without side effect: rejects what is invalid on
/// every host, or needs more memory than a side may register.
///
/// # Errors
/// [`RdmaError::Option`] with a suggested correction.
pub fn validate(config: &RdmaConfig, operation: RdmaOperation) -> Result<(), RdmaError> {
    Layout::new(config, operation).map(drop)
}

fn check(config: &RdmaConfig, operation: RdmaOperation) -> Result<(), RdmaError> {
    let fail = |reason: String| Err(RdmaError::Option(reason));
    if config.immediate && operation == RdmaOperation::Read {
        return fail("a Read has no immediate data: leave --immediate out".to_owned());
    }
    let valid = u64::from(!config.immediate)..=MAX_MESSAGE_BYTES;
    if config.size.0.is_empty() || !config.size.0.iter().all(|size| valid.contains(&size.0)) {
        let empty = if config.immediate { "" } else { " (0 B with --immediate)" };
        let least = valid.start();
        return fail(format!("a message of {} bytes: choose {least} B to 1 GiB{empty}", config.size));
    }
    if config.queue_pairs == 0 || config.queue_pairs > MAX_QUEUE_PAIRS {
        return fail(format!("{} queue pairs: choose 1 to {MAX_QUEUE_PAIRS}", config.queue_pairs));
    }
    if config.depth == 0 || config.depth > MAX_DEPTH {
        return fail(format!("a depth of {}: choose 1 to {MAX_DEPTH}", config.depth));
    }
    if !(1..=2).contains(&config.revision) {
        return fail(format!("MPA revision {}: choose 1 or 2", config.revision));
    }
    if config.iterations == Some(0) || (config.iterations.is_none() && config.duration.0 == 0) {
        return fail("nothing to measure: choose --duration or --iterations above 0".to_owned());
    }
    if config.outstanding_reads == 0 {
        return fail("no outstanding Reads: choose at least 1, which ends every measurement".to_owned());
    }
    if config.latency && config.both_ways {
        return fail("latency is measured one message at a time: leave --both-ways out".to_owned());
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clearstream_schema::ByteCount;
    use clearstream_schema::rdma::SizeList;

    use super::*;

    fn config(size: u64) -> RdmaConfig {
        RdmaConfig { size: SizeList(vec![ByteCount(size)]), ..RdmaConfig::default() }
    }

    #[test]
    fn a_connection_request_is_decoded_as_it_was_encoded_and_nothing_else_is_one() {
        use ConnectionPurpose::{Control, Data, Ping, Verbs};
        for purpose in [Control, Data(0), Data(513), Ping, Verbs] {
            for immediate in [false, true] {
                let request = ConnectionRequest { cookie: *b"0123456789abcdef", purpose, immediate };
                assert_eq!(PrivateData::decode(&request.encode()), PrivateData::Request(request));
            }
        }
        let mut bytes = ConnectionRequest { cookie: [7; 16], purpose: Control, immediate: false }.encode();
        assert_eq!(PrivateData::decode(&[]), PrivateData::Foreign);
        assert_eq!(PrivateData::decode(b"rping or so"), PrivateData::Foreign);
        assert_eq!(PrivateData::decode(&bytes[..20]), PrivateData::OtherVersion);
        bytes[16] = 9;
        assert_eq!(PrivateData::decode(&bytes), PrivateData::OtherVersion);
    }

    #[test]
    fn fits_the_smallest_private_data_limit() {
        // Linux accepts 256 bytes, 4 of which revision 2 uses.
        let request =
            ConnectionRequest { cookie: [0; 16], purpose: ConnectionPurpose::Data(1), immediate: true };
        assert!(request.encode().len() <= 252);
        assert!(accept_private_data(&RdmaConfig::default()).len() <= 252);
    }

    #[test]
    fn an_unexpected_message_is_named_and_a_long_refusal_is_cut() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 7174));
        let error = Message::Finish.unexpected(peer, "ready").to_string();
        assert!(error.contains("message \"finish\" instead of \"ready\""), "{error}");
        for option in [false, true] {
            let refused = Message::Refused { reason: "no\n".repeat(4000), option };
            let error = refused.unexpected(peer, "welcome").to_string();
            assert!(error.len() < 500 && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn messages_that_are_verified_have_a_slot_each() {
        let mut requested = config(1 << 20);
        requested.depth = 128;
        let layout = Layout::new(&requested, RdmaOperation::Send).unwrap();
        assert_eq!((layout.depth, layout.slots), (128, 1));
        requested.verify = true;
        let layout = Layout::new(&requested, RdmaOperation::Send).unwrap();
        assert_eq!((layout.depth, layout.slots), (64, 73), "64 MiB of messages");
        let layout = Layout::new(&requested, RdmaOperation::Write).unwrap();
        assert_eq!((layout.depth, layout.slots), (128, 1), "a Write is verified at the end");
        requested.latency = true;
        assert_eq!(Layout::new(&requested, RdmaOperation::Send).unwrap().depth, 1);
    }

    #[test]
    fn invalid_configurations_are_rejected_with_a_correction() {
        let rejected = |change: fn(&mut RdmaConfig)| {
            let mut requested = config(64);
            change(&mut requested);
            validate(&requested, RdmaOperation::Write).unwrap_err().to_string()
        };
        let with_immediate = RdmaConfig { immediate: true, ..config(0) };
        assert!(validate(&with_immediate, RdmaOperation::Write).is_ok());
        assert!(
            validate(&with_immediate, RdmaOperation::Read).unwrap_err().to_string().contains("--immediate")
        );
        assert!(rejected(|c| c.size = SizeList(vec![ByteCount(0)])).contains("1 B to 1 GiB"));
        assert!(rejected(|c| c.queue_pairs = 0).contains("1 to 1024"));
        assert!(rejected(|c| c.depth = 1 << 20).contains("1 to 16384"));
        assert!(rejected(|c| c.revision = 3).contains("1 or 2"));
        assert!(rejected(|c| c.iterations = Some(0)).contains("--iterations"));
        assert!(rejected(|c| c.outstanding_reads = 0).contains("at least 1"));
        assert!(rejected(|c| (c.latency, c.both_ways) = (true, true)).contains("--both-ways"));
        let much = rejected(|c| (c.queue_pairs, c.size) = (1024, SizeList(vec![ByteCount(8 << 20)])));
        assert!(much.contains("fewer"), "{much}");
    }

    #[test]
    fn credits_in_flight_have_receives() {
        for depth in 1..=512 {
            let mut requested = config(64);
            requested.depth = depth;
            let layout = Layout::new(&requested, RdmaOperation::Send).unwrap();
            let credits = layout.depth / layout.signal_interval + 1;
            assert!(credits <= layout.receives() - layout.depth, "depth {depth}");
        }
    }
}
