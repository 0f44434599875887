//! Shared receive queues.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicU32, Ordering},
};

use clearstream_iwarp::{
    rnic::{ListError, SharedReceiveQueue},
    verbs::PostError,
};

use crate::{
    abi::{IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr},
    context::context,
    device::{DEPTH_MAX, SEGMENTS_MAX},
    handle::{Handle, Users, allocate, locked, take},
    helper::next_token,
    memory::domain,
    post::receive_requests,
    report::{not_offered, null},
    runtime::{is_usable, runtime},
};

/// A shared receive queue of a program.
#[repr(C)]
pub struct SharedReceives {
    abi: ibv_srq,
    /// Queue of the RNIC.
    pub queue: SharedReceiveQueue,
    token: u64,
    depth: u32,
    segments: u32,
    limit: AtomicU32,
    /// Queue pairs that receive from it.
    pub users: Users,
}

/// Creates a queue.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, options: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    let Some(runtime) = runtime() else { return null(libc::EPERM) };
    // SAFETY: the caller's structure.
    let options = unsafe { &mut *options };
    let depth = options.attr.max_wr;
    if !(1..=DEPTH_MAX).contains(&depth) || options.attr.max_sge > SEGMENTS_MAX {
        return null(libc::EINVAL);
    }
    let token = next_token();
    // SAFETY: of `ibv_alloc_pd`.
    let Ok(queue) = SharedReceiveQueue::new(&unsafe { domain(pd) }.domain, depth, token) else {
        return null(libc::EINVAL);
    };
    options.attr.max_sge = options.attr.max_sge.max(1);
    let abi = ibv_srq {
        context: context(),
        srq_context: options.srq_context,
        pd,
        handle: token as u32,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    // SAFETY: of `ibv_alloc_pd`.
    unsafe { domain(pd) }.users.add();
    let shared = allocate(SharedReceives {
        abi,
        queue,
        token,
        depth,
        segments: options.attr.max_sge,
        limit: AtomicU32::new(0),
        users: Users::default(),
    });
    locked(&runtime.connections).shared.insert(token, Handle(shared.cast()));
    shared.cast()
}

/// Destroys a queue that has no queue pairs.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(queue: *mut ibv_srq) -> c_int {
    let Some(runtime) = runtime() else { return libc::EPERM };
    // SAFETY: of `ibv_create_srq`.
    if unsafe { (*queue.cast::<SharedReceives>()).users.any() } {
        return libc::EBUSY;
    }
    // SAFETY: as above, and not used after this.
    let shared = unsafe { take(queue.cast::<SharedReceives>()) };
    // SAFETY: its domain exists as long as it does.
    unsafe { domain(shared.abi.pd) }.users.remove();
    locked(&runtime.connections).shared.remove(&shared.token);
    runtime.async_events.forget(queue.cast(), "ibv_destroy_srq");
    0
}

/// Arms the limit; the size is fixed.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    queue: *mut ibv_srq,
    attributes: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    if mask & IBV_SRQ_MAX_WR != 0 {
        return not_offered("resizing a shared receive queue", "create it with its final size");
    }
    // SAFETY: the caller's structures.
    let (shared, limit) = unsafe { (&*queue.cast::<SharedReceives>(), (*attributes).srq_limit) };
    if mask & IBV_SRQ_LIMIT != 0 {
        if limit > shared.depth {
            return libc::EINVAL;
        }
        shared.limit.store(limit, Ordering::Relaxed);
        shared.queue.set_limit(limit);
    }
    0
}

/// Fills the attributes.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(queue: *mut ibv_srq, into: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller's structures.
    unsafe {
        let shared = &*queue.cast::<SharedReceives>();
        let srq_limit = shared.limit.load(Ordering::Relaxed);
        into.write(ibv_srq_attr { max_wr: shared.depth, max_sge: shared.segments, srq_limit });
    }
    0
}

/// Posts receives: `ibv_post_srq_recv`.
///
/// # Safety
/// [The contract of this library](crate#safety); the list ends with NULL, and its lists of segments have as many
/// entries as they say; `bad` is written only on failure.
pub unsafe extern "C" fn post_srq_recv(
    queue: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    if !is_usable() {
        return libc::EPERM;
    }
    // SAFETY: of `ibv_create_srq`.
    let shared = unsafe { &*queue.cast::<SharedReceives>() };
    // SAFETY: the caller's list.
    let (requests, invalid) = unsafe { receive_requests(first, shared.segments) };
    let converted = requests.len();
    let (posted, code) = match (shared.queue.post(requests), invalid) {
        (Ok(()), None) => return 0,
        (Ok(()), Some(code)) => (converted, code),
        (Err(ListError { posted, error: PostError::Full }), _) => (posted, libc::ENOMEM),
        (Err(ListError { posted, .. }), _) => (posted, libc::EINVAL),
    };
    let mut at = first;
    for _ in 0..posted {
        // SAFETY: a request of the list.
        at = unsafe { (*at).next };
    }
    // SAFETY: the caller's variable.
    unsafe { bad.write(at) };
    code
}

/// Marks the limit as reached: it is disarmed.
///
/// # Safety
/// `queue` exists: the caller holds the lock of the connections.
pub unsafe fn disarm(queue: Handle<ibv_srq>) {
    // SAFETY: as required of the caller.
    unsafe { (*queue.0.cast::<SharedReceives>()).limit.store(0, Ordering::Relaxed) };
}
