//! A checked range of registered memory.

use std::{
    fmt,
    mem::MaybeUninit,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{Ordering, fence},
    },
};

use smallvec::SmallVec;

use super::{
    AccessError, atomic_copy, fold, held,
    reach::Reach,
    storage::{Entered, Extent},
};
use crate::mpa::Crc;

/// Chunk size when bytes are copied out for a consumer of plain bytes.
const CHUNK_BYTES: usize = 16384;
/// Held memory from this length on is sent by its pages. A request of its own costs less than a copy would.
const PAGES_FROM_BYTES: usize = 16 << 10;

/// A checked range of registered memory. It keeps the memory alive; a clone
/// costs a reference count.
///
/// Foreign memory ([`super::raw`]) may be withdrawn while a span exists. Then
/// every access fails, and [`super::send`] and [`super::receive`] with it.
#[derive(Clone)]
pub struct Span {
    /// `None` when empty.
    extent: Option<Arc<Extent>>,
    start: usize,
    length: usize,
}

impl Span {
    /// Returns an empty span.
    #[must_use]
    pub fn empty() -> Self {
        Self { extent: None, start: 0, length: 0 }
    }

    /// Creates a span of an extent.
    pub(super) fn new(extent: Arc<Extent>, start: usize, length: usize) -> Self {
        assert!(start.checked_add(length).is_some_and(|end| end <= extent.length()));
        Self { extent: Some(extent), start, length }
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns a part of it.
    ///
    /// # Panics
    /// When the part is out of bounds.
    #[must_use]
    pub fn slice(&self, from: usize, length: usize) -> Self {
        self.check(from, length);
        Self { extent: self.extent.clone(), start: self.start + from, length }
    }

    /// Copies bytes in, first to last. A thread that reads one of them with an
    /// acquiring load (`Region::load`) also sees everything written before this
    /// call.
    ///
    /// # Errors
    /// [`AccessError::InvalidStag`] when the memory was withdrawn: nothing was
    /// written.
    ///
    /// # Panics
    /// When they exceed the span.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), AccessError> {
        self.check(at, bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        let (extent, _inside) = self.enter().ok_or(AccessError::InvalidStag)?;
        fence(Ordering::Release);
        if let Some(reach) = extent.reach() {
            return reach.store(extent.storage().base(), extent.start() + self.start + at, bytes);
        }
        // SAFETY: the extent is alive and entered, and accessed through atomic
        // words.
        unsafe { atomic_copy::store(extent.holder(), self.start + at, bytes) };
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`AccessError::InvalidStag`] when the memory was withdrawn: `into` is
    /// unchanged.
    ///
    /// # Panics
    /// When the range exceeds the span.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), AccessError> {
        // SAFETY: the same bytes, and `read_to` writes bytes only.
        let into = unsafe { &mut *(ptr::from_mut(into) as *mut [MaybeUninit<u8>]) };
        self.read_to(at, into).map(|_| ())
    }

    /// Like [`Span::read`], into uninitialised memory.
    fn read_to<'a>(&self, at: usize, into: &'a mut [MaybeUninit<u8>]) -> Result<&'a [u8], AccessError> {
        self.check(at, into.len());
        if !into.is_empty() {
            let (extent, _inside) = self.enter().ok_or(AccessError::InvalidStag)?;
            match extent.reach() {
                Some(reach) => reach.load(extent.storage().base(), extent.start() + self.start + at, into)?,
                // SAFETY: as in `write`.
                None => unsafe { atomic_copy::load(extent.holder(), self.start + at, into) },
            }
            fence(Ordering::Acquire);
        }
        // SAFETY: all of it was initialised by one of the two.
        Ok(unsafe { into.assume_init_ref() })
    }

    /// Appends all of it to `bytes`.
    ///
    /// # Errors
    /// As for [`Span::read`]: nothing is appended.
    pub fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), AccessError> {
        bytes.reserve(self.length);
        let read = self.read_to(0, &mut bytes.spare_capacity_mut()[..self.length])?.len();
        // SAFETY: that many bytes past the end were initialised.
        unsafe { bytes.set_len(bytes.len() + read) };
        Ok(())
    }

    /// Passes all of it as plain bytes, in chunks of a few KiB: memory with
    /// concurrent writers cannot be borrowed as a slice.
    ///
    /// # Errors
    /// As for [`Span::read`]; part of it may have been passed.
    pub fn each_chunk(&self, mut take: impl FnMut(&[u8])) -> Result<(), AccessError> {
        let mut chunk = [const { MaybeUninit::uninit() }; CHUNK_BYTES];
        let mut at = 0;
        while at < self.length {
            let most = CHUNK_BYTES.min(self.length - at);
            take(self.read_to(at, &mut chunk[..most])?);
            at += most;
        }
        Ok(())
    }

    /// Adds all of it to a running CRC.
    ///
    /// # Errors
    /// [`AccessError::InvalidStag`] when the memory was withdrawn: nothing was
    /// added.
    pub fn crc32c(&self, running: &mut Crc) -> Result<(), AccessError> {
        if !self.is_direct() {
            return self.each_chunk(|chunk| running.update(chunk));
        }
        if self.length > 0 {
            let (extent, _inside) = self.enter().ok_or(AccessError::InvalidStag)?;
            // SAFETY: as in `write`.
            unsafe { fold::crc(extent.holder(), self.start, self.length, running) };
            fence(Ordering::Acquire);
        }
        Ok(())
    }

    /// Appends all of it to `bytes` and adds it to a running CRC, in one pass
    /// where the processor can.
    ///
    /// # Errors
    /// As for [`Span::crc32c`]: nothing is appended.
    pub fn append_checked(&self, bytes: &mut Vec<u8>, running: &mut Crc) -> Result<(), AccessError> {
        if !self.is_direct() {
            let from = bytes.len();
            self.append_to(bytes)?;
            running.update(&bytes[from..]);
            return Ok(());
        }
        if self.length > 0 {
            bytes.reserve(self.length);
            let (extent, _inside) = self.enter().ok_or(AccessError::InvalidStag)?;
            let spare = &mut bytes.spare_capacity_mut()[..self.length];
            // SAFETY: as in `write`; `load` initialises all of the spare bytes.
            unsafe {
                fold::load(extent.holder(), self.start, spare, running);
                bytes.set_len(bytes.len() + self.length);
            }
            fence(Ordering::Acquire);
        }
        Ok(())
    }

    /// Whether it is accessed by loads and stores.
    pub(crate) fn is_direct(&self) -> bool {
        self.extent.as_ref().is_none_or(|extent| extent.reach().is_none())
    }

    /// Whether the kernel holds its pages.
    pub(crate) fn is_held(&self) -> bool {
        self.extent.as_ref().is_some_and(|extent| matches!(extent.reach(), Some(Reach::Held(_))))
    }

    /// Whether the other is the memory behind it.
    pub(super) fn is_followed_by(&self, other: &Self) -> bool {
        let of_one = matches!((&self.extent, &other.extent), (Some(one), Some(two)) if Arc::ptr_eq(one, two));
        of_one && self.start + self.length == other.start
    }

    /// Adds the bytes behind it, which are registered with it.
    pub(super) fn extend(&mut self, bytes: usize) {
        self.length += bytes;
    }

    /// Writes bytes to spans whose pages the kernel holds, by as few calls as there can be.
    ///
    /// # Errors
    /// As for [`Span::write`]: nothing was written.
    pub(super) fn write_held(spans: &[Self], bytes: &[u8]) -> Result<(), AccessError> {
        let held = Self::enter_all(spans).ok_or(AccessError::InvalidStag)?;
        let Some(rings) = held.rings else { return Ok(()) };
        fence(Ordering::Release);
        rings.place(&held.parts, bytes).map_err(|_| AccessError::InvalidStag)
    }

    /// The parts of spans whose pages the kernel holds, with the guards that keep them: those of one memory table.
    pub(super) fn enter_all<'a>(spans: impl IntoIterator<Item = &'a Self>) -> Option<HeldParts<'a>> {
        let mut held = HeldParts { rings: None, parts: SmallVec::new(), _inside: SmallVec::new() };
        for span in spans {
            let (extent, inside) = span.enter()?;
            let Some(Reach::Held(hold)) = extent.reach() else { return None };
            held.parts.extend(hold.parts(extent.start() + span.start, span.length));
            held.rings = Some(hold.rings());
            held._inside.push(inside);
        }
        Some(held)
    }

    /// Whether so many bytes of it are sent by the pages that the kernel holds, not by its address.
    pub(crate) fn sends_pages(&self, bytes: usize) -> bool {
        let reach = self.extent.as_ref().and_then(|extent| extent.reach());
        bytes >= PAGES_FROM_BYTES && matches!(reach, Some(Reach::Held(hold)) if hold.rings().can_send())
    }

    /// Whether its owner withdrew the memory.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.length > 0 && self.enter().is_none()
    }

    /// Adds to its eight bytes and returns the previous value, atomically for
    /// all threads and processes of this host (of memory that its owner may
    /// take away: for all peers of this process). A bit of `mask` marks the most
    /// significant bit of a field: no carry leaves the field (RFC 7306, section
    /// 5.1.1).
    ///
    /// # Errors
    /// [`AccessError::Misaligned`] unless it is eight aligned bytes,
    /// [`AccessError::InvalidStag`] when the memory was withdrawn.
    pub fn fetch_add(&self, add: u64, mask: u64) -> Result<u64, AccessError> {
        self.update(|old| Some(masked_add(old, add, mask)))
    }

    /// Compares its eight bytes under `compare_mask` and, when they are equal,
    /// swaps those under `swap_mask`; returns the previous value (RFC 7306,
    /// section 5.1.2).
    ///
    /// # Errors
    /// As for [`Span::fetch_add`].
    pub fn compare_swap(
        &self,
        compare: u64,
        compare_mask: u64,
        swap: u64,
        swap_mask: u64,
    ) -> Result<u64, AccessError> {
        self.update(|old| {
            let equal = (old ^ compare) & compare_mask == 0;
            equal.then_some((old & !swap_mask) | (swap & swap_mask))
        })
    }

    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, AccessError> {
        if self.length != atomic_copy::U64_BYTES {
            return Err(AccessError::Misaligned);
        }
        if !self.is_direct() {
            return self.update_by_calls(change);
        }
        let (extent, _inside) = self.enter().ok_or(AccessError::InvalidStag)?;
        // SAFETY: the extent is alive and entered until the end of this function.
        let atomic =
            unsafe { atomic_copy::u64_at(extent.holder(), self.start) }.ok_or(AccessError::Misaligned)?;
        let updated = atomic.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        Ok(updated.unwrap_or_else(|unchanged| unchanged))
    }

    /// Like [`Span::update`] of memory that is reached by calls: atomic towards all peers of this process, as a card's
    /// operations are (`IBV_ATOMIC_HCA`), not towards the processor's own.
    fn update_by_calls(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, AccessError> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        if !self.is_aligned_u64() {
            return Err(AccessError::Misaligned);
        }
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; atomic_copy::U64_BYTES];
        self.read(0, &mut bytes)?;
        let old = u64::from_ne_bytes(bytes);
        if let Some(new) = change(old) {
            self.write(0, &new.to_ne_bytes())?;
        }
        Ok(old)
    }

    /// Whether it is eight aligned bytes, which can be updated atomically.
    pub(super) fn is_aligned_u64(&self) -> bool {
        let place = self.extent.as_ref().map_or(0, |extent| extent.base().addr() + self.start);
        self.length == atomic_copy::U64_BYTES && place.is_multiple_of(atomic_copy::U64_BYTES)
    }

    /// Returns its first byte for the kernel, with the guard that keeps the
    /// memory accessible. `None` when empty.
    pub(super) fn enter_place(&self) -> Option<Option<(*mut u8, Entered<'_>)>> {
        if self.length == 0 {
            return None;
        }
        Some(self.enter().map(|(extent, inside)| {
            // SAFETY: bounds were checked when this was created.
            (unsafe { extent.base().add(self.start) }, inside)
        }))
    }

    fn enter(&self) -> Option<(&Extent, Entered<'_>)> {
        let extent = self.extent.as_deref()?;
        Some((extent, extent.enter()?))
    }

    fn check(&self, at: usize, length: usize) {
        let inside = at.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "bytes {at}..+{length} of a span of {}", self.length);
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Span").field("length", &self.length).finish_non_exhaustive()
    }
}

/// The parts of spans, which are there as long as this.
pub(super) struct HeldParts<'a> {
    pub(super) rings: Option<&'a held::Rings>,
    pub(super) parts: SmallVec<[held::Part; 8]>,
    _inside: SmallVec<[Entered<'a>; 8]>,
}

/// Adds fields whose most significant bits are those of `mask`: without those
/// bits no carry can leave a field, and their own sum is an exclusive or.
fn masked_add(old: u64, add: u64, mask: u64) -> u64 {
    (old & !mask).wrapping_add(add & !mask) ^ ((old ^ add) & mask)
}
