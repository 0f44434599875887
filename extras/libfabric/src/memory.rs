//! Memory regions (fi_mr(3)). Requests need none; a program that registers memory all the same, for sends and receives,
//! gets an empty one. Access of peers is not offered.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use crate::abi::*;

/// Functions of a domain.
pub static OPERATIONS: Table<3> =
    Table::new([register as *const (), register_pieces as *const (), register_as as *const ()]);
static OBJECT: Table<6> = Table::new([close as *const (), NONE, NONE, NONE, NONE, NONE]);

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn register(
    _domain: *mut fid_domain,
    _buffer: *const c_void,
    _length: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    into: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { open(access, key, context, into) }
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn register_pieces(
    _domain: *mut fid_domain,
    _pieces: *const libc::iovec,
    _count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    into: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { open(access, key, context, into) }
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn register_as(
    _domain: *mut fid_domain,
    attributes: *const fi_mr_attr,
    _flags: u64,
    into: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the caller's attributes and variable.
    unsafe { open((*attributes).access, (*attributes).requested_key, (*attributes).context, into) }
}

/// # Safety
/// `into` is writable.
unsafe fn open(access: u64, key: u64, context: *mut c_void, into: *mut *mut fid_mr) -> c_int {
    if access & !(FI_SEND | FI_RECV) != 0 {
        return -FI_EOPNOTSUPP;
    }
    let fid = fid { fclass: FI_CLASS_MR, context, ops: OBJECT.address() };
    let region = Box::new(fid_mr { fid, mem_desc: ptr::null_mut(), key });
    // SAFETY: as required of the caller.
    unsafe { into.write(Box::into_raw(region)) };
    0
}

/// # Safety
/// [The contract of this library](crate#safety).
unsafe extern "C" fn close(region: *mut fid_mr) -> c_int {
    // SAFETY: of `open`, and not used after this.
    drop(unsafe { Box::from_raw(region) });
    0
}
