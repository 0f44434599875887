//! Direct data placement (RFC 5041): the header of a segment.

use crate::rdmap::ErrorCode;
use crate::stag::Stag;

/// Bytes of a tagged header, control bytes included (RFC 5041, section 4.2).
pub const TAGGED_BYTES: usize = 14;
/// Bytes of an untagged header, control bytes included (RFC 5041, section 4.3).
pub const UNTAGGED_BYTES: usize = 18;

/// Protocol version (RFC 5041, section 4.1: DV is 1).
const VERSION: u8 = 1;
const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_BITS: u8 = 0x03;

/// The header of a DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Payload for a tagged buffer (RFC 5041, section 4.2).
    Tagged {
        /// Last segment of its message.
        last: bool,
        /// Steering tag of the buffer.
        stag: Stag,
        /// Tagged offset of the payload's first byte.
        offset: u64,
        /// RsvdULP byte: RDMAP's control byte.
        ulp: u8,
    },
    /// Payload for the next buffer of a queue (RFC 5041, section 4.3).
    Untagged {
        /// Last segment of its message.
        last: bool,
        /// Queue number (QN).
        queue: u32,
        /// Message sequence number (MSN) in that queue, from 1.
        msn: u32,
        /// Message offset (MO) of the payload's first byte.
        offset: u32,
        /// First RsvdULP byte: RDMAP's control byte.
        ulp: u8,
        /// Remaining four RsvdULP bytes: RDMAP's STag to invalidate.
        ulp_reserved: u32,
    },
}

/// Errors in a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DdpError {
    /// Unsupported protocol version.
    #[error("DDP version {version}: only version 1 is supported")]
    Version {
        /// Version in the peer's header.
        version: u8,
        /// Whether the segment is tagged.
        tagged: bool,
    },
    /// ULPDU shorter than its header.
    #[error("a DDP segment of {bytes} bytes is shorter than its header")]
    Short {
        /// Length of the ULPDU.
        bytes: usize,
    },
}

impl DdpError {
    /// Terminate code of this error (RFC 5041, section 7.2). The RFC defines
    /// none for a ULPDU shorter than its header; the MPA code for an invalid
    /// length is used, as Linux' siw does.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Version { tagged: true, .. } => ErrorCode::TaggedVersion,
            Self::Version { tagged: false, .. } => ErrorCode::UntaggedVersion,
            Self::Short { .. } => ErrorCode::MpaMarker,
        }
    }
}

impl Header {
    /// Returns the length of the header that begins with this control byte.
    #[must_use]
    pub fn length_of(control: u8) -> usize {
        if control & TAGGED != 0 { TAGGED_BYTES } else { UNTAGGED_BYTES }
    }

    /// Encodes the header; returns the buffer and the number of valid bytes in
    /// it.
    #[must_use]
    pub fn encode(&self) -> ([u8; UNTAGGED_BYTES], usize) {
        let mut bytes = [0; UNTAGGED_BYTES];
        let control = |tagged, last| VERSION | if tagged { TAGGED } else { 0 } | if last { LAST } else { 0 };
        match *self {
            Self::Tagged { last, stag, offset, ulp } => {
                bytes[0] = control(true, last);
                bytes[1] = ulp;
                bytes[2..6].copy_from_slice(&stag.0.to_be_bytes());
                bytes[6..14].copy_from_slice(&offset.to_be_bytes());
                (bytes, TAGGED_BYTES)
            }
            Self::Untagged { last, queue, msn, offset, ulp, ulp_reserved } => {
                bytes[0] = control(false, last);
                bytes[1] = ulp;
                bytes[2..6].copy_from_slice(&ulp_reserved.to_be_bytes());
                bytes[6..10].copy_from_slice(&queue.to_be_bytes());
                bytes[10..14].copy_from_slice(&msn.to_be_bytes());
                bytes[14..18].copy_from_slice(&offset.to_be_bytes());
                (bytes, UNTAGGED_BYTES)
            }
        }
    }

    /// Decodes the header at the beginning of a ULPDU and returns it with its
    /// length; `None` when more bytes are needed. The reserved bits of the
    /// control byte are not checked (RFC 5041, section 4.1).
    ///
    /// # Errors
    ///
    /// [`DdpError::Version`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DdpError> {
        let Some(&control) = bytes.first() else { return Ok(None) };
        let (tagged, last) = (control & TAGGED != 0, control & LAST != 0);
        let version = control & VERSION_BITS;
        if version != VERSION {
            return Err(DdpError::Version { version, tagged });
        }
        Ok(if tagged {
            bytes.first_chunk::<TAGGED_BYTES>().map(
                |&[_, ulp, s0, s1, s2, s3, o0, o1, o2, o3, o4, o5, o6, o7]| {
                    let stag = Stag(u32::from_be_bytes([s0, s1, s2, s3]));
                    let offset = u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
                    (Self::Tagged { last, stag, offset, ulp }, TAGGED_BYTES)
                },
            )
        } else {
            bytes.first_chunk::<UNTAGGED_BYTES>().map(|bytes| {
                let field =
                    |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                let (queue, msn, offset) = (field(6), field(10), field(14));
                (
                    Self::Untagged { last, queue, msn, offset, ulp: bytes[1], ulp_reserved: field(2) },
                    UNTAGGED_BYTES,
                )
            })
        })
    }

    /// Whether this is the last segment of its message.
    #[must_use]
    pub fn last(&self) -> bool {
        match *self {
            Self::Tagged { last, .. } | Self::Untagged { last, .. } => last,
        }
    }

    /// Returns RDMAP's control byte.
    #[must_use]
    pub fn ulp(&self) -> u8 {
        match *self {
            Self::Tagged { ulp, .. } | Self::Untagged { ulp, .. } => ulp,
        }
    }
}
