//! RDMAP headers of requests and responses, after the DDP header.

use super::RdmapError;
use crate::stag::Stag;

/// Bytes of an immediate data message (RFC 7306, section 6.2).
pub const IMMEDIATE_BYTES: usize = 8;

/// Content of an immediate data message between ends that both offer immediate data with Sends and Writes: the message
/// that it belongs to, in four bytes, then four bytes for the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundImmediate {
    /// Of the Write before it.
    Write([u8; 4]),
    /// Of the Send that follows.
    Send([u8; 4]),
}

impl BoundImmediate {
    const WRITE: [u8; 4] = [0, 0, 0, 1];
    const SEND: [u8; 4] = [0, 0, 0, 2];

    /// Encodes it.
    #[must_use]
    pub fn encode(self) -> [u8; IMMEDIATE_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = match self {
            Self::Write(data) => (Self::WRITE, data),
            Self::Send(data) => (Self::SEND, data),
        };
        [a, b, c, d, e, f, g, h]
    }

    /// Decodes it; `None` if it belongs to neither.
    #[must_use]
    pub fn decode([a, b, c, d, e, f, g, h]: [u8; IMMEDIATE_BYTES]) -> Option<Self> {
        match [a, b, c, d] {
            Self::WRITE => Some(Self::Write([e, f, g, h])),
            Self::SEND => Some(Self::Send([e, f, g, h])),
            _ => None,
        }
    }
}

/// Read Request (RFC 5040, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Data sink: the requester's STag.
    pub sink: Stag,
    /// Tagged offset of the data sink.
    pub sink_offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// Data source: the responder's STag.
    pub source: Stag,
    /// Tagged offset of the data source.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Length of the header.
    pub const BYTES: usize = 28;

    /// Encodes the header.
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

    /// Returns the remaining request after the first `done` bytes were
    /// returned.
    #[must_use]
    pub fn behind(&self, done: u32) -> Self {
        Self {
            sink_offset: self.sink_offset.wrapping_add(u64::from(done)),
            length: self.length.saturating_sub(done),
            source_offset: self.source_offset.wrapping_add(u64::from(done)),
            ..*self
        }
    }

    /// Decodes a message of exactly that length.
    ///
    /// # Errors
    ///
    /// [`RdmapError::Length`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RdmapError> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes)?;
        Ok(Self {
            sink: Stag(u32_at(bytes, 0)),
            sink_offset: u64_at(bytes, 4),
            length: u32_at(bytes, 12),
            source: Stag(u32_at(bytes, 16)),
            source_offset: u64_at(bytes, 20),
        })
    }
}

/// Atomic operation (RFC 7306, sections 5.1.1 and 5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Fetch and add.
    FetchAdd {
        /// Value to add.
        add: u64,
        /// A set bit is the most significant of a field: no carry leaves it.
        mask: u64,
    },
    /// Compare and swap.
    CompareSwap {
        /// New value.
        swap: u64,
        /// Bits to swap.
        swap_mask: u64,
        /// Expected value.
        compare: u64,
        /// Bits to compare.
        compare_mask: u64,
    },
}

/// Atomic Request (RFC 7306, section 5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Operation.
    pub operation: AtomicOperation,
    /// Request identifier, returned in the response.
    pub request: u32,
    /// The responder's STag.
    pub stag: Stag,
    /// Tagged offset, a multiple of eight.
    pub offset: u64,
}

const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;

impl AtomicRequest {
    /// Length of the header.
    pub const BYTES: usize = 52;

    /// Encodes the header. A fetch and add has no compare fields: compare data
    /// of zeros and a compare mask of ones, which are ignored (RFC 7306,
    /// section 5.2.1).
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

    /// Decodes a message of exactly that length.
    ///
    /// # Errors
    ///
    /// [`RdmapError::Length`]; an undefined atomic operation is
    /// [`RdmapError::Opcode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RdmapError> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes)?;
        let fields = [20, 28, 36, 44].map(|at| u64_at(bytes, at));
        let operation = match (u32_at(bytes, 0) & 0x0f, fields) {
            (FETCH_ADD, [add, mask, _, _]) => AtomicOperation::FetchAdd { add, mask },
            (COMPARE_SWAP, [swap, swap_mask, compare, compare_mask]) => {
                AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask }
            }
            _ => return Err(RdmapError::Opcode { opcode: super::Opcode::AtomicRequest as u8 }),
        };
        Ok(Self {
            operation,
            request: u32_at(bytes, 4),
            stag: Stag(u32_at(bytes, 8)),
            offset: u64_at(bytes, 12),
        })
    }
}

/// Atomic Response: the original value (RFC 7306, section 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// Identifier of the request.
    pub request: u32,
    /// Value before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Length of the header.
    pub const BYTES: usize = 12;

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.request.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.original.to_be_bytes());
        bytes
    }

    /// Decodes a message of exactly that length.
    ///
    /// # Errors
    ///
    /// [`RdmapError::Length`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RdmapError> {
        let bytes: &[u8; Self::BYTES] = exactly(bytes)?;
        Ok(Self { request: u32_at(bytes, 0), original: u64_at(bytes, 4) })
    }
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], RdmapError> {
    bytes.try_into().map_err(|_| RdmapError::Length { bytes: bytes.len(), expected: N })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
