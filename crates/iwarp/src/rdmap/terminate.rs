//! The Terminate message (RFC 5040, section 4.8).

use smallvec::SmallVec;

use super::{AtomicRequest, ErrorCode, Opcode, RdmapError, ReadRequest};
use crate::ddp::{Header, UNTAGGED_BYTES};

/// Length of the longest Terminate: control, segment length, DDP header and the
/// header of an atomic request.
pub const TERMINATE_MAX: usize = CONTROL_BYTES + LENGTH_BYTES + UNTAGGED_BYTES + AtomicRequest::BYTES;

const CONTROL_BYTES: usize = 4;
const LENGTH_BYTES: usize = 2;

const LENGTH_VALID: u8 = 0x80;
const DDP_INCLUDED: u8 = 0x40;
const RDMAP_INCLUDED: u8 = 0x20;

/// Headers of the faulty segment quoted by a Terminate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quoted {
    /// Length of the segment with its DDP header (bit M).
    pub segment_length: Option<u16>,
    /// DDP header, 14 or 18 bytes; empty if absent (bit D).
    pub ddp: SmallVec<[u8; UNTAGGED_BYTES]>,
    /// Header of the Read Request or, from a peer that quotes these, of the
    /// Atomic Request; empty if absent (bit R).
    pub rdmap: SmallVec<[u8; AtomicRequest::BYTES]>,
}

/// Terminate message: the error that ends a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// Error.
    pub error: ErrorCode,
    /// Quoted headers of the faulty segment.
    pub quoted: Quoted,
}

impl Terminate {
    /// Creates a Terminate for an error in a received segment, from the length
    /// of its ULPDU, its DDP header, and the header of its Read Request (else
    /// empty). The error determines what is quoted (RFC 5040, figure 10):
    /// nothing for errors of the lower layer protocol and local catastrophic
    /// ones, everything with the Read Request for remote protection errors,
    /// length and DDP header for all others. Of an Atomic Request only the DDP
    /// header is quoted (RFC 7306, section 8.1).
    #[must_use]
    pub fn about(error: ErrorCode, ulpdu: u16, ddp: &[u8], request: &[u8]) -> Self {
        let mut quoted = Quoted::default();
        let [layer, kind, _] = error.numbers();
        if layer < 2 && kind != 0 {
            quoted.segment_length = Some(ulpdu);
            quoted.ddp = SmallVec::from_slice(ddp);
            if [layer, kind] == [0, 1] && request.len() == ReadRequest::BYTES {
                quoted.rdmap = SmallVec::from_slice(request);
            }
        }
        Self { error, quoted }
    }

    /// Creates a Terminate for an error without a faulty segment.
    #[must_use]
    pub fn alone(error: ErrorCode) -> Self {
        Self { error, quoted: Quoted::default() }
    }

    /// Encodes the message, without the DDP header.
    #[must_use]
    pub fn encode(&self) -> SmallVec<[u8; TERMINATE_MAX]> {
        let [layer, kind, code] = self.error.numbers();
        let Quoted { segment_length, ddp, rdmap } = &self.quoted;
        let included = [
            (segment_length.is_some(), LENGTH_VALID),
            (!ddp.is_empty(), DDP_INCLUDED),
            (!rdmap.is_empty(), RDMAP_INCLUDED),
        ];
        let bits = included.into_iter().fold(0, |bits, (set, bit)| if set { bits | bit } else { bits });
        let mut bytes = SmallVec::new();
        bytes.extend_from_slice(&[layer << 4 | kind & 0x0f, code, bits, 0]);
        // The length field is present when anything follows; bit M marks it as
        // valid.
        if bits != 0 {
            bytes.extend_from_slice(&segment_length.unwrap_or(0).to_be_bytes());
        }
        bytes.extend_from_slice(ddp);
        bytes.extend_from_slice(rdmap);
        bytes
    }

    /// Decodes a message. Quoted headers are taken as far as present; the error
    /// is valid also when they are truncated.
    ///
    /// # Errors
    ///
    /// [`RdmapError::Length`] when the control field is incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Self, RdmapError> {
        let short = RdmapError::Length { bytes: bytes.len(), expected: CONTROL_BYTES };
        let (&[first, code, bits, _], rest) = bytes.split_first_chunk::<CONTROL_BYTES>().ok_or(short)?;
        let (error, bits) = control([first, code, bits]);
        Ok(Self { error, quoted: Quoted::decode(bits, rest).unwrap_or_default() })
    }
}

/// Decodes the error and the bits of a control field. Linux' siw uses C bit
/// fields, which on little-endian machines swaps layer and type, and puts bits
/// M, D and R at the other end of their byte. The standard requires zeros there
/// (RFC 5040, section 4.8), so a Terminate that quotes any header reveals its
/// layout; one that quotes none and has an undefined error is decoded in siw's
/// layout if that gives a defined one.
fn control([first, code, bits]: [u8; 3]) -> (ErrorCode, u8) {
    const INCLUDED: u8 = LENGTH_VALID | DDP_INCLUDED | RDMAP_INCLUDED;
    let [high, low] = [first >> 4, first & 0x0f];
    let [standard, mirrored] = [[high, low, code], [low, high, code]].map(ErrorCode::from_numbers);
    let known = |error: &ErrorCode| !matches!(error, ErrorCode::Unknown { .. });
    if bits & INCLUDED != 0 {
        (standard, bits)
    } else if bits.reverse_bits() & INCLUDED != 0 {
        (mirrored, bits.reverse_bits())
    } else if known(&mirrored) && !known(&standard) {
        (mirrored, 0)
    } else {
        (standard, 0)
    }
}

impl Quoted {
    fn decode(bits: u8, bytes: &[u8]) -> Option<Self> {
        let mut quoted = Self::default();
        let (&length, mut rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
        quoted.segment_length = (bits & LENGTH_VALID != 0).then_some(u16::from_be_bytes(length));
        if bits & DDP_INCLUDED != 0 {
            let (ddp, behind) = rest.split_at_checked(Header::length_of(*rest.first()?))?;
            (quoted.ddp, rest) = (SmallVec::from_slice(ddp), behind);
        }
        if bits & RDMAP_INCLUDED != 0 {
            let request = rest.get(..quoted.request_bytes())?;
            quoted.rdmap = SmallVec::from_slice(request);
        }
        Some(quoted)
    }

    /// Returns the header length of the request that the quoted DDP header
    /// announces.
    fn request_bytes(&self) -> usize {
        match self.ddp.get(1).map(|control| Opcode::decode(*control)) {
            Some(Ok(Opcode::AtomicRequest)) => AtomicRequest::BYTES,
            _ => ReadRequest::BYTES,
        }
    }
}
