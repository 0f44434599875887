//! Remote direct memory access protocol (RFC 5040, with the extensions of RFC
//! 7306): operations, their headers, and error reporting.

mod code;
mod message;
mod terminate;

pub use code::ErrorCode;
pub use message::{
    AtomicOperation, AtomicRequest, AtomicResponse, BoundImmediate, IMMEDIATE_BYTES, ReadRequest,
};
pub use terminate::{Quoted, TERMINATE_MAX, Terminate};

use crate::ddp::Header;

/// Protocol version (RFC 5040, section 4.1: RV is 1).
const VERSION: u8 = 1;

/// Queues of the untagged model (RFC 5040, section 4.2; RFC 7306, section 4.2).
pub mod queue {
    /// Sends and immediate data.
    pub const SEND: u32 = 0;
    /// Read and atomic requests.
    pub const REQUEST: u32 = 1;
    /// Terminate messages.
    pub const TERMINATE: u32 = 2;
    /// Atomic responses.
    pub const ATOMIC_RESPONSE: u32 = 3;
}

/// RDMAP operation (RFC 5040, section 4.1; RFC 7306, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write: places data in the peer's memory.
    Write = 0,
    /// RDMA Read Request: requests data from the peer's memory.
    ReadRequest = 1,
    /// RDMA Read Response: carries the requested data.
    ReadResponse = 2,
    /// Send: delivers to the peer's next receive.
    Send = 3,
    /// Send with Invalidate: also invalidates an STag of the peer.
    SendInvalidate = 4,
    /// Send with Solicited Event: also notifies the peer's consumer.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate: the last message of a stream, reports an error.
    Terminate = 7,
    /// Immediate Data: eight bytes for the peer's consumer.
    Immediate = 8,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited = 9,
    /// Atomic Request: fetch and add or compare and swap.
    AtomicRequest = 10,
    /// Atomic Response: the original value.
    AtomicResponse = 11,
}

/// Errors in the RDMAP part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmapError {
    /// Unsupported protocol version.
    #[error("RDMAP version {version}: only version 1 is supported")]
    Version {
        /// Version in the peer's header.
        version: u8,
    },
    /// Undefined operation, or one in the wrong kind of segment or queue.
    #[error("unexpected RDMAP operation {opcode:#x}")]
    Opcode {
        /// Opcode in the peer's header.
        opcode: u8,
    },
    /// Request or Terminate of the wrong length.
    #[error("an RDMAP header of {bytes} bytes instead of {expected}")]
    Length {
        /// Received length.
        bytes: usize,
        /// Length required by the operation.
        expected: usize,
    },
}

impl RdmapError {
    /// Terminate code of this error (RFC 5040, section 7.2).
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

    /// Returns RDMAP's control byte (RFC 5040, section 4.1): version, two
    /// reserved bits, opcode.
    #[must_use]
    pub fn control(self) -> u8 {
        VERSION << 6 | self as u8
    }

    /// Decodes the operation of a control byte. The reserved bits are not
    /// checked.
    ///
    /// # Errors
    ///
    /// Unsupported version or undefined opcode.
    pub fn decode(control: u8) -> Result<Self, RdmapError> {
        let (version, opcode) = (control >> 6, control & 0x0f);
        if version != VERSION {
            return Err(RdmapError::Version { version });
        }
        Self::ALL.get(usize::from(opcode)).copied().ok_or(RdmapError::Opcode { opcode })
    }

    /// Decodes the operation of a segment and checks its kind and queue (RFC
    /// 5040, section 4.2; RFC 7306, section 4.2).
    ///
    /// # Errors
    ///
    /// As [`Opcode::decode`]; an operation in the wrong kind of segment is an
    /// unexpected opcode.
    pub fn of(header: &Header) -> Result<Self, RdmapError> {
        let opcode = Self::decode(header.ulp())?;
        let queue = match header {
            Header::Tagged { .. } => None,
            Header::Untagged { queue, .. } => Some(*queue),
        };
        if opcode.queue() == queue { Ok(opcode) } else { Err(RdmapError::Opcode { opcode: opcode as u8 }) }
    }

    /// Returns the queue of its messages; `None` for tagged messages.
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

    /// Whether it notifies the peer's consumer (RFC 5040, section 5.3; RFC
    /// 7306, section 6.3).
    #[must_use]
    pub fn solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited)
    }

    /// Whether it is immediate data (RFC 7306, section 6).
    #[must_use]
    pub fn is_immediate(self) -> bool {
        matches!(self, Self::Immediate | Self::ImmediateSolicited)
    }

    /// Whether the four reserved bytes of the header carry an STag to
    /// invalidate.
    #[must_use]
    pub fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}
