//! A context whose functions refuse: made by the libibverbs that the process has loaded, in the version that it is.
//!
//! Functions that this library does not replace, those of versions newer than any that its author knew, call what the
//! context's private part names. The real library fills that of each context with functions that return EOPNOTSUPP, each as
//! its type demands (`verbs_dummy_ops`), for providers to replace those that they have. So a context of the real library is
//! taken, and what is offered here is put into it.

use std::{
    ffi::{c_int, c_void},
    mem::{offset_of, transmute},
    ptr,
};

use crate::abi::{ibv_device, verbs_context};

/// The function by which providers allocate their contexts (`_verbs_init_and_alloc_context` of libibverbs since 17).
type Allocate = unsafe extern "C" fn(*mut ibv_device, c_int, usize, *mut c_void, u32) -> *mut c_void;

/// Bytes of its allocation, and the place of the context's beginning. Contexts of other versions than that which
/// [`verbs_context`] describes begin before or behind it.
const BYTES: usize = 16 << 10;
const BEGIN: usize = 4 << 10;
/// No provider's number (`RDMA_DRIVER_UNKNOWN`).
const DRIVER: u32 = 0;

/// Returns a context of the loaded libibverbs, which is never freed. `None` without that library, whose functions cannot be
/// called then, or if it is of another kind.
///
/// # Safety
/// `device` is never freed, and has the room that `struct verbs_device` of driver.h takes.
pub unsafe fn context(device: *mut ibv_device) -> Option<*mut verbs_context> {
    // SAFETY: names of the C library and of libibverbs, whose function has had this type since it exists (driver.h); the
    // device is as required of the caller. No descriptor is -1, on which its ioctl(2) fails.
    let base = unsafe {
        let library = libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let symbol = libc::dlsym(library, c"_verbs_init_and_alloc_context".as_ptr());
        if symbol.is_null() {
            return None;
        }
        let allocate: Allocate = transmute::<*mut c_void, Allocate>(symbol);
        allocate(device, -1, BYTES, ptr::without_provenance_mut(BEGIN), DRIVER)
    };
    if base.is_null() {
        return None;
    }
    // SAFETY: the allocation, which begins and ends with zeros.
    let end = unsafe { end_of(base.cast(), device) }?;
    // The structure grows at its beginning; its end is the same in all versions.
    Some(end.wrapping_sub(size_of::<verbs_context>()).cast())
}

/// Finds the end of the context: its size, which stands in front of the public part, leads from the beginning to it.
///
/// # Safety
/// `base` has [`BYTES`].
unsafe fn end_of(base: *mut u8, device: *mut ibv_device) -> Option<*mut u8> {
    let rest = size_of::<verbs_context>() - offset_of!(verbs_context, sz);
    (BEGIN..BYTES - rest).step_by(size_of::<usize>()).find_map(|at| {
        // SAFETY: within the allocation, and aligned.
        let (size, first) = unsafe {
            (base.add(at).cast::<usize>().read(), base.add(at + 8).cast::<*mut ibv_device>().read())
        };
        (BEGIN + size == at + rest && first == device).then(|| base.wrapping_add(BEGIN + size))
    })
}
