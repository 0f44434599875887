//! Allocation and lifetime of registered memory.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    any::Any,
    collections::BTreeMap,
    fmt, io,
    ptr::{self, NonNull},
    sync::{Arc, Mutex},
};

use super::{
    MemoryError, MemoryTable,
    atomic_copy::{Holder, U64_BYTES},
    gate::{Gate, GateGuard},
    pin::Pinned,
    reach::Reach,
};
use crate::stag::Stag;

/// Threshold for mapped memory: whole pages, zeroed by the kernel on first
/// touch.
const MAPPED_FROM_BYTES: usize = 64 * 1024;
/// Threshold for huge pages where the system has them: copies by the kernel
/// cause fewer TLB misses, which are twice as expensive in a virtual machine.
const HUGE_FROM_BYTES: usize = 1 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Alignment of small allocations: a cache line.
const LINE_BYTES: usize = 64;

/// One allocation.
pub(super) struct Storage {
    base: NonNull<u8>,
    length: usize,
    origin: Origin,
    /// Of exclusive memory: the extents that are lent at the moment, by first
    /// byte.
    pub(super) lent: Option<Mutex<BTreeMap<usize, Arc<Extent>>>>,
}

enum Origin {
    Heap(Layout),
    Mapped(usize),
    /// `reach` is `None` where its owner vouches for it: it is accessed as own memory is.
    Foreign {
        gate: Gate,
        reach: Option<Reach>,
        _owner: Option<Box<dyn Any + Send + Sync>>,
    },
}

// SAFETY: the bytes are accessed through `Holder`s (atomic accesses) or through
// the one `Buffer` that owns its range; the pointer itself never changes.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

impl Storage {
    /// Allocates zeroed memory. The size is rounded up to a whole word.
    pub(super) fn new(length: usize, exclusive: bool) -> Result<Arc<Self>, MemoryError> {
        let size = length.max(1).checked_next_multiple_of(U64_BYTES).ok_or(MemoryError::TooLong(length))?;
        let (base, origin) = if size >= MAPPED_FROM_BYTES { map(size)? } else { allocate(size)? };
        let lent = exclusive.then(Mutex::default);
        Ok(Arc::new(Self { base, length, origin, lent }))
    }

    /// Wraps foreign memory.
    pub(super) fn foreign(
        base: NonNull<u8>,
        length: usize,
        reach: Option<Reach>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self { base, length, origin: Origin::Foreign { gate: Gate::new(), reach, _owner: owner }, lent: None }
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Ends all use of foreign memory: waits for accesses in progress, rejects
    /// later ones. No-op for own memory.
    pub(super) fn close(&self) {
        if let Origin::Foreign { gate, .. } = &self.origin {
            gate.close();
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated with this layout, and no reference is left.
            Origin::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            // SAFETY: mapped with this size, and no reference is left.
            Origin::Mapped(size) => unsafe {
                libc::munmap(self.base.as_ptr().cast(), size);
            },
            Origin::Foreign { .. } => {}
        }
    }
}

fn allocate(size: usize) -> Result<(NonNull<u8>, Origin), MemoryError> {
    let layout = Layout::from_size_align(size, LINE_BYTES).map_err(|_| MemoryError::TooLong(size))?;
    // SAFETY: the size is not zero.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) });
    let refused = || MemoryError::NoMemory { length_bytes: size, source: io::ErrorKind::OutOfMemory.into() };
    Ok((base.ok_or_else(refused)?, Origin::Heap(layout)))
}

fn map(size: usize) -> Result<(NonNull<u8>, Origin), MemoryError> {
    if isize::try_from(size).is_err() {
        return Err(MemoryError::TooLong(size));
    }
    let huge = size >= HUGE_FROM_BYTES;
    // The kernel aligns a mapping of whole huge pages to a huge page boundary.
    let size = if huge { size.next_multiple_of(HUGE_PAGE_BYTES) } else { size };
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address chosen by the kernel.
    let base = unsafe { libc::mmap(ptr::null_mut(), size, rights, kind, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(MemoryError::NoMemory { length_bytes: size, source: io::Error::last_os_error() });
    }
    if huge {
        // SAFETY: advice about our own mapping. If it is rejected, pages stay
        // small.
        unsafe { libc::madvise(base, size, libc::MADV_HUGEPAGE) };
    }
    let refused = || MemoryError::NoMemory { length_bytes: size, source: io::ErrorKind::OutOfMemory.into() };
    Ok((NonNull::new(base.cast()).ok_or_else(refused)?, Origin::Mapped(size)))
}

/// A range of one allocation that is used as a unit: all of a region, or one
/// buffer. [`super::Span`]s hold a reference to it.
pub(super) struct Extent {
    storage: Arc<Storage>,
    start: usize,
    length: usize,
    /// Of a buffer: dropped with the last buffer of the allocation.
    tag: Option<Arc<Tag>>,
}

/// The registration that all buffers of an allocation have in common.
pub(super) struct Tag {
    pub(super) table: Arc<MemoryTable>,
    pub(super) stag: Stag,
}

impl Drop for Tag {
    fn drop(&mut self) {
        // Fails only if the tag was already deregistered.
        let _ = self.table.deregister(self.stag);
    }
}

impl Extent {
    pub(super) fn new(storage: Arc<Storage>, start: usize, length: usize) -> Self {
        assert!(start.checked_add(length).is_some_and(|end| end <= storage.length));
        Self { storage, start, length, tag: None }
    }

    /// Attaches the registration by which it is looked up.
    pub(super) fn tagged(self, tag: Arc<Tag>) -> Self {
        Self { tag: Some(tag), ..self }
    }

    pub(super) fn tag(&self) -> Option<&Arc<Tag>> {
        self.tag.as_ref()
    }

    pub(super) fn whole(storage: Arc<Storage>) -> Self {
        let length = storage.length;
        Self::new(storage, 0, length)
    }

    pub(super) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    pub(super) fn start(&self) -> usize {
        self.start
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn base(&self) -> *mut u8 {
        // SAFETY: `start` is inside, or one past the last byte.
        unsafe { self.storage.base().add(self.start) }
    }

    pub(super) fn holder(&self) -> Holder {
        Holder { base: self.base(), length: self.length }
    }

    /// How its bytes are reached, if not by loads and stores.
    pub(super) fn reach(&self) -> Option<&Reach> {
        match &self.storage.origin {
            Origin::Foreign { reach, .. } => reach.as_ref(),
            Origin::Heap(_) | Origin::Mapped(_) => None,
        }
    }

    /// Keeps foreign memory accessible until the guard is dropped; `None` when
    /// it was withdrawn. Own memory is kept alive by the reference.
    pub(super) fn enter(&self) -> Option<Entered<'_>> {
        match &self.storage.origin {
            Origin::Foreign { gate, .. } => gate.enter().map(|inside| Entered { _inside: Some(inside) }),
            Origin::Heap(_) | Origin::Mapped(_) => Some(Entered { _inside: None }),
        }
    }
}

/// Memory to be registered: once, released with its registration.
pub struct Memory {
    // Unpinned before the memory itself is freed.
    pin: Option<Pinned>,
    extent: Arc<Extent>,
    address: u64,
}

impl Memory {
    pub(super) fn new(extent: Arc<Extent>, address: u64) -> Self {
        Self { pin: None, extent, address }
    }

    /// Locks its pages in physical memory from now until it is deregistered.
    /// Not required for correctness, because the kernel places bytes by virtual
    /// address; it avoids page faults in the data path.
    ///
    /// # Errors
    /// [`MemoryError::NotPinned`] when the system call fails
    /// (`RLIMIT_MEMLOCK`).
    pub fn pin(mut self) -> Result<Self, MemoryError> {
        if self.pin.is_none() {
            self.pin = Some(Pinned::new(self.extent.base(), self.extent.length())?);
        }
        Ok(self)
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extent.length()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its pages are locked in physical memory.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }

    /// Returns the tagged offset of its first byte, unless it is registered
    /// zero-based.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.extent.storage.lent.is_some()
    }

    pub(super) fn extent(&self) -> &Arc<Extent> {
        &self.extent
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Memory");
        debug.field("address", &self.address).field("length", &self.len()).field("pinned", &self.is_pinned());
        debug.finish_non_exhaustive()
    }
}

/// Guard: foreign memory is entered, or own memory is referenced.
pub(super) struct Entered<'a> {
    _inside: Option<GateGuard<'a>>,
}
