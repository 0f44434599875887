//! Posting: `ibv_post_send` and `ibv_post_recv`.

use std::{ffi::c_int, slice};

use clearstream_iwarp::{
    rnic::ListError,
    stag::Stag,
    verbs::PostError,
    work::{Completed, Data, InlineData, Operation, ReceiveRequest, Remote, Segment, Segments, SendRequest},
};
use smallvec::SmallVec;

use crate::{
    abi::{
        IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_qp,
        ibv_recv_wr, ibv_send_wr, ibv_sge,
    },
    device::MESSAGE_MAX,
    queue_pair::Pair,
    report::not_offered,
    runtime::is_usable,
};

/// Requests of one list, in order.
type List<T> = SmallVec<[T; 2]>;

/// Returns the `number`-th request of a list.
macro_rules! nth {
    ($first:expr, $number:expr) => {{
        let mut at = $first;
        for _ in 0..$number {
            // SAFETY: requests of a valid list, as many as were converted.
            at = unsafe { (*at).next };
        }
        at
    }};
}

fn code(error: PostError) -> c_int {
    match error {
        PostError::Full => libc::ENOMEM,
        // As siw answers it.
        PostError::NoImmediateData => {
            not_offered("immediate data to a peer other than ClearStream", "send it in a message");
            libc::EINVAL
        }
        _ => libc::EINVAL,
    }
}

/// Posts sends up to the first that is rejected.
///
/// # Safety
/// [The contract of this library](crate#safety); the list ends with NULL, its lists of segments have as many entries
/// as they say, and inline data is readable during the call; `bad` is written only on failure.
pub unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: of `ibv_create_qp`.
    let pair = unsafe { &*pair.cast::<Pair>() };
    let mut requests = List::new();
    let mut invalid = if is_usable() { None } else { Some(libc::EPERM) };
    let mut next = first;
    while !next.is_null() && invalid.is_none() {
        // SAFETY: a request of the caller's list.
        match unsafe { send_request(&*next, pair) } {
            Ok(request) => requests.push(request),
            Err(code) => invalid = Some(code),
        }
        // SAFETY: as above.
        next = unsafe { (*next).next };
    }
    let converted = requests.len();
    let (posted, code) = if pair.has_ended() {
        requests
            .iter()
            .for_each(|request| pair.pair.complete_flushed(request.id, request.operation.completed()));
        (converted, 0)
    } else {
        post_connected(pair, requests)
    };
    let code = if posted == converted { invalid.unwrap_or(code) } else { code };
    if code != 0 {
        let rejected = nth!(first, posted);
        // SAFETY: the caller's variable.
        unsafe { bad.write(rejected) };
    }
    code
}

/// Posts to a queue pair that is connected, or was when it was checked; returns
/// the number of posted requests and the code of the rejected one.
fn post_connected(pair: &Pair, requests: List<SendRequest>) -> (usize, c_int) {
    let count = requests.len();
    let names: List<(u64, Completed)> =
        requests.iter().map(|request| (request.id, request.operation.completed())).collect();
    match pair.pair.post_sends(requests) {
        Ok(()) => (count, 0),
        Err(ListError { posted, error: PostError::NotConnected }) if pair.has_ended() => {
            names[posted..].iter().for_each(|(id, completed)| pair.pair.complete_flushed(*id, *completed));
            (count, 0)
        }
        Err(ListError { posted, error }) => (posted, code(error)),
    }
}

/// Posts receives up to the first that is rejected.
///
/// # Safety
/// [The contract of this library](crate#safety); the list ends with NULL, and its lists of segments have as many
/// entries as they say; `bad` is written only on failure.
pub unsafe extern "C" fn post_recv(
    pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: of `ibv_create_qp`.
    let pair = unsafe { &*pair.cast::<Pair>() };
    // SAFETY: the caller's list.
    let (requests, invalid) = unsafe { receive_requests(first, pair.cap.max_recv_sge) };
    let ids: List<u64> = requests.iter().map(|request| request.id).collect();
    let flush = |ids: &[u64]| {
        ids.iter().for_each(|id| pair.pair.complete_flushed(*id, Completed::Receive));
        0
    };
    let (posted, code) = if !is_usable() {
        (0, libc::EPERM)
    } else if pair.has_ended() {
        (ids.len(), flush(&ids))
    } else {
        match pair.pair.post_receives(requests) {
            Ok(()) => (ids.len(), 0),
            Err(ListError { posted, error: PostError::NotConnected }) => (ids.len(), flush(&ids[posted..])),
            Err(ListError { posted, error }) => (posted, code(error)),
        }
    };
    let code = if posted == ids.len() { invalid.unwrap_or(code) } else { code };
    if code != 0 {
        let rejected = nth!(first, posted);
        // SAFETY: the caller's variable.
        unsafe { bad.write(rejected) };
    }
    code
}

/// Converts a list of receives, up to the first with more segments than the queue has: its code.
///
/// # Safety
/// `next` is NULL or a valid list.
pub unsafe fn receive_requests(
    mut next: *mut ibv_recv_wr,
    segments_max: u32,
) -> (List<ReceiveRequest>, Option<c_int>) {
    let mut requests = List::new();
    // SAFETY: as required of the caller.
    while let Some(request) = unsafe { next.as_ref() } {
        if !is_within(request.num_sge, segments_max) {
            return (requests, Some(libc::EINVAL));
        }
        // SAFETY: as required of the caller.
        let segments = unsafe { segments(request.sg_list, request.num_sge) };
        requests.push(ReceiveRequest { id: request.wr_id, segments });
        next = request.next;
    }
    (requests, None)
}

/// Whether a number of segments is one that a queue has.
fn is_within(count: c_int, max: u32) -> bool {
    u32::try_from(count).is_ok_and(|count| count <= max)
}

/// # Safety
/// `list` is NULL or has `count` entries, for as long as what is returned is used.
unsafe fn entries<'a>(list: *mut ibv_sge, count: c_int) -> &'a [ibv_sge] {
    match usize::try_from(count) {
        // SAFETY: a list of the caller.
        Ok(count @ 1..) if !list.is_null() => unsafe { slice::from_raw_parts(list, count) },
        _ => &[],
    }
}

/// # Safety
/// `list` is NULL or has `count` entries.
unsafe fn segments(list: *mut ibv_sge, count: c_int) -> Segments {
    // SAFETY: a list of the caller.
    let entries = unsafe { entries(list, count) };
    entries
        .iter()
        .map(|entry| Segment { stag: Stag(entry.lkey), address: entry.addr, length: entry.length })
        .collect()
}

/// Copies inline data out of the program's memory.
///
/// # Safety
/// `list` is NULL or has `count` entries, which name readable memory.
unsafe fn inline_data(list: *mut ibv_sge, count: c_int, max: u32) -> Result<InlineData, c_int> {
    let mut bytes = InlineData::new();
    // SAFETY: a list of the caller.
    for entry in unsafe { entries(list, count) } {
        if bytes.len() + entry.length as usize > max as usize {
            return Err(libc::EINVAL);
        }
        if entry.length > 0 {
            let from = std::ptr::with_exposed_provenance(entry.addr as usize);
            // SAFETY: ibv_post_send(3): inline data is read during the call.
            bytes.extend_from_slice(unsafe { slice::from_raw_parts(from, entry.length as usize) });
        }
    }
    Ok(bytes)
}

/// Whether a message is longer than the port's longest.
///
/// # Safety
/// The list of the request is valid.
unsafe fn is_too_long(request: &ibv_send_wr) -> bool {
    // SAFETY: a list of the caller.
    let entries = unsafe { entries(request.sg_list, request.num_sge) };
    entries.iter().map(|entry| u64::from(entry.length)).sum::<u64>() > MESSAGE_MAX.into()
}

/// # Safety
/// The list of the request is valid; inline data is readable.
unsafe fn data(request: &ibv_send_wr, inline_max: u32) -> Result<Data, c_int> {
    // SAFETY: a list of the caller.
    unsafe {
        if request.send_flags & IBV_SEND_INLINE != 0 {
            return inline_data(request.sg_list, request.num_sge, inline_max).map(Data::Inline);
        }
        Ok(Data::Gather(segments(request.sg_list, request.num_sge)))
    }
}

/// # Safety
/// The list of the request is valid.
unsafe fn sink(request: &ibv_send_wr) -> Result<Segment, c_int> {
    // SAFETY: a list of the caller.
    let segments = unsafe { segments(request.sg_list, request.num_sge) };
    match &segments[..] {
        [one] => Ok(*one),
        [] => Ok(Segment { stag: Stag::default(), address: 0, length: 0 }),
        _ => Err(libc::EINVAL),
    }
}

/// # Safety
/// The list of the request is valid; inline data is readable.
unsafe fn send_request(request: &ibv_send_wr, pair: &Pair) -> Result<SendRequest, c_int> {
    let inline_max = pair.cap.max_inline_data;
    // SAFETY: a list of the caller.
    if !is_within(request.num_sge, pair.cap.max_send_sge) || unsafe { is_too_long(request) } {
        return Err(libc::EINVAL);
    }
    let solicited = request.send_flags & IBV_SEND_SOLICITED != 0;
    // SAFETY: the caller filled the member of the union that the operation has;
    // all of its bytes are numbers.
    let (rdma, atomic) = unsafe { (request.wr.rdma, request.wr.atomic) };
    let remote = Remote { stag: Stag(rdma.rkey), address: rdma.remote_addr };
    let target = Remote { stag: Stag(atomic.rkey), address: atomic.remote_addr };
    // SAFETY: lists of the caller.
    let operation = unsafe {
        match request.opcode {
            IBV_WR_SEND => Operation::Send { data: data(request, inline_max)?, solicited, invalidate: None },
            IBV_WR_SEND_WITH_INV => {
                let invalidate = Some(Stag(request.imm_data));
                Operation::Send { data: data(request, inline_max)?, solicited, invalidate }
            }
            IBV_WR_SEND_WITH_IMM => {
                let immediate = request.imm_data.to_ne_bytes();
                Operation::SendImmediate { data: data(request, inline_max)?, immediate, solicited }
            }
            IBV_WR_RDMA_WRITE_WITH_IMM => {
                let immediate = request.imm_data.to_ne_bytes();
                Operation::WriteImmediate { data: data(request, inline_max)?, remote, immediate, solicited }
            }
            IBV_WR_RDMA_WRITE => Operation::Write { data: data(request, inline_max)?, remote },
            IBV_WR_RDMA_READ => Operation::Read { sink: sink(request)?, remote, invalidate: false },
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                Operation::FetchAdd { sink: sink(request)?, remote: target, add: atomic.compare_add, mask: 0 }
            }
            IBV_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
                sink: sink(request)?,
                remote: target,
                compare: atomic.compare_add,
                compare_mask: u64::MAX,
                swap: atomic.swap,
                swap_mask: u64::MAX,
            },
            IBV_WR_LOCAL_INV => Operation::LocalInvalidate { stag: Stag(request.imm_data) },
            _ => {
                not_offered("an operation that iWARP does not have", "use Send, RDMA Write and RDMA Read");
                return Err(libc::EOPNOTSUPP);
            }
        }
    };
    Ok(SendRequest {
        id: request.wr_id,
        operation,
        signaled: pair.signals_all || request.send_flags & IBV_SEND_SIGNALED != 0,
        fence: request.send_flags & IBV_SEND_FENCE != 0,
    })
}
