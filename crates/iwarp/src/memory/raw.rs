//! Registration of foreign memory: memory owned by a C program or by a library
//! on top of this one.

use std::{
    any::Any,
    io,
    ptr::{self, NonNull},
    sync::Arc,
};

use rustix::{
    io::Errno,
    mm::{Advice, madvise},
};

use super::{
    Access, Memory, MemoryError, MemoryTable,
    reach::Reach,
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
    let storage = Arc::new(Storage::foreign(base, length, None, owner));
    Ok(Memory::new(Arc::new(Extent::whole(storage)), address))
}

/// Foreign memory of which parts may not be mapped, or not yet: no load or store reaches it, only calls of the kernel that
/// check its addresses. An access to what is not there fails.
///
/// # Safety
/// As for [`register`], of what is mapped.
///
/// # Errors
/// As for [`memory`].
pub unsafe fn sparse(base: NonNull<u8>, length: usize, address: u64) -> Result<Memory, MemoryError> {
    if isize::try_from(length).is_err() || base.addr().get().checked_add(length).is_none() {
        return Err(MemoryError::TooLong(length));
    }
    let storage = Arc::new(Storage::foreign(base, length, Some(Reach::Checked), None));
    Ok(Memory::new(Arc::new(Extent::whole(storage)), address))
}

/// How memory is to be reached that its owner may take away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// The kernel holds its pages, where it can.
    #[default]
    Held,
    /// By calls of the kernel that check its addresses.
    Checked,
}

/// Registers memory that its owner may take away before it is deregistered, by munmap(2), free(3) or whatever changes
/// what is at its addresses. Whatever it does, no access of a peer ends the program; one that fails ends its
/// connection.
///
/// Returns why the kernel does not hold its pages, if it does not: then an access finds out that the memory is gone, and
/// does not find out that other memory is at its addresses.
///
/// # Errors
/// [`MemoryError::Inaccessible`] where it is not mapped with the rights that `access` needs, as a card's driver refuses it
/// (ibv_reg_mr(3)); those of [`MemoryTable::register`].
pub fn register_untrusted(
    table: &MemoryTable,
    domain: DomainId,
    base: *mut u8,
    length: usize,
    address: u64,
    access: Access,
    keeping: Keeping,
) -> Result<(Stag, Option<io::Error>), MemoryError> {
    if isize::try_from(length).is_err() || base.addr().checked_add(length).is_none() {
        return Err(MemoryError::TooLong(length));
    }
    let held = match keeping {
        Keeping::Held => table.keeper().hold(base, length),
        Keeping::Checked => Err(io::ErrorKind::Unsupported.into()),
    };
    let (reach, not_held) = match held {
        Ok(hold) => (Reach::Held(hold), None),
        Err(why) => {
            populate(base, length, access.writes())?;
            (Reach::Checked, Some(why))
        }
    };
    let place = NonNull::new(base).unwrap_or(NonNull::dangling());
    let storage = Arc::new(Storage::foreign(place, length, Some(reach), None));
    let memory = Memory::new(Arc::new(Extent::whole(storage)), address);
    Ok((table.register(domain, memory, access, 0)?, not_held))
}

/// Makes the kernel look at each page, as the registration with a card does (madvise(2), `MADV_POPULATE_WRITE`, Linux
/// 5.14).
fn populate(base: *mut u8, length: usize, writes: bool) -> Result<(), MemoryError> {
    let page = rustix::param::page_size();
    let inside = base.addr() % page;
    let advice = if writes { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    let advised = |base: *mut u8, length: usize| {
        // SAFETY: pages are made present, and none is changed.
        unsafe { madvise(base.cast(), length, advice) }
    };
    match advised(base.wrapping_sub(inside), (inside + length).next_multiple_of(page)) {
        Ok(()) => Ok(()),
        // Of a mapping without the rights, or of a device; or the kernel does not know it at all: of nothing either.
        Err(Errno::INVAL) if advised(ptr::null_mut(), 0).is_err() => Ok(()),
        Err(source) => Err(MemoryError::Inaccessible {
            address: base.addr(),
            length_bytes: length,
            source: source.into(),
        }),
    }
}
