//! Remote direct memory access protocol (RFC 5040, with the extensions of RFC
//! 7306): operations, the headers they carry, and how an error is told.

mod code;
mod message;
mod terminate;

pub use code::ErrorCode;
pub use message::{AtomicOperation, AtomicRequest, AtomicResponse, IMMEDIATE_BYTES, ReadRequest};
pub use terminate::{Quoted, TERMINATE_MAX, Terminate};

use crate::ddp::Header;

/// The version of this protocol (RFC 5040, section 4.1: RV is 1).
const VERSION: u8 = 1;

/// Queues of the untagged model (RFC 5040, section 4.2; RFC 7306, section 4.2).
pub mod queue {
    /// Sends and immediate data.
    pub const SEND: u32 = 0;
    /// Read and atomic requests.
    pub const REQUEST: u32 = 1;
    /// Terminate.
    pub const TERMINATE: u32 = 2;
    /// Atomic responses.
    pub const ATOMIC_RESPONSE: u32 = 3;
}

/// What a message does (RFC 5040, section 4.1; RFC 7306, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Into the peer's memory.
    Write = 0,
    /// Asks for memory of the peer's.
    ReadRequest = 1,
    /// Brings it.
    ReadResponse = 2,
    /// Into the peer's next receive.
    Send = 3,
    /// The same, and a tag of the peer's becomes invalid.
    SendInvalidate = 4,
    /// The same as Send, and the peer's consumer is woken.
    SendSolicited = 5,
    /// Both.
    SendSolicitedInvalidate = 6,
    /// The last message of a stream: what went wrong.
    Terminate = 7,
    /// Eight bytes for the peer's consumer.
    Immediate = 8,
    /// The same, and it is woken.
    ImmediateSolicited = 9,
    /// Asks for a fetch and add or a compare and swap.
    AtomicRequest = 10,
    /// Brings what was there before.
    AtomicResponse = 11,
}

/// What is wrong with RDMAP's part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmapError {
    /// Another version of the protocol.
    #[error("RDMAP version {version}: only version 1 is spoken here")]
    Version {
        /// The peer's.
        version: u8,
    },
    /// An operation that nobody has defined, or one in the wrong kind of
    /// segment or queue.
    #[error("RDMAP operation {opcode:#x} is not expected in this place")]
    Opcode {
        /// The peer's.
        opcode: u8,
    },
    /// A request or Terminate that ends within its header, or goes on behind.
    #[error("an RDMAP header of {bytes} bytes, {wanted} were due")]
    Length {
        /// What came.
        bytes: usize,
        /// What the operation has.
        wanted: usize,
    },
}

impl RdmapError {
    /// What a Terminate says of it (RFC 5040, section 7.2).
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Version { .. } => ErrorCode::RdmapVersion,
            Self::Opcode { .. } => ErrorCode::UnexpectedOpcode,
            Self::Length { .. } => ErrorCode::OperationUnspecified,
        }
    }
}

impl Opcode {
    const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// RDMAP's control byte for it (RFC 5040, section 4.1): version, two
    /// reserved bits, opcode.
    #[must_use]
    pub fn control(self) -> u8 {
        VERSION << 6 | self as u8
    }

    /// The operation of a control byte. The reserved bits are not checked.
    ///
    /// # Errors
    ///
    /// Another version, or an opcode that nobody has defined.
    pub fn decode(control: u8) -> Result<Self, RdmapError> {
        let (version, opcode) = (control >> 6, control & 0x0f);
        if version != VERSION {
            return Err(RdmapError::Version { version });
        }
        Self::ALL.get(usize::from(opcode)).copied().ok_or(RdmapError::Opcode { opcode })
    }

    /// The operation of a segment, which must also be of the right kind and in
    /// the right queue (RFC 5040, section 4.2; RFC 7306, section 4.2).
    ///
    /// # Errors
    ///
    /// As [`Opcode::decode`]; an operation in the wrong kind of segment is
    /// unexpected.
    pub fn of(header: &Header) -> Result<Self, RdmapError> {
        let opcode = Self::decode(header.ulp())?;
        let queue = match header {
            Header::Tagged { .. } => None,
            Header::Untagged { queue, .. } => Some(*queue),
        };
        if opcode.queue() == queue { Ok(opcode) } else { Err(RdmapError::Opcode { opcode: opcode as u8 }) }
    }

    /// The queue of its messages; `None` for the tagged ones.
    #[must_use]
    pub fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::Immediate
            | Self::ImmediateSolicited => Some(queue::SEND),
            Self::ReadRequest | Self::AtomicRequest => Some(queue::REQUEST),
            Self::Terminate => Some(queue::TERMINATE),
            Self::AtomicResponse => Some(queue::ATOMIC_RESPONSE),
        }
    }

    /// The peer's consumer is woken (RFC 5040, section 5.3; RFC 7306, section 6.3).
    #[must_use]
    pub fn solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited)
    }

    /// The four reserved bytes of the header name a tag to invalidate.
    #[must_use]
    pub fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}
