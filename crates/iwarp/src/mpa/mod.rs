//! Marker PDU aligned framing for TCP (RFC 5044, with the connection setup of
//! RFC 6581): setup frames and their negotiation, FPDUs with markers and
//! CRC32C, and the maximum FPDU size.

mod crc;
mod frame;
mod mulpdu;
mod negotiate;
mod setup;

pub use crc::Crc;
pub use frame::{Deframer, Framed, Framer};
pub use mulpdu::{fpdu_length, mulpdu};
pub use negotiate::{Negotiated, Offer, Rtr, RtrKinds, conclude, initiate, reject, respond};
pub use setup::{Enhanced, Kind, NOT_NEGOTIATED, PRIVATE_DATA_MAX, SetupFrame};

use crate::rdmap::ErrorCode;

/// Errors in a setup frame or in the stream of FPDUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpaError {
    /// The first sixteen bytes are not the expected key.
    #[error("the peer does not use MPA: its first bytes are not \"{expected}\"")]
    Key {
        /// Expected key.
        expected: &'static str,
    },
    /// Private data longer than a frame can carry.
    #[error("{length} bytes of private data: at most {max} fit in this frame")]
    PrivateData {
        /// Length in the frame or of the argument.
        length: usize,
        /// Maximum length.
        max: usize,
    },
    /// Unsupported revision.
    #[error("MPA revision {revision}: only 1 and 2 are supported")]
    Revision {
        /// The peer's revision.
        revision: u8,
    },
    /// The Reply's revision differs from the Request's.
    #[error("the reply has MPA revision {reply}, the request had {request}: reconnect with revision {reply}")]
    OtherRevision {
        /// Local revision.
        request: u8,
        /// The peer's revision.
        reply: u8,
    },
    /// The enhanced bit and the private data are inconsistent, or the Reply's
    /// differs from the Request's.
    #[error("the enhanced setup fields of the frame are missing or unexpected")]
    Enhanced,
    /// The responder rejected the connection.
    #[error("the peer rejected the connection")]
    Rejected {
        /// Private data of the rejection.
        private_data: Vec<u8>,
    },
    /// A Request with the reject bit set.
    #[error("a request with the reject bit set")]
    RejectInRequest,
    /// Data after a Request, before the Reply was sent.
    #[error("the peer sent {bytes} bytes after its Request without waiting for the Reply")]
    EarlyData {
        /// Number of bytes.
        bytes: usize,
    },
    /// The peer's ORD exceeds this side's IRD.
    #[error("the peer requests {requested} outstanding Reads, this side serves {available}")]
    InsufficientIrd {
        /// ORD requested by the peer.
        requested: u16,
        /// Local IRD.
        available: u16,
    },
    /// No ready-to-receive message supported by both sides.
    #[error("no common ready-to-receive message: offer a zero-length Write or Read")]
    NoMatchingRtr,
    /// CRC mismatch of an FPDU.
    #[error("the CRC of an FPDU is {received:#010x}, computed {computed:#010x}")]
    Crc {
        /// CRC in the stream.
        received: u32,
        /// Computed CRC.
        computed: u32,
    },
    /// A marker that does not point to the beginning of its FPDU.
    #[error("a marker points back {marker} bytes, the FPDU began {actual} bytes before it")]
    Marker {
        /// Pointer in the marker.
        marker: u16,
        /// Expected pointer.
        actual: u16,
    },
}

impl MpaError {
    /// Terminate code of this error (RFC 5044, section 8; RFC 6581, section 8).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Crc { .. } => ErrorCode::MpaCrc,
            Self::Marker { .. } => ErrorCode::MpaMarker,
            Self::InsufficientIrd { .. } => ErrorCode::MpaInsufficientIrd,
            Self::NoMatchingRtr => ErrorCode::MpaNoMatchingRtr,
            _ => ErrorCode::MpaInvalidSetup,
        }
    }
}
