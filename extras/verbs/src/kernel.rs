//! System calls by names that no other preloaded library replaces.
//!
//! librspreload replaces the socket calls of a whole process, also for this
//! library: its own connections would come back to it as rsockets. The linker
//! redirects the calls of this library, and of the crates in it, to the
//! functions here (`--wrap`, see `build.rs`), which call the kernel directly.

use std::ffi::{c_int, c_void};

use crate::helper::{begin_wait, end_wait};

use libc::{iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};

macro_rules! direct {
    ($($wrapped:ident $number:ident ($($name:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        /// System call of the same name.
        ///
        /// # Safety
        /// Pointers are as the system call demands: the kernel rejects those that the process may not access.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wrapped($($name: $kind),*) -> $result {
            // SAFETY: the arguments are those of the system call, with the
            // caller's guarantees.
            unsafe { libc::syscall(libc::$number, $($name),*) as $result }
        }
    )*};
}

direct! {
    __wrap_accept4 SYS_accept4 (fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    __wrap_bind SYS_bind (fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    __wrap_close SYS_close (fd: c_int) -> c_int;
    __wrap_connect SYS_connect (fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    __wrap_fcntl SYS_fcntl (fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    __wrap_getpeername SYS_getpeername (fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    __wrap_getsockname SYS_getsockname (fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    __wrap_getsockopt SYS_getsockopt (fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    __wrap_listen SYS_listen (fd: c_int, backlog: c_int) -> c_int;
    __wrap_read SYS_read (fd: c_int, into: *mut c_void, count: size_t) -> ssize_t;
    __wrap_readv SYS_readv (fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    __wrap_recvfrom SYS_recvfrom (fd: c_int, into: *mut c_void, count: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    __wrap_recvmsg SYS_recvmsg (fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    __wrap_sendmsg SYS_sendmsg (fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    __wrap_sendto SYS_sendto (fd: c_int, from: *const c_void, count: size_t, flags: c_int, address: *const sockaddr, length: socklen_t) -> ssize_t;
    __wrap_setsockopt SYS_setsockopt (fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    __wrap_shutdown SYS_shutdown (fd: c_int, how: c_int) -> c_int;
    __wrap_socket SYS_socket (domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    __wrap_write SYS_write (fd: c_int, from: *const c_void, count: size_t) -> ssize_t;
    __wrap_writev SYS_writev (fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
}

/// `accept4` without flags.
///
/// # Safety
/// As for `accept4`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: as for the system call.
    unsafe { __wrap_accept4(fd, address, length, 0) }
}

/// `recvfrom` without an address.
///
/// # Safety
/// As for `recvfrom`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_recv(fd: c_int, into: *mut c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as for the system call.
    unsafe { __wrap_recvfrom(fd, into, count, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// `sendto` without an address.
///
/// # Safety
/// As for `sendto`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_send(fd: c_int, from: *const c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as for the system call.
    unsafe { __wrap_sendto(fd, from, count, flags, std::ptr::null(), 0) }
}

/// `ppoll` with the timeout of `poll`, which newer architectures lack.
///
/// # Safety
/// `list` has `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_poll(list: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let time = libc::timespec {
        tv_sec: (timeout_ms / 1000).into(),
        tv_nsec: libc::c_long::from(timeout_ms % 1000) * 1_000_000,
    };
    let time: *const libc::timespec = if timeout_ms < 0 { std::ptr::null() } else { &raw const time };
    // SAFETY: as for the system call; the kernel writes the remaining time to
    // no copy of the caller's.
    unsafe { libc::syscall(libc::SYS_ppoll, list, count, time, std::ptr::null::<c_void>(), 0usize) as c_int }
}

unsafe extern "C-unwind" {
    /// The C library's function, under the name that the linker gives it.
    fn __real_read(fd: c_int, into: *mut c_void, count: size_t) -> ssize_t;
}

/// Reads one item of a descriptor that counts items: waits for it, unless the
/// program made the descriptor non-blocking. Otherwise `errno` has the reason,
/// also after a signal whose handler does not restart calls.
///
/// A cancellation point, as the calls of the real libraries: the program may
/// cancel the thread (pthread_cancel(3)), so no frame with a value to drop may
/// call this.
///
/// # Safety
/// No frame from the program to this one has a value to drop.
pub unsafe extern "C-unwind" fn await_item(fd: c_int) -> bool {
    let mut number = 0u64;
    begin_wait();
    // SAFETY: eight bytes, as eventfd(2) demands.
    let read = unsafe { __real_read(fd, (&raw mut number).cast(), size_of::<u64>()) };
    end_wait();
    read == size_of::<u64>() as ssize_t
}

/// Removes one item of such a descriptor, if it has one, without waiting.
pub fn discard_item(fd: c_int) {
    let mut number = 0u64;
    let vector = iovec { iov_base: (&raw mut number).cast(), iov_len: size_of::<u64>() };
    // SAFETY: one vector of eight bytes; the offset is none (preadv2(2)).
    unsafe { libc::syscall(libc::SYS_preadv2, fd, &raw const vector, 1, -1isize, -1isize, libc::RWF_NOWAIT) };
}
