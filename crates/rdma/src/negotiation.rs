//! What the two ends of a test say to each other: private data that opens
//! connections, messages on the first of them, and the limits of both.

use clearstream_iwarp::{stag::Stag, work::Remote};
use clearstream_schema::rdma::{RdmaConfig, RdmaOperation, RdmaWait};
use serde::{Deserialize, Serialize};

use crate::error::RdmaError;

/// First bytes of the private data of every connection of a test.
const MAGIC: [u8; 16] = *b"clearstream rdma";
/// Grows when the messages change.
const VERSION: u8 = 1;
/// Random bytes that connections of one test have in common.
pub const COOKIE_BYTES: usize = 16;
/// Codes of what a connection carries.
const MESSAGES: u8 = 0;
const DATA: u8 = 1;
const PINGS: u8 = 2;
/// Bytes of an [`Opening`].
const OPENING_BYTES: usize = MAGIC.len() + 2 + COOKIE_BYTES + 2;

/// Most queue pairs of a test.
const MOST_QUEUE_PAIRS: u16 = 1024;
/// Most requests in flight on a queue pair.
const MOST_DEPTH: u32 = 16_384;
/// Most bytes of a message.
const MOST_BYTES: u64 = 1 << 30;
/// Memory that one end registers for a test, at most.
const MOST_MEMORY_BYTES: u64 = 2 << 30;
/// Memory for messages that are compared one by one.
const VERIFIED_MEMORY_BYTES: u64 = 64 << 20;

/// Random bytes of a test.
pub type Cookie = [u8; COOKIE_BYTES];

/// What a connection is for: the private data of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Of the test.
    pub cookie: Cookie,
    /// What it carries.
    pub carries: Carries,
}

/// What a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// The messages of a test.
    Messages,
    /// Data, on the queue pair of this number.
    Data(u16),
    /// Pings.
    Pings,
}

impl Opening {
    /// The private data.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let (kind, lane) = match self.carries {
            Carries::Messages => (MESSAGES, 0),
            Carries::Data(lane) => (DATA, lane),
            Carries::Pings => (PINGS, 0),
        };
        bytes.extend([VERSION, kind]);
        bytes.extend(self.cookie);
        bytes.extend(lane.to_be_bytes());
        bytes
    }

    /// What private data says: nothing that we know, another version, or an
    /// opening.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Private {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else { return Private::Other };
        let (Some(&[version, kind]), true) = (rest.first_chunk(), bytes.len() == OPENING_BYTES) else {
            return Private::Version;
        };
        if version != VERSION {
            return Private::Version;
        }
        let mut cookie = [0; COOKIE_BYTES];
        cookie.copy_from_slice(&rest[2..2 + COOKIE_BYTES]);
        let number = u16::from_be_bytes([rest[COOKIE_BYTES + 2], rest[COOKIE_BYTES + 3]]);
        let carries = match kind {
            MESSAGES => Carries::Messages,
            DATA => Carries::Data(number),
            PINGS => Carries::Pings,
            _ => return Private::Version,
        };
        Private::Ours(Self { cookie, carries })
    }
}

/// What private data turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Private {
    /// Of a test.
    Ours(Opening),
    /// Of a test, by a program of another version.
    Version,
    /// Of some other program, or none.
    Other,
}

/// Private data of an accepted connection: how the near end knows who is there.
#[must_use]
pub fn welcome() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    bytes
}

/// Messages on the first connection of a test, near end's and far end's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// Near: what is to be done.
    Open {
        /// What.
        operation: RdmaOperation,
        /// How.
        config: Box<RdmaConfig>,
    },
    /// Far: it can be done; the other connections may come.
    Welcome,
    /// Far: it can not be done, or has failed, in words for people.
    Refused {
        /// Why.
        reason: String,
        /// An option is what cannot be done.
        option: bool,
    },
    /// Both: all connections are there, and here is my memory.
    Memory(Advert),
    /// Near: prepare a round.
    Prepare(Round),
    /// Far: prepared.
    Ready,
    /// Near: I have sent all of mine.
    Finish,
    /// Far: the round, as I saw it.
    Report(Report),
}

/// Where each queue pair's memory is; that of number `n` begins `n` times the
/// stride after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advert {
    /// Tag of what may be read.
    pub source_stag: u32,
    /// Its first byte.
    pub source_address: u64,
    /// Bytes between two queue pairs' parts of it.
    pub source_stride: u64,
    /// Tag of what may be written.
    pub sink_stag: u32,
    /// Its first byte.
    pub sink_address: u64,
    /// Bytes between two queue pairs' parts of it.
    pub sink_stride: u64,
}

impl Advert {
    /// Where a queue pair's message may be read.
    #[must_use]
    pub fn source(&self, lane: usize) -> Remote {
        let address = self.source_address.wrapping_add(self.source_stride.wrapping_mul(lane as u64));
        Remote { stag: Stag(self.source_stag), address }
    }

    /// Where a queue pair's messages may be written.
    #[must_use]
    pub fn sink(&self, lane: usize) -> Remote {
        let address = self.sink_address.wrapping_add(self.sink_stride.wrapping_mul(lane as u64));
        Remote { stag: Stag(self.sink_stag), address }
    }
}

/// One size, once: as warm-up, or to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Bytes of a message.
    pub size: u64,
}

/// What the far end has to say about a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Messages that it sent, wrote or read itself.
    pub sent: u64,
    /// From its first request until all was in the receiver's memory.
    pub elapsed_ns: u64,
    /// CPU time of its process.
    pub cpu_ns: u64,
    /// Messages, or memory, that were not as they should be; `None` when they
    /// were not compared.
    pub mismatches: Option<u64>,
}

/// Memory and queues that both ends make for a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of one message's place, a multiple of 64.
    pub slot_bytes: u64,
    /// Places for arriving messages, each used by one request at a time when
    /// messages are compared.
    pub slots: u32,
    /// Requests in flight on a queue pair.
    pub depth: u32,
    /// A completion is asked for with every one of so many requests.
    pub signal_every: u32,
    /// Queue pairs.
    pub lanes: u16,
}

impl Shape {
    /// What a configuration needs.
    ///
    /// # Errors
    /// A configuration that makes no sense, or needs more memory than either
    /// end gives.
    pub fn of(config: &RdmaConfig, operation: RdmaOperation) -> Result<Self, RdmaError> {
        check(config)?;
        let lanes = u64::from(config.queue_pairs);
        let slot_bytes = config.size.largest().next_multiple_of(64);
        let mut depth = if config.latency { 1 } else { config.depth };
        let compared = config.verify && operation != RdmaOperation::Write;
        if compared {
            let fitting = (VERIFIED_MEMORY_BYTES / slot_bytes / lanes).max(1);
            depth = depth.min(u32::try_from(fitting).unwrap_or(u32::MAX));
        }
        let slots = if compared { depth + CREDIT_RECEIVES } else { 1 };
        let memory = lanes * slot_bytes * (u64::from(slots) + 1);
        if memory > MOST_MEMORY_BYTES {
            return Err(RdmaError::Option(format!(
                "{lanes} queue pairs with messages of {} need {memory} bytes of memory at each end, and \
                 {MOST_MEMORY_BYTES} is the most: choose fewer, or smaller messages",
                config.size
            )));
        }
        Ok(Self { slot_bytes, slots, depth, signal_every: (depth / 4).max(1), lanes: config.queue_pairs })
    }

    /// Receives that are posted on each queue pair.
    #[must_use]
    pub fn receives(&self) -> u32 {
        self.depth + CREDIT_RECEIVES
    }
}

/// Receives beyond the depth: for the messages that say how many more Sends
/// may come. There are at most `depth / signal_every + 1` of them on the way.
const CREDIT_RECEIVES: u32 = 9;

/// Refuses what makes no sense, in words that say what to write instead.
fn check(config: &RdmaConfig) -> Result<(), RdmaError> {
    let fail = |reason: String| Err(RdmaError::Option(reason));
    if config.size.0.is_empty() || config.size.0.iter().any(|size| size.0 == 0 || size.0 > MOST_BYTES) {
        return fail(format!("a message of {} bytes: choose 1 B to 1 GiB", config.size));
    }
    if config.queue_pairs == 0 || config.queue_pairs > MOST_QUEUE_PAIRS {
        return fail(format!("{} queue pairs: choose 1 to {MOST_QUEUE_PAIRS}", config.queue_pairs));
    }
    if config.depth == 0 || config.depth > MOST_DEPTH {
        return fail(format!("a depth of {}: choose 1 to {MOST_DEPTH}", config.depth));
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

/// Whether each Write of a latency test is followed by immediate data: its
/// receiver sleeps and cannot look at its memory.
#[must_use]
pub fn announces_writes(config: &RdmaConfig) -> bool {
    config.wait() == RdmaWait::Sleep
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
    fn an_opening_is_read_as_it_was_written_and_nothing_else_is_one() {
        for carries in [Carries::Messages, Carries::Data(0), Carries::Data(513), Carries::Pings] {
            let opening = Opening { cookie: *b"0123456789abcdef", carries };
            assert_eq!(Opening::decode(&opening.encode()), Private::Ours(opening));
        }
        let mut bytes = Opening { cookie: [7; 16], carries: Carries::Messages }.encode();
        assert_eq!(Opening::decode(&[]), Private::Other);
        assert_eq!(Opening::decode(b"rping or so"), Private::Other);
        assert_eq!(Opening::decode(&bytes[..20]), Private::Version);
        bytes[16] = 9;
        assert_eq!(Opening::decode(&bytes), Private::Version);
    }

    #[test]
    fn fits_the_private_data_of_the_least_peer() {
        // Linux takes 256 bytes, 4 of which revision 2 uses.
        assert!(Opening { cookie: [0; 16], carries: Carries::Data(1) }.encode().len() <= 252);
        assert!(welcome().len() <= 252);
    }

    #[test]
    fn messages_that_are_compared_have_a_place_each() {
        let mut asked = config(1 << 20);
        asked.depth = 128;
        let shape = Shape::of(&asked, RdmaOperation::Send).unwrap();
        assert_eq!((shape.depth, shape.slots), (128, 1));
        asked.verify = true;
        let shape = Shape::of(&asked, RdmaOperation::Send).unwrap();
        assert_eq!((shape.depth, shape.slots), (64, 73), "64 MiB of messages");
        let shape = Shape::of(&asked, RdmaOperation::Write).unwrap();
        assert_eq!((shape.depth, shape.slots), (128, 1), "a Write is compared at the end");
        asked.latency = true;
        assert_eq!(Shape::of(&asked, RdmaOperation::Send).unwrap().depth, 1);
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        let refused = |change: fn(&mut RdmaConfig)| {
            let mut asked = config(64);
            change(&mut asked);
            Shape::of(&asked, RdmaOperation::Write).unwrap_err().to_string()
        };
        assert!(refused(|c| c.size = SizeList(vec![ByteCount(0)])).contains("1 B to 1 GiB"));
        assert!(refused(|c| c.queue_pairs = 0).contains("1 to 1024"));
        assert!(refused(|c| c.depth = 1 << 20).contains("1 to 16384"));
        assert!(refused(|c| c.revision = 3).contains("1 or 2"));
        assert!(refused(|c| c.iterations = Some(0)).contains("--iterations"));
        assert!(refused(|c| c.outstanding_reads = 0).contains("at least 1"));
        assert!(refused(|c| (c.latency, c.both_ways) = (true, true)).contains("--both-ways"));
        let much = refused(|c| (c.queue_pairs, c.size) = (1024, SizeList(vec![ByteCount(8 << 20)])));
        assert!(much.contains("fewer"), "{much}");
    }

    #[test]
    fn credits_on_the_way_have_receives() {
        for depth in 1..=512 {
            let mut asked = config(64);
            asked.depth = depth;
            let shape = Shape::of(&asked, RdmaOperation::Send).unwrap();
            let credits = shape.depth / shape.signal_every + 1;
            assert!(credits <= shape.receives() - shape.depth, "depth {depth}");
        }
    }
}
