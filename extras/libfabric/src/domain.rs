//! Fabrics, domains and event queues: what an endpoint is made of.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use crate::{
    abi::*,
    completion, counter, endpoint,
    memory::{self, Regions},
    vector,
};

/// The program's handle of a domain.
#[repr(C)]
pub struct Domain {
    abi: fid_domain,
    /// Its memory that peers may read or write.
    pub regions: Arc<Regions>,
}

static FABRIC_OBJECT: Table<6> = Table::new([close_fabric as *const (), NONE, NONE, NONE, NONE, NONE]);
static FABRIC: Table<6> =
    Table::new([domain as *const (), NONE, events as *const (), NONE, trywait as *const (), NONE]);
static DOMAIN_OBJECT: Table<6> = Table::new([close_domain as *const (), NONE, NONE, NONE, NONE, NONE]);
static DOMAIN: Table<11> = Table::new([
    vector::open as *const (),
    completion::open as *const (),
    endpoint::open as *const (),
    NONE,
    counter::open as *const (),
    NONE,
    NONE,
    NONE,
    NONE,
    NONE,
    NONE,
]);
static EVENTS_OBJECT: Table<6> = Table::new([close_events as *const (), NONE, NONE, NONE, NONE, NONE]);
static EVENTS: Table<5> =
    Table::new([no_event as *const (), no_event as *const (), NONE, no_event as *const (), NONE]);

/// `fi_fabric`.
///
/// # Safety
/// [The contract of this library](crate#safety).
pub unsafe extern "C" fn fabric(
    attributes: *mut fi_fabric_attr,
    into: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's attributes.
    let api_version = unsafe { (*attributes).api_version };
    let fabric = fid_fabric {
        fid: fid { fclass: FI_CLASS_FABRIC, context, ops: FABRIC_OBJECT.address() },
        ops: FABRIC.address(),
        api_version,
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(fabric)).cast()) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close_fabric(fabric: *mut fid_fabric) -> c_int {
    // SAFETY: of `fabric`, and not used after this.
    drop(unsafe { Box::from_raw(fabric) });
    0
}

extern "C" fn trywait() -> c_int {
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn domain(
    _fabric: *mut fid_fabric,
    _info: *mut fi_info,
    into: *mut *mut Domain,
    context: *mut c_void,
) -> c_int {
    let abi = fid_domain {
        fid: fid { fclass: FI_CLASS_DOMAIN, context, ops: DOMAIN_OBJECT.address() },
        ops: DOMAIN.address(),
        mr: memory::OPERATIONS.address(),
    };
    let domain = Domain { abi, regions: Arc::default() };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(domain))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close_domain(domain: *mut Domain) -> c_int {
    // SAFETY: of `domain`, and not used after this.
    drop(unsafe { Box::from_raw(domain) });
    0
}

/// Event queue: nothing of this provider is reported there.
///
/// # Safety
/// [The contract of this library](crate#safety); `attributes` may be NULL.
unsafe extern "C" fn events(
    _fabric: *mut fid_fabric,
    attributes: *mut fi_eq_attr,
    into: *mut *mut fid_one,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's attributes.
    let wait = unsafe { attributes.as_ref() }.map_or(FI_WAIT_NONE, |wanted| wanted.wait_obj);
    if wait > FI_WAIT_UNSPEC {
        return -FI_ENOSYS;
    }
    let events = fid_one {
        fid: fid { fclass: FI_CLASS_EQ, context, ops: EVENTS_OBJECT.address() },
        ops: EVENTS.address(),
    };
    // SAFETY: the caller's variable.
    unsafe { into.write(Box::into_raw(Box::new(events))) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close_events(events: *mut fid_one) -> c_int {
    // SAFETY: of `events`, and not used after this.
    drop(unsafe { Box::from_raw(events) });
    0
}

extern "C" fn no_event() -> isize {
    -(FI_EAGAIN as isize)
}
