//! Memory for remote access.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use super::{
    Memory, MemoryError, Span, atomic_copy,
    storage::{Extent, Storage},
};

/// Memory that may be registered for remote access, any number of times. Bytes
/// are copied in and out: a peer may write at any time, so there is no slice. A
/// clone refers to the same memory.
#[derive(Clone)]
pub struct Region {
    extent: Arc<Extent>,
}

impl Region {
    /// Allocates zeroed memory, aligned to 64 bytes.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub fn new(length: usize) -> Result<Self, MemoryError> {
        Ok(Self { extent: Arc::new(Extent::whole(Storage::new(length, false)?)) })
    }

    /// Returns the memory for registration.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory::new(self.extent.clone(), self.address())
    }

    /// Returns the tagged offset of its first byte, unless it is registered
    /// zero-based: its virtual address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.extent.base().addr() as u64
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

    /// Copies `bytes` to offset `at`.
    ///
    /// # Panics
    /// When they exceed the region.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        // Own memory is never withdrawn.
        let _written = self.span().write(at, bytes);
    }

    /// Copies from offset `at` into a slice.
    ///
    /// # Panics
    /// When the range exceeds the region.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let _read = self.span().read(at, into);
    }

    /// Returns a copy of `length` bytes at `at`.
    ///
    /// # Panics
    /// When the range exceeds the region.
    #[must_use]
    pub fn to_vec(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(at, &mut bytes);
        bytes
    }

    /// Loads eight aligned bytes in native byte order (acquire): everything
    /// that a peer or a writer of this program wrote in earlier calls is
    /// visible.
    ///
    /// # Panics
    /// When they are out of bounds or misaligned.
    #[must_use]
    pub fn load(&self, at: usize) -> u64 {
        self.with_atomic(at, |atomic| atomic.load(Ordering::Acquire))
    }

    /// Stores eight aligned bytes atomically (release), after everything that
    /// this thread wrote before.
    ///
    /// # Panics
    /// As for [`Region::load`].
    pub fn store(&self, at: usize, value: u64) {
        self.with_atomic(at, |atomic| atomic.store(value, Ordering::Release));
    }

    /// Returns a span of all of it, for the data path.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.extent.clone(), 0, self.len())
    }

    fn with_atomic<T>(&self, at: usize, act: impl FnOnce(&std::sync::atomic::AtomicU64) -> T) -> T {
        // SAFETY: the extent lives as long as `self`.
        let atomic = unsafe { atomic_copy::u64_at(self.extent.holder(), at) };
        act(atomic.unwrap_or_else(|| panic!("eight bytes at {at} of a region of {}", self.len())))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Region").field("length", &self.len()).finish_non_exhaustive()
    }
}
