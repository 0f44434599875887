//! Messages of an endpoint, tagged and not (fi_msg(3), fi_tagged(3)): each call as a request of the engine.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex, atomic::Ordering},
};

use smallvec::smallvec;

use super::Endpoint;
use crate::{
    abi::*,
    engine::Message,
    matching::{Pieces, Receive, Several},
};

pub(super) static MESSAGES: Table<9> = Table::new([
    recv as *const (),
    recvv as *const (),
    recvmsg as *const (),
    send as *const (),
    sendv as *const (),
    sendmsg as *const (),
    inject as *const (),
    senddata as *const (),
    injectdata as *const (),
]);
pub(super) static TAGGED: Table<9> = Table::new([
    trecv as *const (),
    trecvv as *const (),
    trecvmsg as *const (),
    tsend as *const (),
    tsendv as *const (),
    tsendmsg as *const (),
    tinject as *const (),
    tsenddata as *const (),
    tinjectdata as *const (),
]);

/// Pieces of an array of the C library.
///
/// # Safety
/// `list` has `count` entries.
pub(super) unsafe fn pieces(list: *const libc::iovec, count: usize) -> Pieces {
    // SAFETY: the caller's array.
    (0..count).map(|at| unsafe { ((*list.add(at)).iov_base.cast(), (*list.add(at)).iov_len) }).collect()
}

pub(super) fn one(buffer: *const c_void, length: usize) -> Pieces {
    smallvec![(buffer.cast_mut().cast(), length)]
}

/// Posts a send.
///
/// # Safety
/// `endpoint` exists; the pieces are readable until the message is completed, or during the call if it is injected.
unsafe fn put(endpoint: *mut Endpoint, message: Message) -> isize {
    // SAFETY: of `open`.
    let core = unsafe { &(*endpoint).core };
    core.with(|engine| engine.send(message)).map_or_else(|code| -(code as isize), |()| 0)
}

/// Posts a receive.
///
/// # Safety
/// `endpoint` exists; the pieces are writable until the receive is completed or cancelled.
unsafe fn take(
    endpoint: *mut Endpoint,
    pieces: Pieces,
    source: u64,
    tags: Option<(u64, u64)>,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    // SAFETY: of `open`.
    let endpoint = unsafe { &*endpoint };
    let given = flags.unwrap_or_else(|| endpoint.receive_flags.load(Ordering::Relaxed));
    let reported = !endpoint.selective_receives.load(Ordering::Relaxed) || given & FI_COMPLETION != 0;
    let (tag, ignore) = tags.unwrap_or((0, u64::MAX));
    let source = if endpoint.directed { source } else { FI_ADDR_UNSPEC };
    let for_several = tags.is_none() && given & FI_MULTI_RECV != 0;
    if for_several && pieces.len() != 1 {
        return -(FI_EINVAL as isize);
    }
    endpoint.core.with(|engine| {
        let several = for_several
            .then(|| Arc::new(Several { context, report: Mutex::new(engine.receives.completions.clone()) }));
        let receive = Receive { context, pieces, source, tag, ignore, reported, several };
        if tags.is_some() && given & (FI_PEEK | FI_CLAIM | FI_DISCARD) != 0 {
            engine.peek(given, receive);
        } else {
            engine.receive(tags.is_some(), receive);
        }
    });
    0
}

macro_rules! message {
    ($endpoint:expr, $pieces:expr, $to:expr, $tag:expr, $data:expr, $context:expr, $injected:expr) => {{
        // SAFETY: of `open`, and buffers of the program.
        unsafe {
            let flags = (*$endpoint).send_flags.load(Ordering::Relaxed);
            let (pieces, tag, data, context) = ($pieces, $tag, $data, $context);
            put(
                $endpoint,
                Message { pieces, destination: $to, tag, data, context, flags, injected: $injected },
            )
        }
    }};
}

const NO_CONTEXT: *mut c_void = std::ptr::null_mut();

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes until the message is completed.
unsafe extern "C" fn send(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    message!(ep, one(buf, len), to, None, None, context, false)
}

/// # Safety
/// [The contract of this library](crate#safety); `iov` has `count` entries, and what they name is readable until the
/// message is completed.
unsafe extern "C" fn sendv(
    ep: *mut Endpoint,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    message!(ep, pieces(iov, count), to, None, None, context, false)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes during the call.
unsafe extern "C" fn inject(ep: *mut Endpoint, buf: *const c_void, len: usize, to: u64) -> isize {
    message!(ep, one(buf, len), to, None, None, NO_CONTEXT, true)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes until the message is completed.
unsafe extern "C" fn senddata(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    message!(ep, one(buf, len), to, None, Some(data), context, false)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes during the call.
unsafe extern "C" fn injectdata(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    message!(ep, one(buf, len), to, None, Some(data), NO_CONTEXT, true)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes until the message is completed.
unsafe extern "C" fn tsend(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    message!(ep, one(buf, len), to, Some(tag), None, context, false)
}

/// # Safety
/// [The contract of this library](crate#safety); `iov` has `count` entries, and what they name is readable until the
/// message is completed.
unsafe extern "C" fn tsendv(
    ep: *mut Endpoint,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    message!(ep, pieces(iov, count), to, Some(tag), None, context, false)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes during the call.
unsafe extern "C" fn tinject(ep: *mut Endpoint, buf: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    message!(ep, one(buf, len), to, Some(tag), None, NO_CONTEXT, true)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes until the message is completed.
unsafe extern "C" fn tsenddata(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    message!(ep, one(buf, len), to, Some(tag), Some(data), context, false)
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` readable bytes during the call.
unsafe extern "C" fn tinjectdata(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    message!(ep, one(buf, len), to, Some(tag), Some(data), NO_CONTEXT, true)
}

/// # Safety
/// [The contract of this library](crate#safety); what the entries of `message` name is readable until it is
/// completed.
unsafe extern "C" fn sendmsg(ep: *mut Endpoint, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the caller's message.
    unsafe {
        let m = &*message;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(m.data);
        let (pieces, context) = (pieces(m.msg_iov, m.iov_count), m.context);
        put(ep, Message { pieces, destination: m.addr, tag: None, data, context, flags, injected: false })
    }
}

/// # Safety
/// [The contract of this library](crate#safety); what the entries of `message` name is readable until it is
/// completed.
unsafe extern "C" fn tsendmsg(ep: *mut Endpoint, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the caller's message.
    unsafe {
        let m = &*message;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(m.data);
        let (pieces, context) = (pieces(m.msg_iov, m.iov_count), m.context);
        put(
            ep,
            Message { pieces, destination: m.addr, tag: Some(m.tag), data, context, flags, injected: false },
        )
    }
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` writable bytes until the receive is completed or
/// cancelled.
unsafe extern "C" fn recv(
    ep: *mut Endpoint,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { take(ep, one(buf, len), from, None, context, None) }
}

/// # Safety
/// [The contract of this library](crate#safety); `iov` has `count` entries, and what they name is writable until the
/// receive is completed or cancelled.
unsafe extern "C" fn recvv(
    ep: *mut Endpoint,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { take(ep, pieces(iov, count), from, None, context, None) }
}

/// # Safety
/// [The contract of this library](crate#safety); what the entries of `message` name is writable until it is completed
/// or cancelled.
unsafe extern "C" fn recvmsg(ep: *mut Endpoint, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the program's request.
    unsafe {
        let m = &*message;
        take(ep, pieces(m.msg_iov, m.iov_count), m.addr, None, m.context, Some(flags))
    }
}

/// # Safety
/// [The contract of this library](crate#safety); `buf` has `len` writable bytes until the receive is completed or
/// cancelled.
unsafe extern "C" fn trecv(
    ep: *mut Endpoint,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { take(ep, one(buf, len), from, Some((tag, ignore)), context, None) }
}

/// # Safety
/// [The contract of this library](crate#safety); `iov` has `count` entries, and what they name is writable until the
/// receive is completed or cancelled.
unsafe extern "C" fn trecvv(
    ep: *mut Endpoint,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the program's request.
    unsafe { take(ep, pieces(iov, count), from, Some((tag, ignore)), context, None) }
}

/// # Safety
/// [The contract of this library](crate#safety); what the entries of `message` name is writable until it is completed
/// or cancelled.
unsafe extern "C" fn trecvmsg(ep: *mut Endpoint, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the program's request.
    unsafe {
        let m = &*message;
        take(ep, pieces(m.msg_iov, m.iov_count), m.addr, Some((m.tag, m.ignore)), m.context, Some(flags))
    }
}
