//! Memory with one owner: a plain slice that is given away while it is in
//! flight.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
    slice,
    sync::{Arc, MutexGuard, PoisonError},
};

use super::{
    Memory, MemoryError, Span,
    storage::{Extent, Storage},
};
use crate::{stag::Stag, work::Segment};

/// An exclusive range of local memory: a slice. To be sent from or received
/// into it is lent ([`Buffer::lend`]), and is no slice meanwhile. Buffers of one
/// allocation never overlap.
///
/// The memory is registered once, by [`Buffer::memory`], for all buffers that
/// are split from the first one.
pub struct Buffer {
    /// Nobody else holds a clone.
    extent: Arc<Extent>,
}

impl Buffer {
    /// Zeroed memory; its first byte is aligned to 64 bytes.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn new(length: usize) -> Result<Self, MemoryError> {
        Ok(Self { extent: Arc::new(Extent::whole(Storage::new(length, true)?)) })
    }

    /// What is registered: the whole allocation that this buffer is a part of.
    /// It can be registered for local access only.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let whole = Extent::whole(self.extent.storage().clone());
        let address = whole.base().addr() as u64;
        Memory::new(Arc::new(whole), address)
    }

    /// Keeps the first `at` bytes and returns the rest.
    ///
    /// # Panics
    /// When there are not as many.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let (start, length) = (self.extent.start(), self.extent.length());
        assert!(at <= length, "byte {at} of a buffer of {length}");
        let rest = Extent::new(self.extent.storage().clone(), start + at, length - at);
        self.extent = Arc::new(Extent::new(self.extent.storage().clone(), start, at));
        Self { extent: Arc::new(rest) }
    }

    /// Where it is, for a request; `stag` is the tag of its memory. Such a
    /// request finds it only while it is lent.
    ///
    /// # Panics
    /// When it is longer than a request can say (4 GiB).
    #[must_use]
    pub fn segment(&self, stag: Stag) -> Segment {
        segment(&self.extent, stag)
    }

    /// Gives it away to requests.
    #[must_use]
    pub fn lend(self) -> Loan {
        // An empty buffer is at the same place as its neighbour, and needs no
        // memory.
        if !self.is_empty() {
            lent(&self.extent).insert(self.extent.start(), self.extent.clone());
        }
        Loan { extent: Some(self.extent) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised when allocated, alive with the extent, and no
        // other extent overlaps this one, of which there is no clone: a span
        // needs one, and only a loan gives it out.
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

/// A buffer in flight. When this is dropped, requests no longer find the
/// memory; what already found it keeps it alive.
pub struct Loan {
    /// `None` when it was taken back.
    extent: Option<Arc<Extent>>,
}

impl Loan {
    /// Where it is, for a request.
    ///
    /// # Panics
    /// When it is longer than a request can say (4 GiB).
    #[must_use]
    pub fn segment(&self, stag: Stag) -> Segment {
        segment(self.extent(), stag)
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extent().length()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, as the data path sees it.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.extent().clone(), 0, self.len())
    }

    /// Ends the loan.
    ///
    /// # Errors
    /// The loan itself, still lent, while a [`Span`] of it is in use.
    pub fn take_back(mut self) -> Result<Buffer, Self> {
        let Some(mut extent) = self.extent.take() else { unreachable!("taken in this function only") };
        end(&extent);
        // Nobody can get a new clone now. That there is none left, and that
        // whatever was done through those that were has happened, is what
        // `get_mut` finds out.
        if Arc::get_mut(&mut extent).is_some() {
            return Ok(Buffer { extent });
        }
        Err(Buffer { extent }.lend())
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

/// The lent extent that has all of these bytes.
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

fn segment(extent: &Extent, stag: Stag) -> Segment {
    let Ok(length) = u32::try_from(extent.length()) else {
        panic!("a request takes less than 4 GiB of one buffer: split it");
    };
    Segment { stag, address: extent.base().addr() as u64, length }
}
