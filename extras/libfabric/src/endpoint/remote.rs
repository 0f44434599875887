//! Reads and writes of peers' memory (fi_rma(3)): each call as a request of the engine.

use std::{ffi::c_void, ptr, sync::atomic::Ordering};

use super::{
    Endpoint,
    messages::{one, pieces},
};
use crate::{
    abi::*,
    engine::{Fetch, Write},
    matching::{self, Pieces},
};

pub(super) static REMOTE_MEMORY: Table<9> = Table::new([
    read as *const (),
    readv as *const (),
    readmsg as *const (),
    write as *const (),
    writev as *const (),
    writemsg as *const (),
    inject as *const (),
    writedata as *const (),
    injectdata as *const (),
]);

/// `FI_FENCE` is not offered: a program that asks for it all the same is not to believe that it has it.
const REFUSED: u64 = FI_FENCE;

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
    if flags & REFUSED != 0 {
        return -(FI_EOPNOTSUPP as isize);
    }
    let fetch = Fetch { pieces, target, key, offset, context, flags };
    endpoint.core.with(|engine| engine.fetch(fetch)).map_or_else(|code| -(code as isize), |()| 0)
}

/// What a call of a write says beside its bytes and their target.
#[derive(Default)]
struct Manner {
    data: Option<u64>,
    /// Those of the call, if it has some.
    flags: Option<u64>,
    injected: bool,
}

/// Posts a write to the range of `target`'s memory that begins at `range`, a key and an offset.
///
/// # Safety
/// `endpoint` exists; the pieces are readable until the write is completed, or during the call if it is injected.
unsafe fn store(
    endpoint: *mut Endpoint,
    pieces: Pieces,
    target: u64,
    (key, offset): (u64, u64),
    context: *mut c_void,
    manner: Manner,
) -> isize {
    // SAFETY: of `open`.
    let endpoint = unsafe { &*endpoint };
    let Manner { data, flags, injected } = manner;
    let flags = flags.unwrap_or_else(|| endpoint.send_flags.load(Ordering::Relaxed));
    if flags & REFUSED != 0 {
        return -(FI_EOPNOTSUPP as isize);
    }
    let write = Write { pieces, target, key, offset, data, context, flags, injected };
    endpoint.core.with(|engine| engine.write(write)).map_or_else(|code| -(code as isize), |()| 0)
}

/// The range of the target's memory that a message names; `None` unless it is one, of the length of the pieces.
///
/// # Safety
/// `message` has the ranges that it counts.
unsafe fn range(message: &fi_msg_rma, pieces: &Pieces) -> Option<(u64, u64)> {
    // `rma_iov_limit` is 1.
    if message.rma_iov_count != 1 {
        return None;
    }
    // SAFETY: as required of the caller.
    let range = unsafe { &*message.rma_iov };
    (range.len == matching::length(pieces)).then_some((range.key, range.addr))
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
        let Some(range) = range(m, &pieces) else { return -(FI_EINVAL as isize) };
        fetch(ep, pieces, m.addr, range, m.context, Some(flags))
    }
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes until the write is completed.
unsafe extern "C" fn write(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { store(ep, one(buf, len), to, (key, offset), context, Manner::default()) }
}

/// # Safety
/// [The contract of this library](crate#safety); `iov` has `count` entries, and what they name is readable until the
/// write is completed.
unsafe extern "C" fn writev(
    ep: *mut Endpoint,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { store(ep, pieces(iov, count), to, (key, offset), context, Manner::default()) }
}

/// # Safety
/// [The contract of this library](crate#safety); what the entries of `message` name here is readable until it is
/// completed.
unsafe extern "C" fn writemsg(ep: *mut Endpoint, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the caller's message.
    unsafe {
        let m = &*message;
        let pieces = pieces(m.msg_iov, m.iov_count);
        let Some(range) = range(m, &pieces) else { return -(FI_EINVAL as isize) };
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(m.data);
        let manner = Manner { data, flags: Some(flags), injected: false };
        store(ep, pieces, m.addr, range, m.context, manner)
    }
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes during the call.
unsafe extern "C" fn inject(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    to: u64,
    offset: u64,
    key: u64,
) -> isize {
    let manner = Manner { injected: true, ..Manner::default() };
    // SAFETY: the program's request.
    unsafe { store(ep, one(buf, len), to, (key, offset), ptr::null_mut(), manner) }
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes until the write is completed.
unsafe extern "C" fn writedata(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: u64,
    offset: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let manner = Manner { data: Some(data), ..Manner::default() };
    // SAFETY: the program's request.
    unsafe { store(ep, one(buf, len), to, (key, offset), context, manner) }
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes during the call.
unsafe extern "C" fn injectdata(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    offset: u64,
    key: u64,
) -> isize {
    let manner = Manner { data: Some(data), injected: true, ..Manner::default() };
    // SAFETY: the program's request.
    unsafe { store(ep, one(buf, len), to, (key, offset), ptr::null_mut(), manner) }
}
