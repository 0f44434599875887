//! Memory that belongs to somebody else: what a C program or a library over
//! this one registers.

use std::{any::Any, ptr::NonNull, sync::Arc};

use super::{
    Access, Memory, MemoryError, MemoryTable,
    storage::{Extent, Storage},
};
use crate::stag::{DomainId, Stag};

/// Registers `length` bytes at `base`. Their tagged offsets count from `address`
/// (usually the address of `base`), or from zero with [`Access::ZERO_BASED`].
/// `owner` is dropped when the last use has ended.
///
/// [`MemoryTable::deregister`] waits for accesses that are under way, each at
/// most one system call that does not block, and refuses all later ones, also
/// those of requests that were posted before. When it has returned the memory
/// may be freed.
///
/// # Safety
/// From now until the tag was deregistered (or given other memory by
/// [`MemoryTable::reregister`]), or, with an owner, until that is dropped:
///
/// - the bytes are allocated and may be read, and written when `access` has
///   any right to write;
/// - Rust code reaches them by no reference, and by raw pointers only at times
///   at which no request and no peer uses the same bytes. What a C program
///   does beside it follows the rules of RDMA: bytes that are written by two
///   at a time hold anything.
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
    // SAFETY: the caller's.
    let memory = unsafe { memory(base, length, address, owner)? };
    table.register(domain, memory, access, key)
}

/// Memory of somebody else, for [`MemoryTable::register`] or
/// [`MemoryTable::reregister`], to be pinned first if wanted.
///
/// # Safety
/// As for [`register`], from now on; until this is dropped when it is never
/// registered.
///
/// # Errors
/// When it is longer than anything in memory.
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
