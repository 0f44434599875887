//! Completion queues.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::Arc,
};

use clearstream_iwarp::{
    rnic::CompletionQueue,
    verbs::Notify,
    work::{Completed, Completion, Status},
};

use crate::{
    abi::{
        IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
        IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE,
        IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR, IBV_WC_SEND,
        IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR, ibv_comp_channel, ibv_context,
        ibv_cq, ibv_wc,
    },
    channel::Channel,
    context::context,
    device::COMPLETIONS_MAX,
    handle::{Handle, Pending, allocate, locked, take},
    helper::{self, Watched, next_token},
    report::{not_offered, null},
    runtime::{is_usable, runtime},
};

/// Completions that one poll of the RNIC's queue takes.
const BATCH: usize = 16;

/// A completion queue of a program.
#[repr(C)]
pub struct Queue {
    abi: ibv_cq,
    /// Queue of the RNIC, as the helper sees it.
    pub watched: Arc<Watched>,
    /// Events of its channel that the program has.
    pub pending: Arc<Pending>,
}

/// Creates a queue.
///
/// # Safety
/// [The contract of this library](crate#safety); `channel` may be NULL, `queue_context` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    _context: *mut ibv_context,
    capacity: c_int,
    queue_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let Some(runtime) = runtime() else { return null(libc::EPERM) };
    let room = u32::try_from(capacity).unwrap_or(0);
    if !(1..=COMPLETIONS_MAX).contains(&room) || vector != 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: NULL or of `ibv_create_comp_channel`.
    let events = unsafe { channel.cast::<Channel>().as_ref() };
    let token = next_token();
    let queue = match CompletionQueue::new(&runtime.rnic, room, token, events.map(|events| &events.channel)) {
        Ok(queue) => queue,
        Err(_) => return null(libc::EMFILE),
    };
    let abi = ibv_cq {
        context: context(),
        channel,
        cq_context: queue_context,
        handle: token as u32,
        cqe: capacity,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let watched = Arc::new(Watched::new(token, queue));
    runtime.helper.watch(&watched);
    let queue: *mut ibv_cq = allocate(Queue { abi, watched, pending: Arc::default() }).cast();
    locked(&runtime.connections).queues.insert(token, Handle(queue));
    if let Some(events) = events {
        events.add(token, Handle(queue));
    }
    queue
}

/// Destroys a queue.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    let Some(runtime) = runtime() else { return libc::EPERM };
    // SAFETY: of `ibv_create_cq`.
    let known = unsafe { &*queue.cast::<Queue>() };
    if known.watched.users.any() {
        return libc::EBUSY;
    }
    let token = known.watched.token;
    // SAFETY: NULL or of `ibv_create_comp_channel`, which its queues keep.
    if let Some(channel) = unsafe { known.abi.channel.cast::<Channel>().as_ref() } {
        channel.remove(token);
    }
    let mut connections = locked(&runtime.connections);
    connections.queues.remove(&token);
    if !connections.is_lingering(token) {
        runtime.helper.unwatch(token);
    }
    drop(connections);
    // No event follows; another thread may still work on one.
    known.pending.wait("ibv_destroy_cq");
    runtime.async_events.forget(queue.cast(), "ibv_destroy_cq");
    // SAFETY: as above, and not used after this.
    drop(unsafe { take(queue.cast::<Queue>()) });
    0
}

/// Resizing is not offered.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_resize_cq(_queue: *mut ibv_cq, _capacity: c_int) -> c_int {
    not_offered("ibv_resize_cq", "create the queue with its final size")
}

/// Polls up to `count` completions: `ibv_poll_cq`.
///
/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `count` completions.
pub unsafe extern "C" fn poll_cq(queue: *mut ibv_cq, count: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: of `ibv_create_cq`.
    let watched = unsafe { &(*queue.cast::<Queue>()).watched };
    if !is_usable() {
        return -libc::EPERM;
    }
    let count = usize::try_from(count).unwrap_or(0);
    let mut taken = 0;
    let mut batch = [Completion::EMPTY; BATCH];
    while taken < count {
        let room = (count - taken).min(BATCH);
        let Ok(polled) = watched.queue.poll(&mut batch[..room]) else { return -libc::EOVERFLOW };
        for completion in batch[..polled].iter().filter(|known| !watched.is_retired(known.queue_pair)) {
            // SAFETY: the caller's array has `count` entries.
            unsafe { into.add(taken).write(entry(completion)) };
            taken += 1;
        }
        if polled < room {
            break;
        }
    }
    if taken == 0 && watched.is_turn_of_others() {
        helper::drive_others();
    }
    taken as c_int
}

fn entry(completion: &Completion) -> ibv_wc {
    let (imm_data, wc_flags): (u32, c_uint) = match (completion.immediate, completion.invalidated) {
        (Some(bytes), _) => (u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]), IBV_WC_WITH_IMM),
        (None, Some(tag)) => (tag.0, IBV_WC_WITH_INV),
        (None, None) => (0, 0),
    };
    ibv_wc {
        wr_id: completion.id,
        status: status(completion.status),
        opcode: opcode(completion.completed),
        vendor_err: 0,
        byte_len: completion.bytes,
        imm_data,
        qp_num: completion.queue_pair.0,
        src_qp: 0,
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

fn status(status: Status) -> c_int {
    match status {
        Status::Success => IBV_WC_SUCCESS,
        Status::LocalProtection => IBV_WC_LOC_PROT_ERR,
        Status::LocalLength => IBV_WC_LOC_LEN_ERR,
        Status::LocalOperation => IBV_WC_LOC_QP_OP_ERR,
        Status::WindowBind => IBV_WC_MW_BIND_ERR,
        Status::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        Status::RemoteOperation => IBV_WC_REM_OP_ERR,
        Status::Flushed => IBV_WC_WR_FLUSH_ERR,
    }
}

fn opcode(completed: Completed) -> c_int {
    match completed {
        Completed::Send | Completed::Immediate => IBV_WC_SEND,
        Completed::Write => IBV_WC_RDMA_WRITE,
        Completed::Read => IBV_WC_RDMA_READ,
        Completed::FetchAdd => IBV_WC_FETCH_ADD,
        Completed::CompareSwap => IBV_WC_COMP_SWAP,
        Completed::BindWindow => IBV_WC_BIND_MW,
        Completed::LocalInvalidate => IBV_WC_LOCAL_INV,
        Completed::ReceiveWritten => IBV_WC_RECV_RDMA_WITH_IMM,
        Completed::Receive | Completed::ReceiveImmediate | Completed::ReceiveFull => IBV_WC_RECV,
    }
}

/// Arms the channel for the next completion: `ibv_req_notify_cq`.
///
/// # Safety
/// [The contract of this library](crate#safety).
pub unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: of `ibv_create_cq`.
    let watched = unsafe { &(*queue.cast::<Queue>()).watched };
    let notify = if solicited_only == 0 { Notify::Next } else { Notify::Solicited };
    if watched.queue.arm(notify).is_err() {
        return libc::EOVERFLOW;
    }
    0
}

/// Extended queues are not offered.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_qp_to_qp_ex(_pair: *mut c_void) -> *mut c_void {
    not_offered("ibv_wr_* posting", "post with ibv_post_send");
    ptr::null_mut()
}
