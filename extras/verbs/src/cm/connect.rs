//! Connecting, listening, accepting, rejecting, disconnecting.

use std::{
    ffi::{c_int, c_void},
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    slice,
    sync::Arc,
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{AcceptOptions, ConnectOptions, Listener, State};

use crate::{
    abi::{IBV_QPS_RTS, RDMA_CM_EVENT_ESTABLISHED, rdma_cm_id, rdma_conn_param},
    device::READS_MAX,
    handle::{Handle, locked},
    helper::{Attended, next_token},
    queue_pair::{Pair, set_state},
    report::failed,
    runtime::{Runtime, runtime},
    sockets,
};

use super::{
    Connections,
    event::{Details, complete, push},
    id::{Id, Stage},
    resolve::bind,
    setup::{Plan, Setup, code_of, of_connection},
};

/// Value for as many outstanding Reads as the device has: `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH` of rdma_cma.h.
const OF_DEVICE: u8 = 0xff;
/// Time that a peer's program has to accept: servers prepare their memory between request and reply. Over InfiniBand it
/// is more than a minute too; a peer whose TCP is silent ends the setup sooner.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(120);
/// Backlog of a listener that names none, and the largest: `max_backlog` of the kernel's rdma_ucm.
const BACKLOG_MAX: c_int = 1024;

/// Outstanding Reads that a program asks for, or `otherwise`.
fn reads(requested: Option<u8>, otherwise: u8) -> Result<u16, c_int> {
    match requested {
        None | Some(OF_DEVICE) => Ok(otherwise.min(READS_MAX).into()),
        Some(reads) if reads <= READS_MAX => Ok(reads.into()),
        Some(_) => Err(libc::EINVAL),
    }
}

/// Copies private data of a program.
///
/// # Safety
/// `from` has `length` bytes.
unsafe fn bytes(from: *const c_void, length: u8) -> Vec<u8> {
    if from.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: as required of the caller.
    unsafe { slice::from_raw_parts(from.cast::<u8>(), length.into()) }.to_vec()
}

/// Joins an identifier to its queue pair, or to that of the parameters.
fn join(
    connections: &mut Connections,
    id: Handle<Id>,
    param: Option<&rdma_conn_param>,
) -> Result<Handle<Pair>, c_int> {
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &mut *id.0 };
    let number = if known.abi.qp.is_null() {
        param.map(|param| param.qp_num).ok_or(libc::EINVAL)?
    } else {
        // SAFETY: the identifier's queue pair.
        unsafe { (*known.abi.qp).qp_num }
    };
    let joined = connections.pairs.get_mut(&number).ok_or(libc::EINVAL)?;
    joined.id = Some(id);
    known.inner.pair = Some(number);
    Ok(joined.pair)
}

/// Starts a connection setup.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `param` may be NULL, and its private data has the length that it
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's identifier and parameters.
    unsafe {
        match connect(Handle(id.cast()), param.as_ref()) {
            Ok(()) => complete(id),
            Err(code) => failed(code),
        }
    }
}

fn connect(id: Handle<Id>, param: Option<&rdma_conn_param>) -> Result<(), c_int> {
    let runtime = runtime().ok_or(libc::EPERM)?;
    let mut connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &mut *id.0 };
    if !matches!(known.inner.stage, Stage::Routed) {
        return Err(libc::EINVAL);
    }
    let peer = known.inner.peer.ok_or(libc::EINVAL)?;
    let (ird, ord) = (
        reads(param.map(|param| param.responder_resources), READS_MAX)?,
        reads(param.map(|param| param.initiator_depth), READS_MAX)?,
    );
    let pair = join(&mut connections, id, param)?;
    // SAFETY: the caller's parameters.
    let private_data =
        param.map_or(Vec::new(), |param| unsafe { bytes(param.private_data, param.private_data_len) });
    let defaults = ConnectOptions::default();
    let options = ConnectOptions {
        private_data,
        ird,
        ord,
        crc: runtime.settings.crc,
        peer_to_peer: true,
        large_fpdus: true,
        immediate_data: true,
        local: known.inner.local,
        timeout: defaults.tcp_timeout + ACCEPTED_WITHIN,
        reply_timeout: ACCEPTED_WITHIN,
        socket: known.inner.socket,
        ..defaults
    };
    // The reserved port is bound by the connection's own socket.
    known.inner.reserved = None;
    // SAFETY: in the table, whose lock is held.
    let pair = unsafe { (*pair.0).pair.clone() };
    let plan = Plan { id, pair, peer, options, since: Instant::now() };
    let token = next_token();
    plan.start(runtime, &mut connections, token).map_err(|error| {
        sockets::note_failed(peer, &error);
        code_of(&error)
    })?;
    known.inner.stage = Stage::Connecting(token);
    Ok(())
}

/// Nothing is left to do: the peer knows that the connection is established. It is for identifiers without a queue pair.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    let _connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &*id.cast::<Id>() };
    if known.abi.qp.is_null() && matches!(known.inner.stage, Stage::Connected) {
        return 0;
    }
    failed(libc::EINVAL)
}

/// Listens on the bound address. As many requests as `backlog` says may wait for the program to take their events; others
/// are rejected.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let backlog = if (1..=BACKLOG_MAX).contains(&backlog) { backlog } else { BACKLOG_MAX };
    match listen(Handle(id.cast()), backlog as usize) {
        Ok(()) => 0,
        Err(code) => failed(code),
    }
}

fn listen(id: Handle<Id>, backlog: usize) -> Result<(), c_int> {
    let runtime = runtime().ok_or(libc::EPERM)?;
    let mut connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &mut *id.0 };
    if !matches!(known.inner.stage, Stage::Idle | Stage::Bound) {
        return Err(libc::EINVAL);
    }
    if known.inner.reserved.is_none() {
        let any = known.inner.local.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        bind(known, any).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
    }
    let socket = known.inner.reserved.take().ok_or(libc::EINVAL)?;
    let listener =
        Listener::from_bound(&runtime.rnic, socket, &known.inner.socket).map_err(|_| libc::EADDRINUSE)?;
    known.set_addresses(Some(listener.local_address()), None);
    known.inner.backlog = backlog;
    let token = next_token();
    runtime.helper.watch_setup(listener.as_fd(), token).map_err(|_| libc::EMFILE)?;
    known.inner.stage = Stage::Listening(token);
    connections.setups.insert(token, Setup::Listening(Arc::new(listener), id));
    Ok(())
}

/// Accepts a connection request.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `param` may be NULL, and its private data has the length that it
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's identifier and parameters.
    unsafe {
        match accept(Handle(id.cast()), param.as_ref()) {
            Ok(()) => complete(id),
            Err(code) => failed(code),
        }
    }
}

fn accept(id: Handle<Id>, param: Option<&rdma_conn_param>) -> Result<(), c_int> {
    let runtime: &Runtime = runtime().ok_or(libc::EPERM)?;
    let mut connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &mut *id.0 };
    if !matches!(known.inner.stage, Stage::Requested(_)) {
        return Err(libc::EINVAL);
    }
    let requested = known.inner.reads;
    let (responder, initiator) = (
        reads(param.map(|param| param.responder_resources), requested.0)?,
        reads(param.map(|param| param.initiator_depth), requested.1)?,
    );
    let pair = join(&mut connections, id, param)?;
    // SAFETY: the caller's parameters.
    let private_data =
        param.map_or(Vec::new(), |param| unsafe { bytes(param.private_data, param.private_data_len) });
    let options = AcceptOptions {
        private_data,
        // As many as the initiator asks for, as siw has it: it would end the connection otherwise (RFC 6581, section 4.3).
        ird: responder.max(requested.0.into()),
        ord: initiator,
        crc: runtime.settings.crc,
        socket: known.inner.socket,
        immediate_data: true,
        ..AcceptOptions::default()
    };
    let Stage::Requested(incoming) = std::mem::replace(&mut known.inner.stage, Stage::Ended) else {
        return Err(libc::EINVAL);
    };
    // SAFETY: in the table, whose lock is held.
    let established =
        unsafe { (*pair.0).pair.accept(*incoming, &options) }.map_err(|error| code_of(&error))?;
    // SAFETY: as above.
    unsafe { set_state(pair, IBV_QPS_RTS) };
    known.inner.reads = of_connection(&established);
    if established.peer_to_peer {
        // Connected when the initiator's first message arrives.
        known.inner.stage = Stage::Accepting(Attended::begin());
    } else {
        if let Some(number) = known.inner.pair {
            connections.add_responder(number);
        }
        known.inner.stage = Stage::Connected;
        push(id, RDMA_CM_EVENT_ESTABLISHED, 0, Details::with_reads(known.inner.reads));
    }
    Ok(())
}

/// Rejects a connection request.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `data` is NULL or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    let _connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock, and its data.
    let (known, data) = unsafe { (&mut *id.cast::<Id>(), bytes(data, length)) };
    match std::mem::replace(&mut known.inner.stage, Stage::Ended) {
        Stage::Requested(incoming) => match incoming.reject(&data) {
            Ok(()) => 0,
            Err(error) => failed(code_of(&error)),
        },
        other => {
            known.inner.stage = other;
            failed(libc::EINVAL)
        }
    }
}

/// Closes the connection gracefully: what was posted before is still sent. The
/// event follows when the peer has closed too.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    let connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &*id.cast::<Id>() };
    use Stage::{Bound, Idle, Listening, Resolved, Routed};
    if matches!(known.inner.stage, Idle | Bound | Resolved | Routed | Listening(_)) {
        return failed(libc::EINVAL);
    }
    let joined = known.inner.pair.and_then(|number| connections.pairs.get(&number));
    let Some(joined) = joined else { return 0 };
    // Ended already: nothing is left to close.
    // SAFETY: in the table, whose lock is held.
    let _ = unsafe { (*joined.pair.0).pair.modify(State::Closing) };
    0
}
