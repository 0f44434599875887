//! Work requests and completions as C structures.

use std::slice;

use clearstream_iwarp::{
    stag::Stag,
    verbs::raw::{Completion, Data, Operation, ReceiveRequest, Segment, SendRequest},
    work::{Completed, Remote, Segments, Status},
};

use crate::{error::Refusal, memory::rights, pointers::list};

/// Into the peer's next posted receive.
pub const IWARP_SEND: u32 = 0;
/// Into the peer's memory.
pub const IWARP_WRITE: u32 = 1;
/// Out of the peer's memory, into one segment.
pub const IWARP_READ: u32 = 2;
/// Eight bytes beside the data.
pub const IWARP_IMMEDIATE: u32 = 3;
/// Adds to eight bytes of the peer's memory and brings back what was there.
pub const IWARP_FETCH_ADD: u32 = 4;
/// Swaps eight bytes of the peer's memory if they compare equal, and brings
/// back what was there.
pub const IWARP_COMPARE_SWAP: u32 = 5;
/// Gives a window the range of one segment, for this queue pair.
pub const IWARP_BIND_WINDOW_TO: u32 = 6;
/// Makes a steering tag of this side invalid.
pub const IWARP_LOCAL_INVALIDATE: u32 = 7;
/// Only in completions: a Send of the peer's arrived.
pub const IWARP_RECEIVE: u32 = 8;
/// Only in completions: immediate data of the peer's arrived.
pub const IWARP_RECEIVE_IMMEDIATE: u32 = 9;

/// A completion is wanted also when the request succeeds.
pub const IWARP_SIGNALED: u32 = 1;
/// Waits until all earlier Reads and atomics are complete.
pub const IWARP_FENCE: u32 = 2;
/// Send and Immediate: wakes a peer that asked for solicited completions.
pub const IWARP_SOLICITED: u32 = 4;
/// Send and Write: segments are plain memory, copied while they are posted.
pub const IWARP_INLINE: u32 = 8;
/// Send: invalidate_stag of the peer is made invalid on delivery. Read: so is
/// the tag of the segment, once the data is there.
pub const IWARP_INVALIDATE: u32 = 16;

/// Done.
pub const IWARP_SUCCESS: u32 = 0;
/// A local segment is not what its tag allows.
pub const IWARP_LOCAL_PROTECTION: u32 = 1;
/// The message was longer than the posted receive.
pub const IWARP_LOCAL_LENGTH: u32 = 2;
/// The local request can not be carried out in this state of the tag.
pub const IWARP_LOCAL_OPERATION: u32 = 3;
/// The window could not be bound.
pub const IWARP_WINDOW_BIND: u32 = 4;
/// The peer refused access to its memory.
pub const IWARP_REMOTE_ACCESS: u32 = 5;
/// The peer refused the operation.
pub const IWARP_REMOTE_OPERATION: u32 = 6;
/// The queue pair left the state in which requests are carried out.
pub const IWARP_FLUSHED: u32 = 7;

/// In completions: `immediate` is set.
pub const IWARP_HAS_IMMEDIATE: u32 = 1;
/// In completions: `invalidated_stag` is set.
pub const IWARP_HAS_INVALIDATED: u32 = 2;
/// In completions: the peer asked for attention.
pub const IWARP_WAS_SOLICITED: u32 = 4;

/// A piece of local memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_segment {
    /// Tagged offset of its first byte; with IWARP_INLINE a plain address.
    pub address: u64,
    /// Its length in bytes.
    pub length: u32,
    /// Its steering tag; not used with IWARP_INLINE.
    pub stag: u32,
}

/// A request of the send queue. What an operation does not use is not looked
/// at; all zero is a Send of nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_send_request {
    /// Comes back in the completion.
    pub id: u64,
    /// IWARP_SEND to IWARP_LOCAL_INVALIDATE.
    pub operation: u32,
    /// IWARP_SIGNALED, IWARP_FENCE, IWARP_SOLICITED, IWARP_INLINE,
    /// IWARP_INVALIDATE.
    pub flags: u32,
    /// What is gathered or filled, in order. Read, atomics and bind take one.
    pub segments: *const iwarp_segment,
    /// How many segments.
    pub segment_count: usize,
    /// Write, Read, atomics: where in the peer's memory.
    pub remote_address: u64,
    /// Write, Read, atomics: the peer's steering tag.
    pub remote_stag: u32,
    /// Send with IWARP_INVALIDATE: the peer's tag. Local invalidate: this
    /// side's. Bind: the window's.
    pub stag: u32,
    /// Bind: rights of the window.
    pub access: u32,
    /// Immediate: the bytes, in the order of the wire.
    pub immediate: [u8; 8],
    /// Fetch and add: what is added. Compare and swap: what must be there.
    pub compare_or_add: u64,
    /// Fetch and add: bits that are the most significant of a field of their
    /// own (0: one number of 64 bits). Compare and swap: which bits are
    /// compared.
    pub compare_or_add_mask: u64,
    /// Compare and swap: what comes in its place.
    pub swap: u64,
    /// Compare and swap: which bits are swapped.
    pub swap_mask: u64,
}

/// A request of a receive queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_receive_request {
    /// Comes back in the completion.
    pub id: u64,
    /// Filled in order.
    pub segments: *const iwarp_segment,
    /// How many segments.
    pub segment_count: usize,
}

/// How a request ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_completion {
    /// The request's.
    pub id: u64,
    /// Whose request: iwarp_queue_pair_id().
    pub queue_pair: u32,
    /// What it was: IWARP_SEND to IWARP_RECEIVE_IMMEDIATE.
    pub operation: u32,
    /// IWARP_SUCCESS, or why not. Of a request that failed only `id`,
    /// `queue_pair`, `operation` and this are set.
    pub status: u32,
    /// Bytes sent, read or received.
    pub bytes: u32,
    /// IWARP_HAS_IMMEDIATE, IWARP_HAS_INVALIDATED, IWARP_WAS_SOLICITED.
    pub flags: u32,
    /// A tag of this side that the peer's Send made invalid.
    pub invalidated_stag: u32,
    /// Immediate data that arrived.
    pub immediate: [u8; 8],
}

/// A request as the verbs have it.
///
/// # Safety
/// The request's lists are what they say; with IWARP_INLINE its segments are
/// memory that may be read.
pub(crate) unsafe fn send_request(request: &iwarp_send_request) -> Result<SendRequest, Refusal> {
    // SAFETY: the caller's.
    let segments = unsafe { list(request.segments, request.segment_count, "segments")? };
    let flag = |bit: u32| request.flags & bit != 0;
    let remote = Remote { stag: Stag(request.remote_stag), address: request.remote_address };
    let tag = Stag(request.stag);
    // SAFETY: the caller's.
    let data = || unsafe { data(segments, flag(IWARP_INLINE)) };
    let operation = match request.operation {
        IWARP_SEND => Operation::Send {
            data: data()?,
            solicited: flag(IWARP_SOLICITED),
            invalidate: flag(IWARP_INVALIDATE).then_some(tag),
        },
        IWARP_WRITE => Operation::Write { data: data()?, remote },
        IWARP_READ => Operation::Read { sink: one(segments)?, remote, invalidate: flag(IWARP_INVALIDATE) },
        IWARP_IMMEDIATE => Operation::Immediate { data: request.immediate, solicited: flag(IWARP_SOLICITED) },
        IWARP_FETCH_ADD => Operation::FetchAdd {
            sink: one(segments)?,
            remote,
            add: request.compare_or_add,
            mask: request.compare_or_add_mask,
        },
        IWARP_COMPARE_SWAP => Operation::CompareSwap {
            sink: one(segments)?,
            remote,
            compare: request.compare_or_add,
            compare_mask: request.compare_or_add_mask,
            swap: request.swap,
            swap_mask: request.swap_mask,
        },
        IWARP_BIND_WINDOW_TO => {
            Operation::BindWindow { window: tag, memory: one(segments)?, access: rights(request.access)? }
        }
        IWARP_LOCAL_INVALIDATE => Operation::LocalInvalidate { stag: tag },
        other => {
            return Err(Refusal::argument(format!("`operation` is {other}: no request of a send queue")));
        }
    };
    Ok(SendRequest { id: request.id, operation, signaled: flag(IWARP_SIGNALED), fence: flag(IWARP_FENCE) })
}

/// A receive as the verbs have it.
///
/// # Safety
/// The request's list is what it says.
pub(crate) unsafe fn receive_request(request: &iwarp_receive_request) -> Result<ReceiveRequest, Refusal> {
    // SAFETY: the caller's.
    let segments = unsafe { list(request.segments, request.segment_count, "segments")? };
    Ok(ReceiveRequest { id: request.id, segments: gathered(segments) })
}

unsafe fn data(segments: &[iwarp_segment], inline: bool) -> Result<Data, Refusal> {
    if !inline {
        return Ok(Data::Gather(gathered(segments)));
    }
    let mut bytes = clearstream_iwarp::work::InlineData::new();
    for segment in segments.iter().filter(|segment| segment.length > 0) {
        let place = segment.address as usize as *const u8;
        if place.is_null() {
            return Err(Refusal::argument("address of an inline segment is NULL"));
        }
        // SAFETY: the caller's.
        bytes.extend_from_slice(unsafe { slice::from_raw_parts(place, segment.length as usize) });
    }
    Ok(Data::Inline(bytes))
}

fn gathered(segments: &[iwarp_segment]) -> Segments {
    segments.iter().map(segment).collect()
}

fn segment(of: &iwarp_segment) -> Segment {
    Segment { stag: Stag(of.stag), address: of.address, length: of.length }
}

fn one(segments: &[iwarp_segment]) -> Result<Segment, Refusal> {
    match segments {
        [only] => Ok(segment(only)),
        _ => Err(Refusal::argument(format!("{} segments: this operation takes one", segments.len()))),
    }
}

/// A completion as C has it.
pub(crate) fn completion(of: &Completion) -> iwarp_completion {
    let mut flags = 0;
    for (set, flag) in [
        (of.immediate.is_some(), IWARP_HAS_IMMEDIATE),
        (of.invalidated.is_some(), IWARP_HAS_INVALIDATED),
        (of.solicited, IWARP_WAS_SOLICITED),
    ] {
        flags |= if set { flag } else { 0 };
    }
    iwarp_completion {
        id: of.id,
        queue_pair: of.queue_pair.0,
        operation: match of.completed {
            Completed::Send => IWARP_SEND,
            Completed::Write => IWARP_WRITE,
            Completed::Read => IWARP_READ,
            Completed::Immediate => IWARP_IMMEDIATE,
            Completed::FetchAdd => IWARP_FETCH_ADD,
            Completed::CompareSwap => IWARP_COMPARE_SWAP,
            Completed::BindWindow => IWARP_BIND_WINDOW_TO,
            Completed::LocalInvalidate => IWARP_LOCAL_INVALIDATE,
            Completed::Receive => IWARP_RECEIVE,
            Completed::ReceiveImmediate => IWARP_RECEIVE_IMMEDIATE,
        },
        status: match of.status {
            Status::Success => IWARP_SUCCESS,
            Status::LocalProtection => IWARP_LOCAL_PROTECTION,
            Status::LocalLength => IWARP_LOCAL_LENGTH,
            Status::LocalOperation => IWARP_LOCAL_OPERATION,
            Status::WindowBind => IWARP_WINDOW_BIND,
            Status::RemoteAccess => IWARP_REMOTE_ACCESS,
            Status::RemoteOperation => IWARP_REMOTE_OPERATION,
            Status::Flushed => IWARP_FLUSHED,
        },
        bytes: of.bytes,
        flags,
        invalidated_stag: of.invalidated.unwrap_or_default().0,
        immediate: of.immediate.unwrap_or_default(),
    }
}
