//! Where registered bytes live, and who keeps them alive.

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
    gate::{Gate, Inside},
    pin::Pinned,
    words::{Holder, WORD},
};
use crate::stag::Stag;

/// From here on memory is mapped: whole pages, zeroed by the kernel when they
/// are first touched.
const MAPPED_FROM_BYTES: usize = 64 * 1024;
/// From here on memory is mapped in huge pages where the system has them: a
/// copy by the kernel looks up fewer addresses, which a virtual machine looks up
/// twice.
const HUGE_FROM_BYTES: usize = 1 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Small memory begins at a cache line of its own.
const LINE_BYTES: usize = 64;

/// One allocation.
pub(super) struct Storage {
    base: NonNull<u8>,
    length: usize,
    origin: Origin,
    /// Of exclusive memory: what is lent at the moment, by first byte.
    pub(super) lent: Option<Mutex<BTreeMap<usize, Arc<Extent>>>>,
}

enum Origin {
    Heap(Layout),
    Mapped(usize),
    Foreign { gate: Gate, _owner: Option<Box<dyn Any + Send + Sync>> },
}

// SAFETY: the bytes are reached through `Holder`s (atomic accesses) or through
// the one `Buffer` that owns its range; the pointer itself never changes.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

impl Storage {
    /// Zeroed memory. The allocation ends at a whole word.
    pub(super) fn new(length: usize, exclusive: bool) -> Result<Arc<Self>, MemoryError> {
        let size = length.max(1).checked_next_multiple_of(WORD).ok_or(MemoryError::TooLong(length))?;
        let (base, origin) = if size >= MAPPED_FROM_BYTES { map(size)? } else { allocate(size)? };
        let lent = exclusive.then(Mutex::default);
        Ok(Arc::new(Self { base, length, origin, lent }))
    }

    /// Memory of somebody else.
    pub(super) fn foreign(
        base: NonNull<u8>,
        length: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self { base, length, origin: Origin::Foreign { gate: Gate::new(), _owner: owner }, lent: None }
    }

    /// Ends all use of memory that belongs to somebody else: waits for
    /// accesses under way, refuses later ones. Own memory needs none of it.
    pub(super) fn close(&self) {
        if let Origin::Foreign { gate, .. } = &self.origin {
            gate.close();
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated with this layout, and nobody is left.
            Origin::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            // SAFETY: mapped with this size, and nobody is left.
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
    // The kernel aligns a mapping of whole huge pages to one.
    let size = if huge { size.next_multiple_of(HUGE_PAGE_BYTES) } else { size };
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice.
    let base = unsafe { libc::mmap(ptr::null_mut(), size, rights, kind, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(MemoryError::NoMemory { length_bytes: size, source: io::Error::last_os_error() });
    }
    if huge {
        // SAFETY: advice about our own mapping. It may be refused, then pages
        // stay small.
        unsafe { libc::madvise(base, size, libc::MADV_HUGEPAGE) };
    }
    let refused = || MemoryError::NoMemory { length_bytes: size, source: io::ErrorKind::OutOfMemory.into() };
    Ok((NonNull::new(base.cast()).ok_or_else(refused)?, Origin::Mapped(size)))
}

/// A range of one allocation that is used as a whole: all of a region, or one
/// buffer. What [`super::Span`]s hold on to.
pub(super) struct Extent {
    storage: Arc<Storage>,
    start: usize,
    length: usize,
    /// Of a buffer: ends when the last buffer of the allocation is gone.
    tag: Option<Arc<Tag>>,
}

/// The registration that all buffers of an allocation share.
pub(super) struct Tag {
    pub(super) table: Arc<MemoryTable>,
    pub(super) stag: Stag,
}

impl Drop for Tag {
    fn drop(&mut self) {
        // Refused only if somebody else gave the tag up: then it is done.
        let _ = self.table.deregister(self.stag);
    }
}

impl Extent {
    pub(super) fn new(storage: Arc<Storage>, start: usize, length: usize) -> Self {
        assert!(start.checked_add(length).is_some_and(|end| end <= storage.length));
        Self { storage, start, length, tag: None }
    }

    /// The same with the registration that it is found by.
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
        unsafe { self.storage.base.as_ptr().add(self.start) }
    }

    pub(super) fn holder(&self) -> Holder {
        Holder { base: self.base(), length: self.length }
    }

    /// Keeps foreign memory in use until the guard is gone; `None` when it is
    /// no longer ours. Own memory is held by being referred to.
    pub(super) fn enter(&self) -> Option<Entered<'_>> {
        match &self.storage.origin {
            Origin::Foreign { gate, .. } => gate.enter().map(|inside| Entered { _inside: Some(inside) }),
            Origin::Heap(_) | Origin::Mapped(_) => Some(Entered { _inside: None }),
        }
    }
}

/// Memory to be registered: once, and gone with its registration.
pub struct Memory {
    // Unpinned before the memory itself goes.
    pin: Option<Pinned>,
    extent: Arc<Extent>,
    address: u64,
}

impl Memory {
    pub(super) fn new(extent: Arc<Extent>, address: u64) -> Self {
        Self { pin: None, extent, address }
    }

    /// Keeps its pages in physical memory from now until it is deregistered.
    /// Nothing needs it here, where the kernel places bytes by virtual address;
    /// it keeps page faults out of the data path.
    ///
    /// # Errors
    /// [`MemoryError::NotPinned`] when the system refuses (`RLIMIT_MEMLOCK`).
    pub fn pin(mut self) -> Result<Self, MemoryError> {
        if self.pin.is_none() {
            self.pin = Some(Pinned::new(self.extent.base(), self.extent.length())?);
        }
        Ok(self)
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extent.length()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its pages are kept in physical memory.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }

    /// The tagged offset of its first byte, unless it is registered zero-based.
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

/// Somebody is inside foreign memory, or own memory is referred to.
pub(super) struct Entered<'a> {
    _inside: Option<Inside<'a>>,
}
