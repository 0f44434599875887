//! Work requests and completions: what a consumer asks of a queue pair and
//! what it hears back.

use smallvec::SmallVec;

use crate::stag::Stag;

/// A piece of registered local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its steering tag.
    pub stag: Stag,
    /// Tagged offset of its first byte (an address, or an offset into a
    /// zero-based region).
    pub address: u64,
    /// Its length in bytes.
    pub length: u32,
}

/// A place in the peer's memory, as the peer advertised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer's steering tag.
    pub stag: Stag,
    /// Tagged offset of the first byte.
    pub address: u64,
}

/// Segments of one request, in order.
pub type Segments = SmallVec<[Segment; 4]>;

/// Bytes copied into the request itself.
pub type InlineData = SmallVec<[u8; 64]>;

/// What a Send or Write carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Copied when it was posted; its memory is free again at once.
    Inline(InlineData),
    /// Gathered from registered memory while it is sent.
    Gather(Segments),
}

/// What a request of the send queue does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Into the peer's next posted receive (RFC 5040, section 5.3).
    Send {
        /// What is sent.
        data: Data,
        /// Wakes a peer that asked for solicited completions only.
        solicited: bool,
        /// A tag of the peer's that its RNIC invalidates on delivery.
        invalidate: Option<Stag>,
    },
    /// Into the peer's memory (RFC 5040, section 5.1).
    Write {
        /// What is written.
        data: Data,
        /// Where to.
        remote: Remote,
    },
    /// Out of the peer's memory (RFC 5040, section 5.2).
    Read {
        /// Where to.
        sink: Segment,
        /// Where from.
        remote: Remote,
        /// Invalidate the sink's tag once the data is there.
        invalidate: bool,
    },
    /// Eight bytes beside the data (RFC 7306, section 6).
    Immediate {
        /// The bytes, in the order of the wire.
        data: [u8; 8],
        /// Wakes a peer that asked for solicited completions only.
        solicited: bool,
    },
    /// Adds to eight bytes of the peer's memory and brings back what was
    /// there (RFC 7306, section 5.1).
    FetchAdd {
        /// Eight bytes for the original value, in native byte order.
        sink: Segment,
        /// Where, at a multiple of eight.
        remote: Remote,
        /// What is added.
        add: u64,
        /// A set bit is the most significant of a field that is added on its
        /// own; zero adds all 64 bits as one number.
        mask: u64,
    },
    /// Swaps eight bytes of the peer's memory if they compare equal, and
    /// brings back what was there (RFC 7306, section 5.2).
    CompareSwap {
        /// Eight bytes for the original value, in native byte order.
        sink: Segment,
        /// Where, at a multiple of eight.
        remote: Remote,
        /// What must be there.
        compare: u64,
        /// Which bits are compared.
        compare_mask: u64,
        /// What comes in its place.
        swap: u64,
        /// Which bits are swapped.
        swap_mask: u64,
    },
    /// Gives a memory window a range of a region, for this queue pair only.
    BindWindow {
        /// The window's tag.
        window: Stag,
        /// What it shows.
        memory: Segment,
        /// What a peer may do with it.
        access: crate::memory::Access,
    },
    /// Makes a tag of this RNIC invalid.
    LocalInvalidate {
        /// The tag.
        stag: Stag,
    },
}

/// A request of the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// A completion is wanted also when it succeeds.
    pub signaled: bool,
    /// Waits until all earlier Reads and atomics are complete.
    pub fence: bool,
}

/// A request of a receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Comes back in the completion.
    pub id: u64,
    /// Filled in order.
    pub segments: Segments,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Success,
    /// A local segment is not what its tag allows.
    LocalProtection,
    /// The message was longer than the posted receive, or a local length is
    /// out of range.
    LocalLength,
    /// The local request can not be carried out in this state of the tag.
    LocalOperation,
    /// The window could not be bound.
    WindowBind,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer refused the operation.
    RemoteOperation,
    /// The queue pair left the state in which requests are carried out.
    Flushed,
}

/// Which kind of request ended.
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
}

impl Operation {
    /// What its completion says that it was.
    #[must_use]
    pub fn completed(&self) -> Completed {
        match self {
            Self::Send { .. } => Completed::Send,
            Self::Write { .. } => Completed::Write,
            Self::Read { .. } => Completed::Read,
            Self::Immediate { .. } => Completed::Immediate,
            Self::FetchAdd { .. } => Completed::FetchAdd,
            Self::CompareSwap { .. } => Completed::CompareSwap,
            Self::BindWindow { .. } => Completed::BindWindow,
            Self::LocalInvalidate { .. } => Completed::LocalInvalidate,
        }
    }
}

/// What a completion queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's.
    pub id: u64,
    /// Whose request.
    pub queue_pair: crate::stag::QueuePairId,
    /// What it was.
    pub completed: Completed,
    /// How it ended.
    pub status: Status,
    /// Bytes sent, read or received.
    pub bytes: u32,
    /// Immediate data that arrived.
    pub immediate: Option<[u8; 8]>,
    /// A tag of ours that the peer's Send made invalid.
    pub invalidated: Option<Stag>,
    /// The peer asked for the consumer's attention.
    pub solicited: bool,
}

impl Completion {
    /// A place that a completion is polled into.
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
