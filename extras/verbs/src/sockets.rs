//! Sockets below librspreload: connections that fell back to TCP.
//!
//! librspreload replaces the socket calls of a program by those of rsocket, and
//! calls the next library's `socket`, `connect` and `accept` for what rsocket
//! rejects, without a message. `clearstream rdma run --sockets` preloads this
//! library behind it, so that these calls arrive here: each is noted, and
//! passed on to the C library. Without the option they are passed on only.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{CStr, c_int, c_void},
    mem::transmute,
    net::SocketAddr,
    sync::{Mutex, OnceLock},
};

use libc::{sockaddr, socklen_t};
use socket2::SockAddr;

use crate::{
    handle::locked,
    report::write_line,
    statistics::{self, report_at_exit},
};

/// Flags of the type that rsocket of rdma-core 44 rejects.
const FLAGS: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
const FLAGGED: &str = "its socket has SOCK_CLOEXEC or SOCK_NONBLOCK, which rsocket of rdma-core 44 rejects";
const OTHER: &str = "rsocket could not create, connect or accept it";

#[derive(Default)]
struct Noted {
    /// Reason for which a socket is of TCP.
    reasons: HashMap<c_int, &'static str>,
    /// Number of connections by peer and reason.
    by_tcp: BTreeMap<(SocketAddr, &'static str), u64>,
}

fn noted() -> Option<&'static Mutex<Noted>> {
    static NOTED: OnceLock<Option<Mutex<Noted>>> = OnceLock::new();
    NOTED
        .get_or_init(|| {
            let wanted = std::env::var_os("CLEARSTREAM_VERBS_SOCKETS").is_some_and(|text| text == "1");
            wanted.then(|| {
                report_at_exit();
                Mutex::default()
            })
        })
        .as_ref()
}

/// Returns the next library's function of a name.
fn next(cache: &OnceLock<usize>, name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with NUL.
    let find = || unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.expose_provenance();
    std::ptr::with_exposed_provenance_mut(*cache.get_or_init(find))
}

macro_rules! next {
    ($name:literal, $kind:ty) => {{
        static CACHE: OnceLock<usize> = OnceLock::new();
        let found = next(&CACHE, $name);
        // SAFETY: the C library has the function, with this type.
        unsafe { transmute::<*mut c_void, $kind>(found) }
    }};
}

type Socket = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
type Connect = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type Accept = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
type Accept4 = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;

/// Notes that a connection is by TCP.
fn note(fd: c_int, peer: Option<SocketAddr>) {
    let (Some(noted), Some(peer)) = (noted(), peer) else { return };
    let mut noted = locked(noted);
    let reason = noted.reasons.get(&fd).copied().unwrap_or(OTHER);
    *noted.by_tcp.entry((peer, reason)).or_default() += 1;
}

/// Whether a descriptor is of a stream socket.
fn is_stream(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: one number; the linker redirects the call to the kernel.
    let got = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut length)
    };
    got == 0 && kind == libc::SOCK_STREAM
}

/// Reads an IP address of the program.
///
/// # Safety
/// `address` is NULL or has `length` bytes.
unsafe fn read_address(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let copy = |storage: *mut u8, room: *mut socklen_t| {
        // SAFETY: as required of the caller; no more than there is room for.
        unsafe {
            *room = length.min(*room);
            std::ptr::copy_nonoverlapping(address.cast(), storage, *room as usize);
        }
        Ok(())
    };
    // SAFETY: the closure writes an address.
    let (_, address) = unsafe { SockAddr::try_init(|storage, room| copy(storage.cast(), room)) }.ok()?;
    address.as_socket()
}

/// Returns the peer of a connected socket.
fn peer_of(fd: c_int) -> Option<SocketAddr> {
    let read = |storage: *mut sockaddr, length: *mut socklen_t| {
        // SAFETY: room for any address; redirected as above.
        match unsafe { libc::getpeername(fd, storage, length) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the kernel writes the address.
    let (_, address) = unsafe { SockAddr::try_init(|storage, length| read(storage.cast(), length)) }.ok()?;
    address.as_socket()
}

/// `socket`, which librspreload calls for what rsocket rejects.
///
/// # Safety
/// Nothing: the arguments are numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let next = next!(c"socket", Socket);
    // SAFETY: the caller's arguments.
    let fd = unsafe { next(domain, kind, protocol) };
    if let Some(noted) = noted().filter(|_| fd >= 0) {
        let mut noted = locked(noted);
        match kind & FLAGS {
            0 => _ = noted.reasons.remove(&fd),
            _ => _ = noted.reasons.insert(fd, FLAGGED),
        }
    }
    fd
}

/// `connect` of a socket that is none of rsocket's.
///
/// # Safety
/// `address` is NULL or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let next = next!(c"connect", Connect);
    if noted().is_some() && is_stream(fd) {
        // SAFETY: the caller's address.
        note(fd, unsafe { read_address(address, length) });
    }
    // SAFETY: the caller's arguments.
    unsafe { next(fd, address, length) }
}

/// `accept` of a listener that is none of rsocket's.
///
/// # Safety
/// `address` is NULL or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    let next = next!(c"accept", Accept);
    // SAFETY: the caller's arguments.
    let accepted = unsafe { next(fd, address, length) };
    note_accepted(fd, accepted);
    accepted
}

/// `accept4` of a listener that is none of rsocket's.
///
/// # Safety
/// `address` is NULL or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let next = next!(c"accept4", Accept4);
    // SAFETY: the caller's arguments.
    let accepted = unsafe { next(fd, address, length, flags) };
    note_accepted(fd, accepted);
    accepted
}

fn note_accepted(listener: c_int, accepted: c_int) {
    if accepted >= 0 && noted().is_some() {
        let code = std::io::Error::last_os_error().raw_os_error();
        note(listener, peer_of(accepted));
        crate::report::set_errno(code.unwrap_or(0));
    }
}

/// Reports the connections by RDMA and by TCP, at exit.
pub fn report() {
    let Some(noted) = noted() else { return };
    let noted = locked(noted);
    let by_tcp: u64 = noted.by_tcp.values().sum();
    write_line(&format!("sockets: connections by RDMA: {}, by TCP: {by_tcp}", statistics::count()));
    for ((peer, reason), count) in &noted.by_tcp {
        write_line(&format!("sockets: {count} by TCP with {peer}: {reason}"));
    }
}
