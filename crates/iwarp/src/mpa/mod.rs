//! Marker PDU aligned framing for TCP (RFC 5044, with the set-up of RFC 6581):
//! the frames that open a connection and what they agree on, FPDUs with
//! markers and CRC32C, and how large an FPDU may be.

mod crc;
mod frame;
mod mulpdu;
mod negotiate;
mod setup;

pub use crc::Crc;
pub use frame::{Deframer, Framed, Framer, MARKER_SPACING};
pub use mulpdu::{fpdu_length, mulpdu};
pub use negotiate::{Agreed, Offer, Rtr, RtrKinds, conclude, initiate, refuse, respond};
pub use setup::{Enhanced, Kind, NOT_NEGOTIATED, PRIVATE_DATA_MAX, SetupFrame};

use crate::rdmap::ErrorCode;

/// What is wrong with the bytes of a set-up frame or of the stream of FPDUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpaError {
    /// The first sixteen bytes are not the key that was expected.
    #[error("the peer does not speak MPA: its first bytes are not \"{expected}\"")]
    Key {
        /// The text that should have been there.
        expected: &'static str,
    },
    /// More private data than a frame may carry.
    #[error("{length} bytes of private data: at most {most} fit in this frame")]
    PrivateData {
        /// How many were claimed or given.
        length: usize,
        /// How many are allowed.
        most: usize,
    },
    /// A revision that is not spoken here.
    #[error("MPA revision {revision}: only 1 and 2 are spoken here")]
    Revision {
        /// The peer's.
        revision: u8,
    },
    /// The reply speaks another revision than the request.
    #[error(
        "the reply has MPA revision {reply}, the request had {request}: connect again with revision {reply}"
    )]
    OtherRevision {
        /// Ours.
        request: u8,
        /// The peer's.
        reply: u8,
    },
    /// The enhanced bit and the private data do not fit together, or the
    /// reply's does not fit the request's.
    #[error("the enhanced set-up words of the frame are missing or out of place")]
    Enhanced,
    /// The responder said no.
    #[error("the peer rejected the connection")]
    Rejected {
        /// What it said beside.
        private_data: Vec<u8>,
    },
    /// A request must not have the reject bit.
    #[error("a request with the reject bit set")]
    RejectInRequest,
    /// Bytes behind a Request, which must wait for the Reply.
    #[error("the peer sent {bytes} bytes behind its Request without waiting for the Reply")]
    EarlyData {
        /// How many.
        bytes: usize,
    },
    /// The peer can not serve as many Reads as this side must have.
    #[error("the peer asks for {wanted} outstanding Reads, this side serves {have}")]
    InsufficientIrd {
        /// What the peer asks for.
        wanted: u16,
        /// What there is.
        have: u16,
    },
    /// No ready-to-receive message that both sides know.
    #[error("no ready-to-receive message suits both sides: offer a zero-length Write or Read")]
    NoMatchingRtr,
    /// The CRC of an FPDU does not match its bytes.
    #[error("the CRC of an FPDU is {received:#010x}, its bytes make {computed:#010x}")]
    Crc {
        /// As it stood in the stream.
        received: u32,
        /// As it should be.
        computed: u32,
    },
    /// A marker does not point to the beginning of the FPDU it is in.
    #[error("a marker points back {marker} bytes, the FPDU began {actual} bytes before it")]
    Marker {
        /// The marker's pointer.
        marker: u16,
        /// What it should be.
        actual: u16,
    },
}

impl MpaError {
    /// What a Terminate says of it (RFC 5044, section 8; RFC 6581, section 8).
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
