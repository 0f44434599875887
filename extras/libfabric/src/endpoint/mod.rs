//! Endpoints (fi_endpoint(3)): calls of the program, translated for the engine.

mod messages;
mod remote;

use std::{
    ffi::{c_int, c_void},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    abi::*, addresses, completion::CompletionQueue, counter::Counter, domain::Domain, engine::Core,
    vector::Vector,
};

use self::{
    messages::{MESSAGES, TAGGED},
    remote::REMOTE_MEMORY,
};

/// The program's handle.
#[repr(C)]
pub struct Endpoint {
    abi: fid_ep,
    core: Arc<Core>,
    /// Flags of calls that have none. One thread may change them while others post (`FI_THREAD_SAFE`).
    send_flags: AtomicU64,
    receive_flags: AtomicU64,
    /// Successful receives are reported only with `FI_COMPLETION`.
    selective_receives: AtomicBool,
    /// Receives name the peer that they take messages from (`FI_DIRECTED_RECV`); the address is ignored otherwise.
    directed: bool,
}

static OBJECT: Table<6> =
    Table::new([close as *const (), bind as *const (), control as *const (), NONE, NONE, NONE]);
static ENDPOINT: Table<7> =
    Table::new([cancel as *const (), option as *const (), set_option as *const (), NONE, NONE, NONE, NONE]);
static ADDRESS: Table<9> = Table::new([NONE, name as *const (), NONE, NONE, NONE, NONE, NONE, NONE, NONE]);
static ATOMICS: Table<13> = Table::new([NONE; 13]);
static COLLECTIVES: Table<11> = Table::new([NONE; 11]);

/// `fi_endpoint`.
///
/// # Safety
/// [The contract of this library](crate#safety); `info` is of [`getinfo`](crate::info::getinfo) or a copy of it.
pub unsafe extern "C" fn open(
    domain: *mut Domain,
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
    // SAFETY: of `domain`.
    let regions = unsafe { &(*domain).regions };
    let core = match Core::open(address, regions.clone()) {
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
        send_flags: AtomicU64::new(flags.0),
        receive_flags: AtomicU64::new(flags.1),
        selective_receives: AtomicBool::new(false),
        directed,
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(endpoint))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close(endpoint: *mut Endpoint) -> c_int {
    // SAFETY: of `open`, and not used after this.
    let endpoint = unsafe { Box::from_raw(endpoint) };
    endpoint.core.close();
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `object` is one of this provider.
unsafe extern "C" fn bind(endpoint: *mut Endpoint, object: *mut fid, flags: u64) -> c_int {
    // SAFETY: of `open`; the object is of this provider.
    let (endpoint, class) = unsafe { (&*endpoint, (*object).fclass) };
    match class {
        FI_CLASS_CQ => {
            // SAFETY: as above, by its class.
            let completions = unsafe { &(*object.cast::<CompletionQueue>()).completions };
            let selective = flags & FI_SELECTIVE_COMPLETION != 0;
            completions.bind(&endpoint.core);
            endpoint.core.with(|engine| {
                let bound = [
                    (FI_SEND, &mut engine.sends),
                    (FI_SEND, &mut engine.fetches),
                    (FI_SEND, &mut engine.writes),
                    (FI_RECV, &mut engine.receives),
                ];
                for (_, report) in bound.into_iter().filter(|(direction, _)| flags & direction != 0) {
                    (report.completions, report.selective) = (Some(completions.clone()), selective);
                }
            });
            if flags & FI_RECV != 0 {
                endpoint.selective_receives.store(selective, Ordering::Relaxed);
            }
            0
        }
        FI_CLASS_CNTR => {
            // SAFETY: as above, by its class.
            let counter = unsafe { &*object.cast::<Counter>() };
            // What peers read and write here is counted for programs with FI_RMA_EVENT alone, which is not offered.
            if flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
                return -FI_ENOSYS;
            }
            counter.bind(&endpoint.core);
            endpoint.core.with(|engine| {
                let bound = [
                    (FI_SEND, &mut engine.sends),
                    (FI_READ, &mut engine.fetches),
                    (FI_WRITE, &mut engine.writes),
                    (FI_RECV, &mut engine.receives),
                ];
                for (_, report) in bound.into_iter().filter(|(kind, _)| flags & kind != 0) {
                    report.counts = Some(counter.counts.clone());
                }
            });
            0
        }
        FI_CLASS_AV => {
            // SAFETY: as above, by its class.
            let addresses = unsafe { &(*object.cast::<Vector>()).addresses };
            endpoint.core.with(|engine| engine.bind_vector(addresses.clone()));
            0
        }
        FI_CLASS_EQ => 0,
        _ => -FI_ENOSYS,
    }
}

/// # Safety
/// [The contract of this library](crate#safety); `argument` is a number for the commands about flags, and anything
/// for others.
unsafe extern "C" fn control(endpoint: *mut Endpoint, command: c_int, argument: *mut u64) -> c_int {
    // SAFETY: of `open`; the argument of the two commands with flags is a number.
    let endpoint = unsafe { &*endpoint };
    match command {
        FI_ENABLE => endpoint.core.start().map_or_else(|code| -code, |()| 0),
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: as above.
            let flags = unsafe { &mut *argument };
            let of = if *flags & FI_SEND != 0 { &endpoint.send_flags } else { &endpoint.receive_flags };
            if command == FI_GETOPSFLAG {
                *flags = of.load(Ordering::Relaxed);
            } else {
                of.store(*flags & !(FI_SEND | FI_RECV), Ordering::Relaxed);
            }
            0
        }
        _ => -FI_ENOSYS,
    }
}

/// # Safety
/// [The contract of this library](crate#safety); `context` is not followed.
unsafe extern "C" fn cancel(endpoint: *mut Endpoint, context: *mut c_void) -> isize {
    // SAFETY: of `open`.
    unsafe { &*endpoint }.core.with(|engine| engine.cancel(context));
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `length` bytes.
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
    // SAFETY: of `open`; the value of this option is a number, for which `length` says what room there is.
    unsafe {
        if length.read() < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        into.write_unaligned((*endpoint).core.with(|engine| engine.least_room()));
        length.write(size_of::<usize>());
    }
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `value` has `length` bytes.
unsafe extern "C" fn set_option(
    endpoint: *mut Endpoint,
    level: c_int,
    name: c_int,
    value: *const usize,
    length: usize,
) -> c_int {
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    if length < size_of::<usize>() {
        return -FI_EINVAL;
    }
    // SAFETY: of `open`; the value of this option is a number.
    unsafe {
        let value = value.read_unaligned();
        (*endpoint).core.with(|engine| engine.set_least_room(value));
    }
    0
}

/// # Safety
/// [The contract of this library](crate#safety); `into` has room for `length` bytes.
unsafe extern "C" fn name(endpoint: *mut Endpoint, into: *mut u8, length: *mut usize) -> c_int {
    // SAFETY: of `open`, and the caller's memory.
    unsafe {
        let address = (*endpoint).core.with(|engine| engine.address());
        if addresses::write(address, into, length) { 0 } else { -FI_ETOOSMALL }
    }
}
