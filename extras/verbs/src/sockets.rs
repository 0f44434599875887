//! Sockets below librspreload: connections that fell back to TCP, and attempts by RDMA that failed.
//!
//! librspreload replaces the socket calls of a program by those of rsocket, and
//! calls the next library's `socket`, `connect` and `accept` for what rsocket
//! rejects, without a message. `clearstream rdma run --sockets` preloads this
//! library behind it, so that these calls arrive here: each is noted, and
//! passed on to the C library. Without the option they are passed on only.
//!
//! A program's connect that fails by RDMA is one of the last kind: librspreload gives the socket a new descriptor, of the
//! kernel's, and connects that to the same peer. Where the program does not wait for its connection it gets the error.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{CStr, c_int, c_void},
    io,
    mem::transmute,
    net::SocketAddr,
    sync::{Mutex, OnceLock},
};

use clearstream_iwarp::verbs::ConnectError;
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
const FAILED: &str = "an attempt by RDMA failed";
const OTHER: &str = "rsocket could not create, connect or accept it";

#[derive(Default)]
struct Noted {
    /// Reason for which a socket is of TCP.
    reasons: HashMap<c_int, &'static str>,
    /// Number of connections by peer and reason.
    by_tcp: BTreeMap<(SocketAddr, &'static str), u64>,
    /// Attempts by RDMA that failed, by peer and reason.
    failed: BTreeMap<(SocketAddr, String), Failed>,
    /// Reason of the last one with a peer, until TCP replaces it.
    last_failed: HashMap<SocketAddr, String>,
}

/// Attempts by RDMA that failed for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failed {
    count: u64,
    /// Those after which TCP was used.
    replaced: u64,
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
    locked(noted).by_tcp(fd, peer);
}

/// Notes that a setup of this side failed.
pub fn note_failed(peer: SocketAddr, error: &ConnectError) {
    if let Some(noted) = noted() {
        locked(noted).failed(peer, reason(error));
    }
}

impl Noted {
    fn by_tcp(&mut self, fd: c_int, peer: SocketAddr) {
        let reason = match self.reasons.get(&fd) {
            Some(reason) => reason,
            None => match self.last_failed.remove(&peer) {
                Some(failed) => {
                    self.failed.entry((peer, failed)).or_default().replaced += 1;
                    FAILED
                }
                None => OTHER,
            },
        };
        *self.by_tcp.entry((peer, reason)).or_default() += 1;
    }

    fn failed(&mut self, peer: SocketAddr, reason: String) {
        self.failed.entry((peer, reason.clone())).or_default().count += 1;
        self.last_failed.insert(peer, reason);
    }

    /// The lines of the report, of so many connections by RDMA.
    fn lines(&self, by_rdma: u64) -> Vec<String> {
        let by_tcp: u64 = self.by_tcp.values().sum();
        let failed: u64 = self.failed.values().map(|failed| failed.count).sum();
        let failed = if failed > 0 { format!(", failed attempts by RDMA: {failed}") } else { String::new() };
        let mut lines = vec![format!("connections by RDMA: {by_rdma}, by TCP: {by_tcp}{failed}")];
        for ((peer, reason), count) in &self.by_tcp {
            lines.push(format!("{count} by TCP with {peer}: {reason}"));
        }
        for ((peer, reason), Failed { count, replaced }) in &self.failed {
            let replaced = match replaced {
                0 => "none replaced by TCP".to_owned(),
                all if all == count => "replaced by TCP".to_owned(),
                some => format!("{some} replaced by TCP"),
            };
            let attempts = if *count == 1 { "attempt" } else { "attempts" };
            lines.push(format!("{count} failed {attempts} by RDMA with {peer}, {replaced}: {reason}"));
        }
        lines
    }
}

/// Why a setup failed, without what differs between two of them.
fn reason(error: &ConnectError) -> String {
    match error {
        ConnectError::TimedOut { .. } => "no reply in time".to_owned(),
        // The name of the step is that of the message, once TCP is connected.
        ConnectError::Tcp { step: "reply", source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            "no reply in time".to_owned()
        }
        ConnectError::Tcp { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            "TCP did not connect in time".to_owned()
        }
        ConnectError::Tcp { source, .. } => format!("TCP: {source}"),
        ConnectError::Closed { .. } => "closed without a reply: its program may use plain sockets".to_owned(),
        ConnectError::Rejected { .. } => "its program rejected the connection".to_owned(),
        ConnectError::Setup { source, .. } => format!("{source}: its program may use plain sockets"),
        ConnectError::NeedsRevision2 { closes: true, .. } => {
            "it closes instead of an answer: it is ending, or does not support MPA revision 2".to_owned()
        }
        ConnectError::NeedsRevision2 { .. } => "it does not support MPA revision 2".to_owned(),
        error => error.to_string(),
    }
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
    for line in locked(noted).lines(statistics::count()) {
        write_line(&format!("sockets: {line}"));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use clearstream_iwarp::mpa::MpaError;

    use super::*;

    fn peer(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 7200))
    }

    #[test]
    fn failed_attempts_are_counted_by_peer_and_reason_and_replaced_once_each() {
        let timed_out = |after| {
            let after = Duration::from_millis(after);
            reason(&ConnectError::TimedOut { peer: peer(2), awaited: "reply", after })
        };
        let mut noted = Noted::default();
        noted.reasons.insert(5, FLAGGED);
        noted.failed(peer(2), timed_out(120_001));
        noted.by_tcp(4, peer(2));
        noted.failed(peer(2), timed_out(120_003));
        // Of a socket that was never of RDMA.
        noted.by_tcp(5, peer(2));
        noted.failed(peer(3), reason(&ConnectError::Setup { peer: peer(3), source: MpaError::Enhanced }));
        noted.by_tcp(4, peer(3));
        noted.by_tcp(4, peer(3));
        let enhanced = MpaError::Enhanced;
        assert_eq!(
            noted.lines(1),
            [
                "connections by RDMA: 1, by TCP: 4, failed attempts by RDMA: 3".to_owned(),
                format!("1 by TCP with 10.0.0.2:7200: {FAILED}"),
                format!("1 by TCP with 10.0.0.2:7200: {FLAGGED}"),
                format!("1 by TCP with 10.0.0.3:7200: {FAILED}"),
                format!("1 by TCP with 10.0.0.3:7200: {OTHER}"),
                "2 failed attempts by RDMA with 10.0.0.2:7200, 1 replaced by TCP: no reply in time"
                    .to_owned(),
                format!(
                    "1 failed attempt by RDMA with 10.0.0.3:7200, replaced by TCP: {enhanced}: its program may use \
                     plain sockets"
                ),
            ]
        );
        assert_eq!(Noted::default().lines(2), ["connections by RDMA: 2, by TCP: 0"]);
    }
}
