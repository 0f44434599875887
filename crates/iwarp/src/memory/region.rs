//! Memory that peers may reach.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use super::{
    Memory, MemoryError, Span,
    storage::{Extent, Storage},
    words,
};

/// Memory that may be registered for remote access, as often as wanted. Bytes
/// are copied in and out: a peer may write at any time, so there is no slice.
/// A clone is the same memory.
#[derive(Clone)]
pub struct Region {
    extent: Arc<Extent>,
}

impl Region {
    /// Zeroed memory; its first byte is aligned to 64 bytes.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn new(length: usize) -> Result<Self, MemoryError> {
        Ok(Self { extent: Arc::new(Extent::whole(Storage::new(length, false)?)) })
    }

    /// What is registered.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory::new(self.extent.clone(), self.address())
    }

    /// The tagged offset of its first byte, unless it is registered zero-based:
    /// its virtual address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.extent.base().addr() as u64
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

    /// Copies bytes in.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        // Its own memory, which nobody takes back.
        let _written = self.span().write(at, bytes);
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let _read = self.span().read(at, into);
    }

    /// A copy of some bytes.
    ///
    /// # Panics
    /// When there are not as many.
    #[must_use]
    pub fn to_vec(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(at, &mut bytes);
        bytes
    }

    /// The eight bytes at a multiple of eight, in native byte order. What a
    /// peer, or a writer of this program, wrote in earlier calls is then seen.
    ///
    /// # Panics
    /// When they are not inside, or not at a multiple of eight.
    #[must_use]
    pub fn load(&self, at: usize) -> u64 {
        self.with_word(at, |word| word.load(Ordering::Acquire))
    }

    /// Writes eight bytes at a multiple of eight in one step, after all that
    /// this thread wrote before.
    ///
    /// # Panics
    /// As for [`Region::load`].
    pub fn store(&self, at: usize, value: u64) {
        self.with_word(at, |word| word.store(value, Ordering::Release));
    }

    /// All of it, as the data path sees it.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.extent.clone(), 0, self.len())
    }

    fn with_word<T>(&self, at: usize, act: impl FnOnce(&std::sync::atomic::AtomicU64) -> T) -> T {
        // SAFETY: the extent is alive as long as this is.
        let word = unsafe { words::word(self.extent.holder(), at) };
        act(word.unwrap_or_else(|| panic!("eight bytes at {at} of a region of {}", self.len())))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Region").field("length", &self.len()).finish_non_exhaustive()
    }
}
