//! Registered memory and windows, by their steering tags.

use std::{ffi::c_void, ptr::NonNull};

use clearstream_iwarp::{
    memory::{Access, Memory, raw},
    stag::Stag,
};

use crate::{
    error::{CallError, IWARP_ERROR_STAG, IWARP_OK, verb},
    pointers::{at, give},
    rnic::{iwarp_domain, iwarp_rnic},
};

/// Receives and responses of Reads may be placed there.
pub const IWARP_LOCAL_WRITE: u32 = 1;
/// A peer may read it.
pub const IWARP_REMOTE_READ: u32 = 2;
/// A peer may write it.
pub const IWARP_REMOTE_WRITE: u32 = 4;
/// A peer may use atomic operations on it.
pub const IWARP_REMOTE_ATOMIC: u32 = 8;
/// Windows may be bound to it.
pub const IWARP_BIND_WINDOW: u32 = 16;
/// Tagged offsets count from its first byte instead of being addresses.
pub const IWARP_ZERO_BASED: u32 = 32;
/// Its pages are locked in physical memory (mlock). Not required by this RNIC;
/// it avoids page faults in the data path.
pub const IWARP_PIN: u32 = 256;

/// Current state of a steering tag.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iwarp_registration {
    /// Tagged offset of its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Access rights, and IWARP_PIN.
    pub access: u32,
    /// Of a bound window: its queue pair. 0: none.
    pub queue_pair: u32,
    /// Whether it is usable now.
    pub valid: bool,
}

/// Registers `length` bytes at `base` and returns their steering tag, whose
/// lower eight bits are `key`. Tagged offsets count from the address of `base`,
/// or from 0 with IWARP_ZERO_BASED.
///
/// The memory must stay allocated until iwarp_deregister_memory() has returned.
/// The program may read and write it at any time; bytes that a request or a
/// peer writes concurrently are then old, new, or a mix of both.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_register_memory(
    domain: *const iwarp_domain,
    base: *mut c_void,
    length: usize,
    access: u32,
    key: u8,
    stag: *mut u32,
) -> i32 {
    verb!("iwarp_register_memory", || {
        // SAFETY: as required by the header.
        let domain = unsafe { at(domain, "domain")? };
        let rights = rights(access)?;
        // SAFETY: as required by the header.
        let memory = unsafe { memory(base, length, access)? };
        let rnic = domain.domain.rnic();
        let tag = rnic.memory().register(domain.domain.id(), memory, rights, key)?;
        // SAFETY: as required by the header.
        if let Err(failure) = unsafe { give(stag, tag.0, "stag") } {
            rnic.memory().deregister(tag)?;
            return Err(failure);
        }
        Ok(IWARP_OK)
    })
}

/// Reregisters a region: in another domain unless `domain` is NULL, with other
/// memory unless `base` is NULL, always with the rights of `access`. The tag
/// gets its next key and is returned in `stag`. The old memory may be freed
/// when this has returned.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_reregister_memory(
    rnic: *const iwarp_rnic,
    domain: *const iwarp_domain,
    base: *mut c_void,
    length: usize,
    access: u32,
    stag: *mut u32,
) -> i32 {
    verb!("iwarp_reregister_memory", || {
        // SAFETY: as required by the header.
        let (rnic, old) = unsafe { (at(rnic, "rnic")?, *at(stag, "stag")?) };
        let rights = rights(access)?;
        // SAFETY: as required by the header.
        let domain = unsafe { domain.as_ref() }.map(|domain| domain.domain.id());
        let memory = if base.is_null() {
            None
        } else {
            // SAFETY: as required by the header.
            Some(unsafe { memory(base, length, access)? })
        };
        let new = rnic.rnic.memory().reregister(Stag(old), domain, memory, Some(rights))?;
        // SAFETY: as required by the header.
        unsafe { give(stag, new.0, "stag")? };
        Ok(IWARP_OK)
    })
}

/// Deregisters a region. Waits for accesses in progress, each at most one
/// non-blocking system call; requests that still use the memory fail. When this
/// has returned the memory may be freed.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_deregister_memory(rnic: *const iwarp_rnic, stag: u32) -> i32 {
    verb!("iwarp_deregister_memory", || {
        // SAFETY: as required by the header.
        unsafe { at(rnic, "rnic")? }.rnic.memory().deregister(Stag(stag))?;
        Ok(IWARP_OK)
    })
}

/// Allocates an unbound memory window. IWARP_BIND_WINDOW_TO binds it; its tag
/// is then iwarp_next_stag() of the previous one.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_allocate_window(domain: *const iwarp_domain, stag: *mut u32) -> i32 {
    verb!("iwarp_allocate_window", || {
        // SAFETY: as required by the header.
        let domain = unsafe { at(domain, "domain")? };
        let rnic = domain.domain.rnic();
        let tag = rnic.memory().allocate_window(domain.domain.id())?;
        // SAFETY: as required by the header.
        if let Err(failure) = unsafe { give(stag, tag.0, "stag") } {
            rnic.memory().deregister(tag)?;
            return Err(failure);
        }
        Ok(IWARP_OK)
    })
}

/// Deallocates a window, bound or not.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_deallocate_window(rnic: *const iwarp_rnic, stag: u32) -> i32 {
    verb!("iwarp_deallocate_window", || {
        // SAFETY: as required by the header.
        unsafe { at(rnic, "rnic")? }.rnic.memory().deregister(Stag(stag))?;
        Ok(IWARP_OK)
    })
}

/// Returns the tag after the next bind of a window, or after a reregistration
/// of a region: the same index with the next key.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn iwarp_next_stag(stag: u32) -> u32 {
    let mut next = stag;
    verb!("iwarp_next_stag", || {
        next = Stag(stag).next_key().0;
        Ok(IWARP_OK)
    });
    next
}

/// Returns the current state of a steering tag.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn iwarp_query_stag(
    rnic: *const iwarp_rnic,
    stag: u32,
    registration: *mut iwarp_registration,
) -> i32 {
    verb!("iwarp_query_stag", || {
        // SAFETY: as required by the header.
        let table = unsafe { at(rnic, "rnic")? }.rnic.memory();
        let known = table.registration(Stag(stag)).ok_or_else(|| {
            let why =
                format!("there is no steering tag {}: use the one of the last registration", Stag(stag));
            CallError::new(IWARP_ERROR_STAG, why)
        })?;
        let value = iwarp_registration {
            address: known.address,
            length: known.length_bytes,
            access: u32::from(known.access.bits()) | if known.pinned { IWARP_PIN } else { 0 },
            queue_pair: known.queue_pair.map_or(0, |pair| pair.0),
            valid: known.valid,
        };
        // SAFETY: as required by the header.
        unsafe { give(registration, value, "registration")? };
        Ok(IWARP_OK)
    })
}

/// # Safety
/// As for [`iwarp_register_memory`], from this call on.
unsafe fn memory(base: *mut c_void, length: usize, access: u32) -> Result<Memory, CallError> {
    let base = NonNull::new(base.cast()).ok_or_else(|| CallError::argument("`base` is NULL"))?;
    let address = base.addr().get() as u64;
    // SAFETY: upheld by the caller, as documented in the header.
    let memory = unsafe { raw::memory(base, length, address, None)? };
    if access & IWARP_PIN == 0 { Ok(memory) } else { Ok(memory.pin()?) }
}

pub(crate) fn rights(access: u32) -> Result<Access, CallError> {
    let bits = u8::try_from(access & !IWARP_PIN).ok().and_then(Access::from_bits);
    bits.ok_or_else(|| CallError::argument(format!("`access` is {access:#x}: a bit of it is no right")))
}
