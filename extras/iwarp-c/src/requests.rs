//! Work requests and completions as C structures.

use std::slice;

use clearstream_iwarp::{
    stag::Stag,
    verbs::raw::{Completion, Data, Operation, ReceiveRequest, Segment, SendRequest},
    work::{Completed, Remote, Segments, Status},
};

use crate::{error::CallError, memory::rights, pointers::list};

/// Sends to the peer's next posted receive.
pub const IWARP_SEND: u32 = 0;
/// Writes to the peer's memory.
pub const IWARP_WRITE: u32 = 1;
/// Reads from the peer's memory, into one segment.
pub const IWARP_READ: u32 = 2;
/// Eight bytes of immediate data.
pub const IWARP_IMMEDIATE: u32 = 3;
/// Adds to eight bytes of the peer's memory and returns their original value.
pub const IWARP_FETCH_ADD: u32 = 4;
/// Swaps eight bytes of the peer's memory if they compare equal, and returns
/// their original value.
pub const IWARP_COMPARE_SWAP: u32 = 5;
/// Binds a window to the range of one segment, for this queue pair.
pub const IWARP_BIND_WINDOW_TO: u32 = 6;
/// Invalidates a local steering tag.
pub const IWARP_LOCAL_INVALIDATE: u32 = 7;
/// Only in completions: a Send of the peer was received.
pub const IWARP_RECEIVE: u32 = 8;
/// Only in completions: immediate data of the peer was received.
pub const IWARP_RECEIVE_IMMEDIATE: u32 = 9;

/// Generates a completion also when the request succeeds.
pub const IWARP_SIGNALED: u32 = 1;
/// Starts after all earlier Reads and atomics are complete.
pub const IWARP_FENCE: u32 = 2;
/// Send and Immediate: notifies a peer that waits for solicited completions.
pub const IWARP_SOLICITED: u32 = 4;
/// Send and Write: segments are plain memory, copied when posted.
pub const IWARP_INLINE: u32 = 8;
/// Send: invalidate_stag of the peer is invalidated on delivery. Read: the tag
/// of the segment is invalidated when the data has arrived.
pub const IWARP_INVALIDATE: u32 = 16;

/// Completed successfully.
pub const IWARP_SUCCESS: u32 = 0;
/// The tag of a local segment does not allow the access.
pub const IWARP_LOCAL_PROTECTION: u32 = 1;
/// The message was longer than the posted receive.
pub const IWARP_LOCAL_LENGTH: u32 = 2;
/// The local operation is invalid in the current state of the tag.
pub const IWARP_LOCAL_OPERATION: u32 = 3;
/// The window could not be bound.
pub const IWARP_WINDOW_BIND: u32 = 4;
/// The peer denied access to its memory.
pub const IWARP_REMOTE_ACCESS: u32 = 5;
/// The peer rejected the operation.
pub const IWARP_REMOTE_OPERATION: u32 = 6;
/// Flushed: the queue pair left the state in which requests are processed.
pub const IWARP_FLUSHED: u32 = 7;

/// In completions: `immediate` is set.
pub const IWARP_HAS_IMMEDIATE: u32 = 1;
/// In completions: `invalidated_stag` is set.
pub const IWARP_HAS_INVALIDATED: u32 = 2;
/// In completions: the peer requested a solicited event.
pub const IWARP_WAS_SOLICITED: u32 = 4;

/// A range of local memory (scatter/gather element).
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

/// Send work request. Members that an operation does not use are ignored; all
/// zero is a zero-length Send.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_send_request {
    /// Returned in the completion.
    pub id: u64,
    /// IWARP_SEND to IWARP_LOCAL_INVALIDATE.
    pub operation: u32,
    /// IWARP_SIGNALED, IWARP_FENCE, IWARP_SOLICITED, IWARP_INLINE,
    /// IWARP_INVALIDATE.
    pub flags: u32,
    /// Scatter/gather list, in order. Read, atomics and bind take one segment.
    pub segments: *const iwarp_segment,
    /// Number of segments.
    pub segment_count: usize,
    /// Write, Read, atomics: address in the peer's memory.
    pub remote_address: u64,
    /// Write, Read, atomics: the peer's steering tag.
    pub remote_stag: u32,
    /// Send with IWARP_INVALIDATE: the peer's tag. Local invalidate: the local
    /// tag. Bind: the window's.
    pub stag: u32,
    /// Bind: rights of the window.
    pub access: u32,
    /// Immediate: the bytes, in network order.
    pub immediate: [u8; 8],
    /// Fetch and add: value to add. Compare and swap: expected value.
    pub compare_or_add: u64,
    /// Fetch and add: most significant bits of separately added fields (0: one
    /// number of 64 bits). Compare and swap: bits to compare.
    pub compare_or_add_mask: u64,
    /// Compare and swap: new value.
    pub swap: u64,
    /// Compare and swap: bits to swap.
    pub swap_mask: u64,
}

/// Receive work request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_receive_request {
    /// Returned in the completion.
    pub id: u64,
    /// Scatter list, filled in order.
    pub segments: *const iwarp_segment,
    /// Number of segments.
    pub segment_count: usize,
}

/// Completion queue entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_completion {
    /// Identifier of the request.
    pub id: u64,
    /// Queue pair of the request: iwarp_queue_pair_id().
    pub queue_pair: u32,
    /// Operation: IWARP_SEND to IWARP_RECEIVE_IMMEDIATE.
    pub operation: u32,
    /// IWARP_SUCCESS, or the error. Of a failed request only `id`,
    /// `queue_pair`, `operation` and this are set.
    pub status: u32,
    /// Bytes sent, read or received.
    pub bytes: u32,
    /// IWARP_HAS_IMMEDIATE, IWARP_HAS_INVALIDATED, IWARP_WAS_SOLICITED.
    pub flags: u32,
    /// Local tag that the peer's Send invalidated.
    pub invalidated_stag: u32,
    /// Received immediate data.
    pub immediate: [u8; 8],
}

/// Converts a send work request.
///
/// # Safety
/// The lists of the request are valid; with IWARP_INLINE its segments are
/// readable memory.
pub(crate) unsafe fn send_request(request: &iwarp_send_request) -> Result<SendRequest, CallError> {
    // SAFETY: upheld by the caller.
    let segments = unsafe { list(request.segments, request.segment_count, "segments")? };
    let flag = |bit: u32| request.flags & bit != 0;
    let remote = Remote { stag: Stag(request.remote_stag), address: request.remote_address };
    let tag = Stag(request.stag);
    // SAFETY: upheld by the caller.
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
            return Err(CallError::argument(format!("`operation` is {other}: no request of a send queue")));
        }
    };
    Ok(SendRequest { id: request.id, operation, signaled: flag(IWARP_SIGNALED), fence: flag(IWARP_FENCE) })
}

/// Converts a receive work request.
///
/// # Safety
/// The list of the request is valid.
pub(crate) unsafe fn receive_request(request: &iwarp_receive_request) -> Result<ReceiveRequest, CallError> {
    // SAFETY: upheld by the caller.
    let segments = unsafe { list(request.segments, request.segment_count, "segments")? };
    Ok(ReceiveRequest { id: request.id, segments: gathered(segments) })
}

/// # Safety
/// With `inline` the segments name readable memory.
unsafe fn data(segments: &[iwarp_segment], inline: bool) -> Result<Data, CallError> {
    if !inline {
        return Ok(Data::Gather(gathered(segments)));
    }
    let mut bytes = clearstream_iwarp::work::InlineData::new();
    for segment in segments.iter().filter(|segment| segment.length > 0) {
        let place = segment.address as usize as *const u8;
        if place.is_null() {
            return Err(CallError::argument("address of an inline segment is NULL"));
        }
        // SAFETY: upheld by the caller.
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

fn one(segments: &[iwarp_segment]) -> Result<Segment, CallError> {
    match segments {
        [only] => Ok(segment(only)),
        _ => Err(CallError::argument(format!("{} segments: this operation takes one", segments.len()))),
    }
}

/// Converts a completion.
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
            // Extended receives, and immediate data with Writes, are not part of this interface.
            Completed::Receive | Completed::ReceiveFull => IWARP_RECEIVE,
            Completed::ReceiveImmediate | Completed::ReceiveWritten => IWARP_RECEIVE_IMMEDIATE,
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
