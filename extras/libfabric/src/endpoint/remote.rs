//! Reads of peers' memory (fi_rma(3)): each call as a request of the engine. Writes are not offered.

use std::{ffi::c_void, sync::atomic::Ordering};

use super::{
    Endpoint,
    messages::{one, pieces},
};
use crate::{
    abi::*,
    engine::Fetch,
    matching::{self, Pieces},
};

pub(super) static REMOTE_MEMORY: Table<9> = Table::new([
    read as *const (),
    readv as *const (),
    readmsg as *const (),
    NONE,
    NONE,
    NONE,
    NONE,
    NONE,
    NONE,
]);

/// Posts a read of the range of `target`'s memory that begins at `range`, a key and an offset.
///
/// # Safety
/// `endpoint` exists; the pieces are writable until the read is completed.
unsafe fn fetch(
    endpoint: *mut Endpoint,
    pieces: Pieces,
    target: u64,
    (key, offset): (u64, u64),
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    // SAFETY: of `open`.
    let endpoint = unsafe { &*endpoint };
    let flags = flags.unwrap_or_else(|| endpoint.send_flags.load(Ordering::Relaxed));
    let fetch = Fetch { pieces, target, key, offset, context, flags };
    endpoint.core.with(|engine| engine.fetch(fetch)).map_or_else(|code| -(code as isize), |()| 0)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` writable bytes until the read is completed.
unsafe extern "C" fn read(
    ep: *mut Endpoint,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { fetch(ep, one(buf, len), from, (key, offset), context, None) }
}

/// # Safety
/// [The contract of this library](crate#safety); `iov` has `count` entries, and what they name is writable until the
/// read is completed.
unsafe extern "C" fn readv(
    ep: *mut Endpoint,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { fetch(ep, pieces(iov, count), from, (key, offset), context, None) }
}

/// # Safety
/// [The contract of this library](crate#safety); what the entries of `message` name here is writable until it is
/// completed.
unsafe extern "C" fn readmsg(ep: *mut Endpoint, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the caller's message.
    unsafe {
        let m = &*message;
        let pieces = pieces(m.msg_iov, m.iov_count);
        // `rma_iov_limit` is 1.
        if m.rma_iov_count != 1 || (*m.rma_iov).len != matching::length(&pieces) {
            return -(FI_EINVAL as isize);
        }
        let range = ((*m.rma_iov).key, (*m.rma_iov).addr);
        fetch(ep, pieces, m.addr, range, m.context, Some(flags))
    }
}
