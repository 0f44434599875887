//! Registration of foreign memory: memory owned by a C program or by a library
//! on top of this one.

use std::{any::Any, ptr::NonNull, sync::Arc};

use super::{
    Access, Memory, MemoryError, MemoryTable,
    storage::{Extent, Storage},
};
use crate::stag::{DomainId, Stag};

/// Registers `length` bytes at `base`. Their tagged offsets count from
/// `address` (usually the address of `base`), or from zero with
/// [`Access::ZERO_BASED`]. `owner` is dropped after the last use.
///
/// [`MemoryTable::deregister`] waits for accesses in progress, each at most one
/// non-blocking system call, and rejects all later ones, including those of
/// requests posted before. When it has returned the memory may be freed.
///
/// # Safety
/// From now until the STag is deregistered (or moved to other memory by
/// [`MemoryTable::reregister`]), or, with an owner, until that is dropped:
///
/// - the bytes are allocated and readable, and writable when `access` includes
///   any write right;
/// - Rust code accesses them through no reference, and through raw pointers
///   only while no request and no peer uses the same bytes. Concurrent accesses
///   of a C program follow the rules of RDMA: bytes written by two writers at
///   once have undefined contents.
///
/// # Errors
/// As for [`MemoryTable::register`].
#[allow(clippy::too_many_arguments, reason = "the arguments of the verb")]
pub unsafe fn register(
    table: &MemoryTable,
    domain: DomainId,
    base: NonNull<u8>,
    length: usize,
    address: u64,
    access: Access,
    key: u8,
    owner: Option<Box<dyn Any + Send + Sync>>,
) -> Result<Stag, MemoryError> {
    // SAFETY: upheld by the caller.
    let memory = unsafe { memory(base, length, address, owner)? };
    table.register(domain, memory, access, key)
}

/// Foreign memory, for [`MemoryTable::register`] or
/// [`MemoryTable::reregister`]; pin it before registration if needed.
///
/// # Safety
/// As for [`register`], from this call on; if it is never registered, until it
/// is dropped.
///
/// # Errors
/// When `length` exceeds the address space.
pub unsafe fn memory(
    base: NonNull<u8>,
    length: usize,
    address: u64,
    owner: Option<Box<dyn Any + Send + Sync>>,
) -> Result<Memory, MemoryError> {
    if isize::try_from(length).is_err() || base.addr().get().checked_add(length).is_none() {
        return Err(MemoryError::TooLong(length));
    }
    let storage = Arc::new(Storage::foreign(base, length, owner));
    Ok(Memory::new(Arc::new(Extent::whole(storage)), address))
}
