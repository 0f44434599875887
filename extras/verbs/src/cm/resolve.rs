//! Addresses of identifiers: bind and resolve.

use std::{
    ffi::c_int,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    abi::{RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, rdma_cm_id},
    address::{local_towards, read, scope},
    device::device_address,
    handle::{Handle, locked},
    report::failed,
    runtime::{Runtime, runtime},
};

use super::{
    event::{Details, complete, push},
    id::{Id, Stage},
};

/// Connections that wait for `rdma_listen`.
const BACKLOG: c_int = 1024;

/// Binds to a local address and reserves its port.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `local` is NULL or as long as its family demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, local: *mut libc::sockaddr) -> c_int {
    let Some(runtime) = runtime() else { return failed(libc::EPERM) };
    // SAFETY: the caller's address.
    let Some(local) = (unsafe { read(local) }) else { return failed(libc::EINVAL) };
    let _connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &mut *id.cast::<Id>() };
    if !matches!(known.inner.stage, Stage::Idle) {
        return failed(libc::EINVAL);
    }
    match bind(known, local) {
        Ok(()) => 0,
        Err(error) => failed(error.raw_os_error().unwrap_or(libc::EINVAL)),
    }
}

/// Binds an identifier.
///
/// # Errors
/// Error of the system call.
pub fn bind(id: &mut Id, local: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
    // A port whose last connections linger may be used again (socket(7)).
    socket.set_reuse_address(true)?;
    if let (true, Some(only)) = (local.is_ipv6(), id.inner.is_six_only) {
        socket.set_only_v6(only)?;
    }
    socket.bind(&local.into())?;
    if !id.inner.shares_port {
        // Programs announce the port before they listen: connections wait until
        // then. It also keeps the port from others, which binding alone does not.
        socket.listen(BACKLOG)?;
    }
    let bound = socket.local_addr()?.as_socket().unwrap_or(local);
    id.inner.reserved = Some(OwnedFd::from(socket));
    id.inner.stage = Stage::Bound;
    id.set_addresses(Some(bound), None);
    if is_of_device(bound.ip()) {
        id.set_device();
    }
    Ok(())
}

/// Binds a bound identifier again, after options of its port changed.
///
/// # Errors
/// Error of the system call: the port is another's.
pub fn bind_again(id: &mut Id) -> io::Result<()> {
    let (Some(local), Some(socket)) = (id.inner.local, id.inner.reserved.take()) else { return Ok(()) };
    drop(socket);
    bind(id, local)
}

/// Whether an identifier that is bound to it belongs to the device. The loopback address is of no device, as with
/// cards: libfabric, which binds to "localhost" first, offers the host's own addresses only then. On a host with
/// no other address it is the device's.
fn is_of_device(ip: IpAddr) -> bool {
    !ip.is_unspecified() && (!ip.is_loopback() || device_address().is_loopback())
}

/// Finds the local address for a peer.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety); `from` and `peer` are NULL or as long as their family demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    from: *mut libc::sockaddr,
    peer: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's addresses and identifier.
    unsafe {
        match resolve(id, read(from), read(peer)) {
            Ok(()) => complete(id),
            Err(code) => failed(code),
        }
    }
}

/// # Safety
/// `id` exists.
unsafe fn resolve(
    id: *mut rdma_cm_id,
    from: Option<SocketAddr>,
    peer: Option<SocketAddr>,
) -> Result<(), c_int> {
    let runtime: &Runtime = runtime().ok_or(libc::EPERM)?;
    let mut peer = peer.ok_or(libc::EINVAL)?;
    if peer.ip().is_unspecified() {
        // As for connect(2): this host.
        peer.set_ip(if peer.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    let _connections = locked(&runtime.connections);
    let handle: Handle<Id> = Handle(id.cast());
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &mut *handle.0 };
    let from = match known.inner.stage {
        Stage::Idle => from,
        // It is bound already, and stays so.
        Stage::Bound => known.inner.local,
        _ => return Err(libc::EINVAL),
    };
    if from.is_some_and(|from| from.is_ipv4() != peer.is_ipv4()) {
        return Err(libc::EINVAL);
    }
    if let (Stage::Idle, Some(from)) = (&known.inner.stage, from.filter(|from| from.port() != 0)) {
        bind(known, from).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
    }
    if let (SocketAddr::V6(six), Some(from)) = (&mut peer, from)
        && six.scope_id() == 0
    {
        // One interface has both addresses.
        six.set_scope_id(scope(from));
    }
    match local_towards(peer, from.filter(|from| !from.ip().is_unspecified())) {
        Ok(mut local) => {
            local.set_port(known.inner.local.map_or(0, |local| local.port()));
            known.set_addresses(Some(local), Some(peer));
            known.set_device();
            known.inner.stage = Stage::Resolved;
            push(handle, RDMA_CM_EVENT_ADDR_RESOLVED, 0, Details::default());
        }
        Err(error) => {
            known.inner.stage = Stage::Bound;
            let code = error.raw_os_error().unwrap_or(libc::EHOSTUNREACH);
            push(handle, RDMA_CM_EVENT_ADDR_ERROR, -code, Details::default());
        }
    }
    Ok(())
}

/// The route is the kernel's: resolved at once.
///
/// # Safety
/// [The contract of identifiers](crate::cm#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's identifier.
    unsafe {
        match route(id) {
            Ok(()) => complete(id),
            Err(code) => failed(code),
        }
    }
}

/// # Safety
/// `id` exists.
unsafe fn route(id: *mut rdma_cm_id) -> Result<(), c_int> {
    let runtime = runtime().ok_or(libc::EPERM)?;
    let _connections = locked(&runtime.connections);
    // SAFETY: the caller's identifier, under the lock.
    let known = unsafe { &mut *id.cast::<Id>() };
    if !matches!(known.inner.stage, Stage::Resolved) {
        return Err(libc::EINVAL);
    }
    known.inner.stage = Stage::Routed;
    push(Handle(id.cast()), RDMA_CM_EVENT_ROUTE_RESOLVED, 0, Details::default());
    Ok(())
}
