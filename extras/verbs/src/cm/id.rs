//! Identifiers of connections.

use std::{
    ffi::{c_int, c_void},
    net::SocketAddr,
    os::fd::OwnedFd,
    ptr,
    sync::Arc,
};

use clearstream_iwarp::{rnic::SocketOptions, verbs::Incoming};

use crate::{
    abi::{IBV_QPT_RC, ibv_pd, ibv_qp_init_attr, rdma_cm_id, rdma_event_channel, rdma_route},
    address,
    context::context,
    handle::{Handle, Pending, allocate, locked, take},
    helper::Attended,
    memory::ibv_alloc_pd,
    report::failed,
    runtime::{Runtime, runtime},
};

use super::{
    Connections,
    event::{EventChannel, forget, free_event, open_channel},
};

/// An identifier of a program.
#[repr(C)]
pub struct Id {
    /// What the program sees.
    pub abi: rdma_cm_id,
    /// What functions bound inside of librdmacm read (`cma_id_private`).
    tail: Tail,
    /// The rest, under the lock of the connections.
    pub inner: Inner,
}

/// The beginning of librdmacm's private part, the same from version 17 to 64,
/// and zeros behind it.
#[repr(C)]
struct Tail {
    /// NULL: the limits of queues come from ibv_query_device.
    device: *mut c_void,
    connect: *mut c_void,
    connect_length: usize,
    events_completed: c_int,
    connect_error: c_int,
    /// Not 0: calls wait for their events.
    sync: c_int,
    zeros: [u32; 119],
}

/// Progress of a connection: the states of the kernel's identifiers (`enum rdma_cm_state`), which decide what calls are
/// valid.
pub enum Stage {
    /// Created.
    Idle,
    /// Bound to a local address.
    Bound,
    /// The peer's address is resolved.
    Resolved,
    /// The route to it too.
    Routed,
    /// Listening, with its token.
    Listening(u64),
    /// A peer's request, to be accepted or rejected.
    Requested(Box<Incoming>),
    /// Setup in progress, with its token.
    Connecting(u64),
    /// Accepted; the initiator's first message is awaited, and read also while the program neither polls nor waits in a
    /// call.
    Accepting(Attended),
    /// Connected.
    Connected,
    /// The connection ended, or could not be established.
    Ended,
}

/// State of an identifier.
pub struct Inner {
    /// Progress.
    pub stage: Stage,
    /// Bound socket that reserves the port, until it listens or connects.
    pub reserved: Option<OwnedFd>,
    /// Bound address.
    pub local: Option<SocketAddr>,
    /// Peer's address.
    pub peer: Option<SocketAddr>,
    /// Only IPv6; otherwise as the kernel's default is.
    pub is_six_only: Option<bool>,
    /// Its port may be that of others that do not listen.
    pub shares_port: bool,
    /// Options of its connection's socket.
    pub socket: SocketOptions,
    /// Requests that may wait for the program to take their events.
    pub backlog: usize,
    /// Number of the queue pair that it is joined to.
    pub pair: Option<u32>,
    /// Outstanding Reads of the request: responder and initiator.
    pub reads: (u8, u8),
    /// Events of it that the program has.
    pub pending: Arc<Pending>,
    /// Domain and options of queue pairs for requests (`rdma_create_ep`).
    pub template: Option<(Handle<ibv_pd>, Template)>,
}

/// Options of queue pairs for requests.
pub struct Template(pub Option<ibv_qp_init_attr>);

// SAFETY: its pointers are of the program, as those of [`Handle`].
unsafe impl Send for Template {}

impl Id {
    /// Whether calls wait for their events.
    pub fn is_sync(&self) -> bool {
        self.tail.sync != 0
    }

    /// Sets addresses that programs read.
    pub fn set_addresses(&mut self, local: Option<SocketAddr>, peer: Option<SocketAddr>) {
        if let Some(local) = local {
            self.inner.local = Some(local);
            self.abi.route.src = address::storage(local);
        }
        if let Some(peer) = peer {
            self.inner.peer = Some(peer);
            self.abi.route.dst = address::storage(peer);
        }
    }

    /// Sets context and domain: once a local address is known.
    pub fn set_device(&mut self) {
        self.abi.verbs = context();
        self.abi.port_num = 1;
        if self.abi.pd.is_null() {
            self.abi.pd = common_domain();
        }
    }
}

/// The domain of identifiers for which a program allocates none.
fn common_domain() -> *mut ibv_pd {
    static COMMON: std::sync::OnceLock<Handle<ibv_pd>> = std::sync::OnceLock::new();
    COMMON.get_or_init(|| Handle(ibv_alloc_pd(ptr::null_mut()))).0
}

/// Allocates an identifier with a channel.
pub fn allocate_id(
    channel: *mut rdma_event_channel,
    id_context: *mut c_void,
    ps: c_int,
    sync: bool,
) -> *mut Id {
    // SAFETY: all zero is an address of no family.
    let none: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let route = rdma_route { src: none, dst: none, ib: [0; 5], path_rec: ptr::null_mut(), num_paths: 0 };
    let abi = rdma_cm_id {
        verbs: ptr::null_mut(),
        channel,
        context: id_context,
        qp: ptr::null_mut(),
        route,
        ps,
        port_num: 0,
        event: ptr::null_mut(),
        send_cq_channel: ptr::null_mut(),
        send_cq: ptr::null_mut(),
        recv_cq_channel: ptr::null_mut(),
        recv_cq: ptr::null_mut(),
        srq: ptr::null_mut(),
        pd: ptr::null_mut(),
        qp_type: IBV_QPT_RC,
    };
    let tail = Tail {
        device: ptr::null_mut(),
        connect: ptr::null_mut(),
        connect_length: 0,
        events_completed: 0,
        connect_error: 0,
        sync: sync.into(),
        zeros: [0; 119],
    };
    let inner = Inner {
        stage: Stage::Idle,
        reserved: None,
        local: None,
        peer: None,
        is_six_only: None,
        shares_port: false,
        socket: SocketOptions::default(),
        backlog: 0,
        pair: None,
        reads: (0, 0),
        pending: Arc::default(),
        template: None,
    };
    allocate(Id { abi, tail, inner })
}

/// Creates an identifier; without a channel its calls wait.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `channel` may be NULL, `id_context` is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    id_context: *mut c_void,
    ps: c_int,
) -> c_int {
    if runtime().is_none() {
        return failed(libc::ENODEV);
    }
    let sync = channel.is_null();
    let channel = if sync { open_channel() } else { channel };
    if channel.is_null() {
        return failed(libc::EMFILE);
    }
    // SAFETY: the caller's variable.
    unsafe { id.write(allocate_id(channel, id_context, ps, sync).cast()) };
    0
}

/// Destroys an identifier: ends its setup or connection.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    let id: Handle<Id> = Handle(id.cast());
    // SAFETY: of this library, and not used after this.
    unsafe {
        end(runtime, &mut locked(&runtime.connections), id);
        // No event follows; another thread may still work on one.
        let pending = (*id.0).inner.pending.clone();
        pending.wait("rdma_destroy_id");
        free(&mut locked(&runtime.connections), id);
    }
    0
}

/// Destroys an identifier of which the program has no event.
///
/// # Safety
/// It is of this library, and not used after this.
pub unsafe fn destroy(runtime: &Runtime, connections: &mut Connections, id: Handle<Id>) {
    // SAFETY: as required of the caller.
    unsafe {
        end(runtime, connections, id);
        free(connections, id);
    }
}

/// Ends the setup or connection of an identifier: no event follows.
///
/// # Safety
/// As for [`destroy`], but `id` still exists afterwards.
unsafe fn end(runtime: &Runtime, connections: &mut Connections, id: Handle<Id>) {
    // SAFETY: as required of the caller of `destroy`.
    let known = unsafe { &mut *id.0 };
    match std::mem::replace(&mut known.inner.stage, Stage::Ended) {
        Stage::Listening(token) | Stage::Connecting(token) => {
            if let Some(setup) = connections.setups.remove(&token) {
                runtime.helper.unwatch_setup(setup.descriptor());
            }
        }
        Stage::Requested(incoming) => {
            // The peer would try again with an older revision after a close
            // without a reply.
            let _ = incoming.reject(&[]);
        }
        _ => {}
    }
    if let Some(joined) = known.inner.pair.and_then(|number| connections.pairs.get_mut(&number)) {
        joined.id = None;
        known.inner.pair = None;
        // SAFETY: in the table, whose lock is held.
        let _ = unsafe { (*joined.pair.0).pair.modify(clearstream_iwarp::verbs::State::Closing) };
    }
    // SAFETY: the event of the last call that waited, if any; the channel
    // exists.
    unsafe {
        free_event(std::mem::replace(&mut known.abi.event, ptr::null_mut()).cast());
        forget(runtime, connections, known.abi.channel, id);
    }
}

/// Frees an identifier that was ended. The caller holds the lock.
///
/// # Safety
/// As for [`destroy`], after [`end`].
unsafe fn free(_connections: &mut Connections, id: Handle<Id>) {
    // SAFETY: as required of the caller of `destroy`; nothing refers to it, and
    // its own channel is not used by others.
    unsafe {
        let known = take(id.0);
        if known.is_sync() {
            drop(take(known.abi.channel.cast::<EventChannel>()));
        }
    }
}

/// Moves an identifier to another channel, with its queued events; to one of
/// its own, for calls that wait, when `channel` is NULL.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `channel` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    let sync = channel.is_null();
    // SAFETY: of this library.
    if sync && unsafe { (*id.cast::<Id>()).is_sync() } {
        return failed(libc::EINVAL);
    }
    let channel = if sync { open_channel() } else { channel };
    if channel.is_null() {
        return failed(libc::EMFILE);
    }
    let _connections = locked(&runtime.connections);
    // SAFETY: of this library, as its channels are.
    unsafe {
        let known = &mut *id.cast::<Id>();
        let old = known.abi.channel.cast::<EventChannel>();
        (*old).move_events(Handle(id.cast()), &*channel.cast::<EventChannel>());
        if known.is_sync() {
            free_event(std::mem::replace(&mut known.abi.event, ptr::null_mut()).cast());
            drop(take(old));
        }
        known.abi.channel = channel;
        known.tail.sync = sync.into();
    }
    0
}
