//! Work requests and completions of a queue pair.

use smallvec::SmallVec;

use crate::stag::Stag;

/// A range of registered local memory (scatter/gather element).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Steering tag.
    pub stag: Stag,
    /// Tagged offset of its first byte (an address, or an offset into a
    /// zero-based region).
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
}

/// A location in the peer's memory, as advertised by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer's steering tag.
    pub stag: Stag,
    /// Tagged offset of the first byte.
    pub address: u64,
}

/// Scatter/gather list of one request, in order.
pub type Segments = SmallVec<[Segment; 4]>;

/// Bytes copied into the request itself.
pub type InlineData = SmallVec<[u8; 64]>;

/// Payload of a Send or Write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Copied when posted; the source memory is reusable at once.
    Inline(InlineData),
    /// Gathered from registered memory while it is sent.
    Gather(Segments),
}

/// Operation of a send work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends to the peer's next posted receive (RFC 5040, section 5.3).
    Send {
        /// Payload.
        data: Data,
        /// Notifies a peer that waits for solicited completions only.
        solicited: bool,
        /// STag of the peer, invalidated by its RNIC on delivery.
        invalidate: Option<Stag>,
    },
    /// Writes to the peer's memory (RFC 5040, section 5.1).
    Write {
        /// Payload.
        data: Data,
        /// Destination.
        remote: Remote,
    },
    /// Sends with immediate data, on a connection whose ends both offer that
    /// ([`Established::immediate_data`](crate::rnic::Established)).
    SendImmediate {
        /// Payload.
        data: Data,
        /// Immediate data, as the peer's completion has it.
        immediate: [u8; 4],
        /// Notifies a peer that waits for solicited completions only.
        solicited: bool,
    },
    /// Writes with immediate data, which consumes a receive of the peer's when the Write is complete, on a connection as
    /// for [`Operation::SendImmediate`].
    WriteImmediate {
        /// Payload.
        data: Data,
        /// Destination.
        remote: Remote,
        /// Immediate data, as the peer's completion has it.
        immediate: [u8; 4],
        /// Notifies a peer that waits for solicited completions only.
        solicited: bool,
    },
    /// Reads from the peer's memory (RFC 5040, section 5.2).
    Read {
        /// Destination.
        sink: Segment,
        /// Source.
        remote: Remote,
        /// Invalidate the sink's STag when the data has arrived.
        invalidate: bool,
    },
    /// Eight bytes of immediate data (RFC 7306, section 6), on a connection whose ends do not both offer it with Sends
    /// and Writes.
    Immediate {
        /// The bytes, in network order.
        data: [u8; 8],
        /// Notifies a peer that waits for solicited completions only.
        solicited: bool,
    },
    /// Adds to eight bytes of the peer's memory and returns their original
    /// value (RFC 7306, section 5.1).
    FetchAdd {
        /// Eight bytes for the original value, in native byte order.
        sink: Segment,
        /// Target, aligned to eight bytes.
        remote: Remote,
        /// Value to add.
        add: u64,
        /// A set bit is the most significant of a field that is added
        /// separately; zero adds all 64 bits as one number.
        mask: u64,
    },
    /// Swaps eight bytes of the peer's memory if they compare equal, and
    /// returns their original value (RFC 7306, section 5.2).
    CompareSwap {
        /// Eight bytes for the original value, in native byte order.
        sink: Segment,
        /// Target, aligned to eight bytes.
        remote: Remote,
        /// Expected value.
        compare: u64,
        /// Bits to compare.
        compare_mask: u64,
        /// New value.
        swap: u64,
        /// Bits to swap.
        swap_mask: u64,
    },
    /// Binds a memory window to a range of a region, for this queue pair only.
    BindWindow {
        /// STag of the window.
        window: Stag,
        /// Range to bind.
        memory: Segment,
        /// Rights granted to the peer.
        access: crate::memory::Access,
    },
    /// Invalidates an STag of this RNIC.
    LocalInvalidate {
        /// STag to invalidate.
        stag: Stag,
    },
}

/// Send work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Returned in the completion.
    pub id: u64,
    /// Operation.
    pub operation: Operation,
    /// Generates a completion also on success.
    pub signaled: bool,
    /// Starts after all earlier Reads and atomics are complete.
    pub fence: bool,
}

/// Receive work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Returned in the completion.
    pub id: u64,
    /// Scatter list, filled in order.
    pub segments: Segments,
}

/// Status of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Completed successfully.
    Success,
    /// The STag of a local segment does not allow the access.
    LocalProtection,
    /// The message was longer than the posted receive, or a local length is out
    /// of range.
    LocalLength,
    /// The local operation is invalid in the current state of the STag.
    LocalOperation,
    /// The window could not be bound.
    WindowBind,
    /// The peer denied access to its memory.
    RemoteAccess,
    /// The peer rejected the operation.
    RemoteOperation,
    /// Flushed: the queue pair left the state in which requests are processed.
    Flushed,
}

/// Operation of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// A Send.
    Send,
    /// A Write.
    Write,
    /// A Read.
    Read,
    /// Immediate data sent.
    Immediate,
    /// A fetch and add.
    FetchAdd,
    /// A compare and swap.
    CompareSwap,
    /// A window was bound.
    BindWindow,
    /// A tag was made invalid.
    LocalInvalidate,
    /// A Send of the peer's arrived.
    Receive,
    /// Immediate data of the peer's arrived.
    ReceiveImmediate,
    /// A Write of the peer's with immediate data arrived.
    ReceiveWritten,
    /// The memory of a receive is full and its message goes on, of a queue pair whose receives extend: the consumer
    /// names more.
    ReceiveFull,
}

impl Operation {
    /// Returns the operation that its completion reports.
    #[must_use]
    pub fn completed(&self) -> Completed {
        match self {
            Self::Send { .. } | Self::SendImmediate { .. } => Completed::Send,
            Self::Write { .. } | Self::WriteImmediate { .. } => Completed::Write,
            Self::Read { .. } => Completed::Read,
            Self::Immediate { .. } => Completed::Immediate,
            Self::FetchAdd { .. } => Completed::FetchAdd,
            Self::CompareSwap { .. } => Completed::CompareSwap,
            Self::BindWindow { .. } => Completed::BindWindow,
            Self::LocalInvalidate { .. } => Completed::LocalInvalidate,
        }
    }
}

/// Completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Identifier of the request.
    pub id: u64,
    /// Queue pair of the request.
    pub queue_pair: crate::stag::QueuePairId,
    /// Operation.
    pub completed: Completed,
    /// Status.
    pub status: Status,
    /// Bytes sent, read or received, or written by the peer.
    pub bytes: u32,
    /// Received immediate data; that of a Send or Write is in the last four bytes.
    pub immediate: Option<[u8; 8]>,
    /// Local STag that the peer's Send invalidated.
    pub invalidated: Option<Stag>,
    /// Whether the peer requested a solicited event.
    pub solicited: bool,
}

impl Completion {
    /// Placeholder for polling into.
    pub const EMPTY: Self = Self {
        id: 0,
        queue_pair: crate::stag::QueuePairId(0),
        completed: Completed::Send,
        status: Status::Success,
        bytes: 0,
        immediate: None,
        invalidated: None,
        solicited: false,
    };
}
