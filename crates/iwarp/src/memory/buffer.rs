//! Exclusively owned memory: a plain slice that is lent to requests while they
//! are in flight.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
    slice,
    sync::{Arc, MutexGuard, PoisonError},
};

use super::{
    Access, Memory, MemoryError, MemoryTable, Span,
    storage::{Extent, Storage, Tag},
};
use crate::{stag::DomainId, work::Segment};

/// An exclusive range of registered local memory: a slice. To send from it or
/// receive into it, it is lent ([`Buffer::lend`]) and not accessible as a slice
/// meanwhile. Buffers of one allocation never overlap and use one STag, which
/// is deregistered with the last of them. A peer cannot access a buffer by its
/// STag.
pub struct Buffer {
    /// Sole owner: no other clone of the `Arc` exists.
    extent: Arc<Extent>,
}

impl Buffer {
    /// Allocates zeroed memory in a protection domain, aligned to 64 bytes.
    ///
    /// # Errors
    /// When memory or STags are exhausted, or the domain does not exist.
    pub fn new(table: &Arc<MemoryTable>, domain: DomainId, length: usize) -> Result<Self, MemoryError> {
        Self::register(table, domain, length, Ok)
    }

    /// Like [`Buffer::new`], with its pages locked in physical memory
    /// ([`Memory::pin`]).
    ///
    /// # Errors
    /// As for [`Buffer::new`], and when the pages cannot be locked.
    pub fn pinned(table: &Arc<MemoryTable>, domain: DomainId, length: usize) -> Result<Self, MemoryError> {
        Self::register(table, domain, length, Memory::pin)
    }

    fn register(
        table: &Arc<MemoryTable>,
        domain: DomainId,
        length: usize,
        prepare: impl FnOnce(Memory) -> Result<Memory, MemoryError>,
    ) -> Result<Self, MemoryError> {
        let storage = Storage::new(length, true)?;
        let whole = Extent::whole(storage.clone());
        let address = whole.base().addr() as u64;
        let memory = prepare(Memory::new(Arc::new(whole), address))?;
        let stag = table.register(domain, memory, Access::LOCAL_WRITE, 0)?;
        let tag = Arc::new(Tag { table: table.clone(), stag });
        Ok(Self { extent: Arc::new(Extent::whole(storage).tagged(tag)) })
    }

    /// Keeps the first `at` bytes and returns the rest.
    ///
    /// # Panics
    /// When the buffer is shorter.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let (start, length) = (self.extent.start(), self.extent.length());
        assert!(at <= length, "byte {at} of a buffer of {length}");
        let part = |start, length| {
            let extent = Extent::new(self.extent.storage().clone(), start, length);
            Arc::new(extent.tagged(tag(&self.extent).clone()))
        };
        let (first, rest) = (part(start, at), part(start + at, length - at));
        self.extent = first;
        Self { extent: rest }
    }

    /// Returns its local segment for a work request. The lookup succeeds only
    /// while the buffer is lent.
    ///
    /// # Panics
    /// When it is longer than a segment can describe (4 GiB).
    #[must_use]
    pub fn segment(&self) -> Segment {
        segment(&self.extent)
    }

    /// Lends it to work requests.
    #[must_use]
    pub fn lend(self) -> Loan {
        Loan::new(self.extent)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised when allocated, alive with the extent, and no
        // extent accessible through spans overlaps this one. The extent itself
        // has no clone: a span needs one, and only a loan hands it out. (The
        // table's extent of the whole allocation hands out none.)
        unsafe { slice::from_raw_parts(self.extent.base(), self.extent.length()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.extent.base(), self.extent.length()) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Buffer").field("length", &self.len()).finish_non_exhaustive()
    }
}

/// A buffer in flight. When this is dropped, new requests fail to find the
/// memory; spans that exist keep it alive.
pub struct Loan {
    /// `None` after it was reclaimed.
    extent: Option<Arc<Extent>>,
}

impl Loan {
    fn new(extent: Arc<Extent>) -> Self {
        // An empty buffer has the same address as its neighbour, and needs no
        // memory.
        if extent.length() > 0 {
            lent(&extent).insert(extent.start(), extent.clone());
        }
        Self { extent: Some(extent) }
    }

    /// Returns its local segment for a work request.
    ///
    /// # Panics
    /// When it is longer than a segment can describe (4 GiB).
    #[must_use]
    pub fn segment(&self) -> Segment {
        segment(self.extent())
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extent().length()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a span of all of it, for the data path.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.extent().clone(), 0, self.len())
    }

    /// Ends the loan and returns the buffer.
    ///
    /// # Errors
    /// The loan itself, still lent, while a [`Span`] of it is in use.
    pub fn reclaim(mut self) -> Result<Buffer, Self> {
        let Some(mut extent) = self.extent.take() else { unreachable!("taken in this function only") };
        end(&extent);
        // No new clone can be made now. `get_mut` checks that none is left and
        // orders all accesses through former clones before this point.
        if Arc::get_mut(&mut extent).is_some() {
            return Ok(Buffer { extent });
        }
        // Do not construct a `Buffer` even temporarily: that would create a
        // reference to bytes that another thread may be writing.
        Err(Self::new(extent))
    }

    fn extent(&self) -> &Arc<Extent> {
        self.extent.as_ref().unwrap_or_else(|| unreachable!("taken when the loan is consumed only"))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(extent) = &self.extent {
            end(extent);
        }
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Loan").field("length", &self.len()).finish_non_exhaustive()
    }
}

/// Returns a span of the lent extent that contains all of these bytes.
pub(super) fn find_lent(storage: &Storage, start: usize, length: usize) -> Option<Span> {
    let lent = storage.lent.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, extent) = lent.range(..=start).next_back()?;
    let inside = start - first;
    let fits = inside.checked_add(length)? <= extent.length();
    fits.then(|| Span::new(extent.clone(), inside, length))
}

fn end(extent: &Arc<Extent>) {
    if extent.length() > 0 {
        lent(extent).remove(&extent.start());
    }
}

fn lent(extent: &Arc<Extent>) -> MutexGuard<'_, BTreeMap<usize, Arc<Extent>>> {
    let lent = extent.storage().lent.as_ref();
    let lent = lent.unwrap_or_else(|| unreachable!("buffers are made of exclusive storage"));
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tag(extent: &Extent) -> &Arc<Tag> {
    extent.tag().unwrap_or_else(|| unreachable!("buffers are registered when they are made"))
}

fn segment(extent: &Extent) -> Segment {
    let Ok(length) = u32::try_from(extent.length()) else {
        panic!("a request takes less than 4 GiB of one buffer: split it");
    };
    Segment { stag: tag(extent).stag, address: extent.base().addr() as u64, length }
}
