//! Endpoints (fi_endpoint(3)): calls of the program, translated for the engine.

use std::{
    ffi::{c_int, c_void},
    sync::{Arc, Mutex},
};

use smallvec::smallvec;

use crate::{
    abi::*,
    addresses,
    completion::CompletionQueue,
    counter::Counter,
    domain::{Vector, write_address},
    engine::{Core, Message},
    matching::{Pieces, Receive, Several},
};

/// The program's handle.
#[repr(C)]
pub struct Endpoint {
    abi: fid_ep,
    core: Arc<Core>,
    /// Flags of calls that have none.
    send_flags: u64,
    receive_flags: u64,
    /// Successful receives are reported only with `FI_COMPLETION`.
    selective_receives: bool,
    /// Receives name the peer that they take messages from (`FI_DIRECTED_RECV`); the address is ignored otherwise.
    directed: bool,
}

static OBJECT: Table<6> =
    Table::new([close as *const (), bind as *const (), control as *const (), NONE, NONE, NONE]);
static ENDPOINT: Table<7> =
    Table::new([cancel as *const (), option as *const (), set_option as *const (), NONE, NONE, NONE, NONE]);
static ADDRESS: Table<9> = Table::new([NONE, name as *const (), NONE, NONE, NONE, NONE, NONE, NONE, NONE]);
static MESSAGES: Table<9> = Table::new([
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
static TAGGED: Table<9> = Table::new([
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
static REMOTE_MEMORY: Table<9> = Table::new([NONE; 9]);
static ATOMICS: Table<13> = Table::new([NONE; 13]);
static COLLECTIVES: Table<11> = Table::new([NONE; 11]);

/// `fi_endpoint`.
pub unsafe extern "C" fn open(
    _domain: *mut fid_domain,
    info: *mut fi_info,
    into: *mut *mut Endpoint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's description, of `getinfo` or a copy of it.
    let (address, flags, directed) = unsafe {
        let flags = (
            (*info).tx_attr.as_ref().map_or(0, |tx| tx.op_flags),
            (*info).rx_attr.as_ref().map_or(0, |rx| rx.op_flags),
        );
        (addresses::parse((*info).src_addr.cast_const().cast()), flags, (*info).caps & FI_DIRECTED_RECV != 0)
    };
    let Some(address) = address else { return -FI_EINVAL };
    let core = match Core::open(address) {
        Ok(core) => core,
        Err(code) => return -code,
    };
    let endpoint = Endpoint {
        abi: fid_ep {
            fid: fid { fclass: FI_CLASS_EP, context, ops: OBJECT.address() },
            ops: ENDPOINT.address(),
            cm: ADDRESS.address(),
            msg: MESSAGES.address(),
            rma: REMOTE_MEMORY.address(),
            tagged: TAGGED.address(),
            atomic: ATOMICS.address(),
            collective: COLLECTIVES.address(),
        },
        core,
        send_flags: flags.0,
        receive_flags: flags.1,
        selective_receives: false,
        directed,
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(endpoint))) };
    0
}

unsafe extern "C" fn close(endpoint: *mut Endpoint) -> c_int {
    // SAFETY: of `open`, and not used after this.
    let endpoint = unsafe { Box::from_raw(endpoint) };
    endpoint.core.close();
    0
}

unsafe extern "C" fn bind(endpoint: *mut Endpoint, object: *mut fid, flags: u64) -> c_int {
    // SAFETY: of `open`; the object is of this provider.
    let (endpoint, class) = unsafe { (&mut *endpoint, (*object).fclass) };
    match class {
        FI_CLASS_CQ => {
            // SAFETY: as above, by its class.
            let completions = unsafe { &(*object.cast::<CompletionQueue>()).completions };
            let selective = flags & FI_SELECTIVE_COMPLETION != 0;
            completions.bind(&endpoint.core);
            endpoint.core.with(|engine| {
                if flags & FI_SEND != 0 {
                    (engine.sends.completions, engine.sends.selective) =
                        (Some(completions.clone()), selective);
                }
                if flags & FI_RECV != 0 {
                    (engine.receives.completions, engine.receives.selective) =
                        (Some(completions.clone()), selective);
                }
            });
            if flags & FI_RECV != 0 {
                endpoint.selective_receives = selective;
            }
            0
        }
        FI_CLASS_CNTR => {
            // SAFETY: as above, by its class.
            let counter = unsafe { &*object.cast::<Counter>() };
            counter.bind(&endpoint.core);
            endpoint.core.with(|engine| {
                if flags & FI_SEND != 0 {
                    engine.sends.counts = Some(counter.counts.clone());
                }
                if flags & FI_RECV != 0 {
                    engine.receives.counts = Some(counter.counts.clone());
                }
            });
            0
        }
        FI_CLASS_AV => {
            // SAFETY: as above, by its class.
            let addresses = unsafe { &(*object.cast::<Vector>()).addresses };
            endpoint.core.with(|engine| engine.vector = addresses.clone());
            0
        }
        FI_CLASS_EQ => 0,
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn control(endpoint: *mut Endpoint, command: c_int, argument: *mut u64) -> c_int {
    // SAFETY: of `open`; the argument of the two commands with flags is a number.
    let endpoint = unsafe { &mut *endpoint };
    match command {
        FI_ENABLE => endpoint.core.start().map_or_else(|code| -code, |()| 0),
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: as above.
            let flags = unsafe { &mut *argument };
            let of =
                if *flags & FI_SEND != 0 { &mut endpoint.send_flags } else { &mut endpoint.receive_flags };
            if command == FI_GETOPSFLAG {
                *flags = *of
            } else {
                *of = *flags & !(FI_SEND | FI_RECV)
            }
            0
        }
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn cancel(endpoint: *mut Endpoint, context: *mut c_void) -> isize {
    // SAFETY: of `open`.
    unsafe { &*endpoint }.core.with(|engine| engine.cancel(context));
    0
}

unsafe extern "C" fn option(
    endpoint: *mut Endpoint,
    level: c_int,
    name: c_int,
    into: *mut usize,
    length: *mut usize,
) -> c_int {
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: of `open`; the value of this option is a number.
    unsafe {
        into.write_unaligned((*endpoint).core.with(|engine| engine.least_room()));
        length.write(size_of::<usize>());
    }
    0
}

unsafe extern "C" fn set_option(
    endpoint: *mut Endpoint,
    level: c_int,
    name: c_int,
    value: *const usize,
    _length: usize,
) -> c_int {
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: of `open`; the value of this option is a number.
    unsafe {
        let value = value.read_unaligned();
        (*endpoint).core.with(|engine| engine.set_least_room(value));
    }
    0
}

unsafe extern "C" fn name(endpoint: *mut Endpoint, into: *mut u8, length: *mut usize) -> c_int {
    // SAFETY: of `open`, and the caller's memory.
    unsafe {
        let address = (*endpoint).core.with(|engine| engine.address());
        if write_address(address, into, length) { 0 } else { -FI_ETOOSMALL }
    }
}

/// Pieces of an array of the C library.
unsafe fn pieces(list: *const libc::iovec, count: usize) -> Pieces {
    // SAFETY: the caller's array.
    (0..count).map(|at| unsafe { ((*list.add(at)).iov_base.cast(), (*list.add(at)).iov_len) }).collect()
}

fn one(buffer: *const c_void, length: usize) -> Pieces {
    smallvec![(buffer.cast_mut().cast(), length)]
}

/// Posts a send.
unsafe fn put(endpoint: *mut Endpoint, message: Message) -> isize {
    // SAFETY: of `open`.
    let core = unsafe { &(*endpoint).core };
    core.with(|engine| engine.send(message)).map_or_else(|code| -(code as isize), |()| 0)
}

/// Posts a receive.
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
    let given = flags.unwrap_or(endpoint.receive_flags);
    let reported = !endpoint.selective_receives || given & FI_COMPLETION != 0;
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
            let flags = (*$endpoint).send_flags;
            let (pieces, tag, data, context) = ($pieces, $tag, $data, $context);
            put(
                $endpoint,
                Message { pieces, destination: $to, tag, data, context, flags, injected: $injected },
            )
        }
    }};
}

const NO_CONTEXT: *mut c_void = std::ptr::null_mut();

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

unsafe extern "C" fn inject(ep: *mut Endpoint, buf: *const c_void, len: usize, to: u64) -> isize {
    message!(ep, one(buf, len), to, None, None, NO_CONTEXT, true)
}

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

unsafe extern "C" fn injectdata(
    ep: *mut Endpoint,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    message!(ep, one(buf, len), to, None, Some(data), NO_CONTEXT, true)
}

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

unsafe extern "C" fn tinject(ep: *mut Endpoint, buf: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    message!(ep, one(buf, len), to, Some(tag), None, NO_CONTEXT, true)
}

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

unsafe extern "C" fn sendmsg(ep: *mut Endpoint, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the caller's message.
    unsafe {
        let m = &*message;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(m.data);
        let (pieces, context) = (pieces(m.msg_iov, m.iov_count), m.context);
        put(ep, Message { pieces, destination: m.addr, tag: None, data, context, flags, injected: false })
    }
}

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

unsafe extern "C" fn recvmsg(ep: *mut Endpoint, message: *const fi_msg, flags: u64) -> isize {
    // SAFETY: the program's request.
    unsafe {
        let m = &*message;
        take(ep, pieces(m.msg_iov, m.iov_count), m.addr, None, m.context, Some(flags))
    }
}

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

unsafe extern "C" fn trecvmsg(ep: *mut Endpoint, message: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: the program's request.
    unsafe {
        let m = &*message;
        take(ep, pieces(m.msg_iov, m.iov_count), m.addr, Some((m.tag, m.ignore)), m.context, Some(flags))
    }
}
