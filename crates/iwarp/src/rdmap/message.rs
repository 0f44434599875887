//! Headers of requests and responses, behind the DDP header.

use super::RdmapError;
use crate::stag::Stag;

/// Bytes of an immediate data message (RFC 7306, section 6.2).
pub const IMMEDIATE_BYTES: usize = 8;

/// Asks for memory of the peer's (RFC 5040, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where the response goes: the requester's tag.
    pub sink: Stag,
    /// And its tagged offset.
    pub sink_offset: u64,
    /// How many bytes.
    pub length: u32,
    /// Where they come from: the responder's tag.
    pub source: Stag,
    /// And its tagged offset.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Bytes of the header.
    pub const BYTES: usize = 28;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.sink.0.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source.0.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.source_offset.to_be_bytes());
        bytes
    }

    /// What is left of it when the first `done` bytes were answered.
    #[must_use]
    pub fn behind(&self, done: u32) -> Self {
        Self {
            sink_offset: self.sink_offset.wrapping_add(u64::from(done)),
            length: self.length.saturating_sub(done),
            source_offset: self.source_offset.wrapping_add(u64::from(done)),
            ..*self
        }
    }

    /// Out of a message of exactly that length.
    ///
    /// # Errors
    ///
    /// [`RdmapError::Length`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RdmapError> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes)?;
        Ok(Self {
            sink: Stag(word(bytes, 0)),
            sink_offset: long(bytes, 4),
            length: word(bytes, 12),
            source: Stag(word(bytes, 16)),
            source_offset: long(bytes, 20),
        })
    }
}

/// What an atomic request does (RFC 7306, sections 5.1.1 and 5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds.
    FetchAdd {
        /// What is added.
        add: u64,
        /// A set bit ends a field: no carry goes beyond it.
        mask: u64,
    },
    /// Swaps if it compares equal.
    CompareSwap {
        /// What comes in.
        swap: u64,
        /// Which of its bits.
        swap_mask: u64,
        /// What must be there.
        compare: u64,
        /// Which bits of it.
        compare_mask: u64,
    },
}

/// Asks for an atomic operation (RFC 7306, section 5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// What to do.
    pub operation: AtomicOperation,
    /// Comes back in the response.
    pub request: u32,
    /// The responder's tag.
    pub stag: Stag,
    /// And the tagged offset, a multiple of eight.
    pub offset: u64,
}

const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;

impl AtomicRequest {
    /// Bytes of the header.
    pub const BYTES: usize = 52;

    /// Its bytes. A fetch and add has no compare fields: data of zeros and a
    /// mask of ones, which nobody looks at (RFC 7306, section 5.2.1).
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let (code, fields) = match self.operation {
            AtomicOperation::FetchAdd { add, mask } => (FETCH_ADD, [add, mask, 0, u64::MAX]),
            AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask } => {
                (COMPARE_SWAP, [swap, swap_mask, compare, compare_mask])
            }
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&code.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.request.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.offset.to_be_bytes());
        for (into, field) in bytes[20..].chunks_exact_mut(8).zip(fields) {
            into.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// Out of a message of exactly that length.
    ///
    /// # Errors
    ///
    /// [`RdmapError::Length`]; an atomic operation that nobody has defined is
    /// [`RdmapError::Opcode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RdmapError> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes)?;
        let fields = [20, 28, 36, 44].map(|at| long(bytes, at));
        let operation = match (word(bytes, 0) & 0x0f, fields) {
            (FETCH_ADD, [add, mask, _, _]) => AtomicOperation::FetchAdd { add, mask },
            (COMPARE_SWAP, [swap, swap_mask, compare, compare_mask]) => {
                AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask }
            }
            _ => return Err(RdmapError::Opcode { opcode: super::Opcode::AtomicRequest as u8 }),
        };
        Ok(Self { operation, request: word(bytes, 4), stag: Stag(word(bytes, 8)), offset: long(bytes, 12) })
    }
}

/// Brings what was there before an atomic operation (RFC 7306, section 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The request's.
    pub request: u32,
    /// What was there.
    pub original: u64,
}

impl AtomicResponse {
    /// Bytes of the header.
    pub const BYTES: usize = 12;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.request.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.original.to_be_bytes());
        bytes
    }

    /// Out of a message of exactly that length.
    ///
    /// # Errors
    ///
    /// [`RdmapError::Length`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RdmapError> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes)?;
        Ok(Self { request: word(bytes, 0), original: long(bytes, 4) })
    }
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], RdmapError> {
    bytes.try_into().map_err(|_| RdmapError::Length { bytes: bytes.len(), wanted: N })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}
