//! Queue pairs: create and destroy.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
};

use clearstream_iwarp::{
    rnic::{QueuePair, QueuePairOptions, VerbsError},
    verbs::{Attributes, State},
};

use crate::{
    abi::{
        IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPT_RC, ibv_cq, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_srq,
    },
    completion::Queue,
    context::context,
    device::{DEPTH_MAX, SEGMENTS_MAX},
    handle::{Handle, Users, allocate, locked, take},
    memory::domain,
    report::{not_offered, null},
    runtime::runtime,
    shared_receives::SharedReceives,
    statistics,
};

/// Maximum number of inline bytes of a request.
pub const INLINE_MAX: u32 = Attributes::MAX_INLINE_BYTES;
/// Inline bytes that every queue pair has: libfabric takes this number for its
/// injected messages, and rsocket needs four.
const INLINE_MIN: u32 = 256;

/// A queue pair of a program.
#[repr(C)]
pub struct Pair {
    /// What the program sees.
    pub abi: ibv_qp,
    /// Queue pair of the RNIC.
    pub pair: QueuePair,
    /// Every send generates a completion.
    pub signals_all: bool,
    /// The program moved it to the error state before it was connected.
    pub failed: AtomicBool,
    /// The program was notified that it takes no more from its shared receive
    /// queue.
    pub takes_no_more: AtomicBool,
    /// Capabilities, as reported.
    pub cap: ibv_qp_cap,
}

impl Pair {
    /// Whether its connection has ended, or never can be: requests are then
    /// flushed.
    pub fn has_ended(&self) -> bool {
        self.failed.load(Ordering::Acquire)
            || (self.pair.state() != State::Rts && self.pair.query().established.is_some())
    }
}

/// Creates a queue pair of type RC.
///
/// # Safety
/// [The contract of this library](crate#safety); `srq` of the options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, options: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's structure.
    let options = unsafe { &mut *options };
    match create(pd, options) {
        Ok(pair) => pair,
        Err(code) => null(code),
    }
}

fn create(pd: *mut ibv_pd, options: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp, c_int> {
    let runtime = runtime().ok_or(libc::EPERM)?;
    if options.qp_type != IBV_QPT_RC {
        return Err(not_offered("a queue pair of a type other than RC", "use type RC with rdma_cm"));
    }
    if pd.is_null() || options.send_cq.is_null() || options.recv_cq.is_null() {
        return Err(libc::EINVAL);
    }
    let cap = capabilities(&options.cap).ok_or(libc::EINVAL)?;
    // SAFETY: not NULL, and of the functions that create them.
    let pair = unsafe {
        let shared = options.srq.cast::<SharedReceives>().as_ref();
        let chosen = QueuePairOptions {
            send_completions: &queue(options.send_cq).watched.queue,
            receive_completions: &queue(options.recv_cq).watched.queue,
            shared_receives: shared.map(|shared| &shared.queue),
            send_depth: cap.max_send_wr.max(1),
            receive_depth: cap.max_recv_wr.max(1),
        };
        let pair = QueuePair::new(&domain(pd).domain, &chosen).map_err(|error| code(&error))?;
        users(pd, options.send_cq, options.recv_cq, options.srq).for_each(Users::add);
        pair
    };
    let number = pair.id().0;
    options.cap = cap;
    let abi = ibv_qp {
        context: context(),
        qp_context: options.qp_context,
        pd,
        send_cq: options.send_cq,
        recv_cq: options.recv_cq,
        srq: options.srq,
        handle: number,
        qp_num: number,
        state: AtomicI32::new(IBV_QPS_RESET),
        qp_type: IBV_QPT_RC,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let signals_all = options.sq_sig_all != 0;
    let pair = allocate(Pair {
        abi,
        pair,
        signals_all,
        failed: AtomicBool::new(false),
        takes_no_more: AtomicBool::new(false),
        cap,
    });
    locked(&runtime.connections).add_pair(number, Handle(pair));
    Ok(pair.cast())
}

/// Counters of the objects that a queue pair refers to.
///
/// # Safety
/// The objects exist for as long as what is returned is used; `shared` may be NULL.
unsafe fn users<'a>(
    pd: *mut ibv_pd,
    sends: *mut ibv_cq,
    receives: *mut ibv_cq,
    shared: *mut ibv_srq,
) -> impl Iterator<Item = &'a Users> {
    // SAFETY: of the functions that create them; they exist as long as the
    // queue pair, because they cannot be destroyed before it.
    unsafe {
        let shared = shared.cast::<SharedReceives>().as_ref().map(|shared| &shared.users);
        [&domain(pd).users, &queue(sends).watched.users, &queue(receives).watched.users]
            .into_iter()
            .chain(shared)
    }
}

/// # Safety
/// `queue` exists for as long as what is returned is used.
unsafe fn queue<'a>(queue: *mut ibv_cq) -> &'a Queue {
    // SAFETY: of `ibv_create_cq`.
    unsafe { &*queue.cast::<Queue>() }
}

fn code(error: &VerbsError) -> c_int {
    match error {
        VerbsError::System { .. } => libc::EMFILE,
        _ => libc::EINVAL,
    }
}

/// Returns the capabilities that are effective for those requested.
fn capabilities(requested: &ibv_qp_cap) -> Option<ibv_qp_cap> {
    let within = requested.max_send_wr <= DEPTH_MAX
        && requested.max_recv_wr <= DEPTH_MAX
        && requested.max_send_sge <= SEGMENTS_MAX
        && requested.max_recv_sge <= SEGMENTS_MAX
        && requested.max_inline_data <= INLINE_MAX;
    within.then(|| ibv_qp_cap { max_inline_data: requested.max_inline_data.max(INLINE_MIN), ..*requested })
}

/// Destroys a queue pair. Its connection, if any, is closed gracefully, so that
/// the peer receives what was sent; no completion follows.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(pair: *mut ibv_qp) -> c_int {
    let Some(runtime) = runtime() else { return libc::EPERM };
    let mut connections = locked(&runtime.connections);
    // SAFETY: of `ibv_create_qp`, and not used after this; the helper uses it
    // only while it holds the lock.
    let pair = unsafe { take(pair.cast::<Pair>()) };
    connections.remove_pair(pair.abi.qp_num);
    drop(connections);
    runtime.async_events.forget((&raw const *pair).cast_mut().cast(), "ibv_destroy_qp");
    // SAFETY: they exist as long as the queue pair.
    let (sends, receives) = unsafe { (queue(pair.abi.send_cq), queue(pair.abi.recv_cq)) };
    // Also those that were not polled: programs free what they refer to.
    sends.watched.retire(pair.pair.id());
    receives.watched.retire(pair.pair.id());
    if matches!(pair.pair.state(), State::Rts | State::Closing) {
        // Sends what is left, as far as the socket takes it.
        let _ = pair.pair.modify(State::Closing);
        let queues = [sends.watched.clone(), receives.watched.clone()];
        locked(&runtime.connections).linger(pair.pair.clone(), queues);
    }
    statistics::note(&runtime.settings, &pair.pair);
    // SAFETY: as above.
    unsafe { users(pair.abi.pd, pair.abi.send_cq, pair.abi.recv_cq, pair.abi.srq) }.for_each(Users::remove);
    0
}

/// Sets the state that the program sees, for connections of the connection
/// manager.
///
/// # Safety
/// `pair` exists: the caller holds the lock of the connections.
pub unsafe fn set_state(pair: Handle<Pair>, state: c_int) {
    // SAFETY: as required of the caller.
    unsafe { (*pair.0).abi.state.store(state, Ordering::Relaxed) };
}

/// Sets the error state.
///
/// # Safety
/// As for [`set_state`].
pub unsafe fn set_failed(pair: Handle<Pair>) {
    // SAFETY: as required of the caller.
    unsafe { set_state(pair, IBV_QPS_ERR) };
}
