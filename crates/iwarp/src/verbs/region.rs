//! Memory of a protection domain: regions and windows deregistered on drop, and
//! buffers.

use std::{ops::Deref, sync::Arc};

use crate::{
    memory::{self, Access, Buffer, Memory, MemoryError},
    rnic::{Domain, ProtectionDomain},
    stag::Stag,
    work::{Remote, Segment},
};

/// Registered memory accessible to peers, with the rights of its registration.
/// Bytes are copied in and out ([`memory::Region`]). Dropping it deregisters
/// its STag: requests and peers can no longer access it. Windows bound to it
/// keep showing its memory until they are rebound or dropped.
#[derive(Debug)]
pub struct Region {
    memory: memory::Region,
    stag: Stag,
    base: u64,
    domain: Arc<Domain>,
}

impl Region {
    /// Allocates and registers zeroed memory.
    ///
    /// # Errors
    /// When memory or STags are exhausted.
    pub fn new(domain: &ProtectionDomain, length: usize, access: Access) -> Result<Self, MemoryError> {
        Self::register(domain, memory::Region::new(length)?, access)
    }

    /// Registers memory, which may have other STags too.
    ///
    /// # Errors
    /// When no STag is left.
    pub fn register(
        domain: &ProtectionDomain,
        memory: memory::Region,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let registered = memory.memory();
        Self::with(domain, memory, registered, access)
    }

    /// Like [`Region::new`], with its pages locked in physical memory.
    ///
    /// # Errors
    /// As for [`Region::new`], and when the pages cannot be locked.
    pub fn pinned(domain: &ProtectionDomain, length: usize, access: Access) -> Result<Self, MemoryError> {
        let memory = memory::Region::new(length)?;
        let registered = memory.memory().pin()?;
        Self::with(domain, memory, registered, access)
    }

    fn with(
        domain: &ProtectionDomain,
        memory: memory::Region,
        registered: Memory,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let base = if access.allows(Access::ZERO_BASED) { 0 } else { memory.address() };
        let stag = domain.rnic().memory().register(domain.id(), registered, access, 0)?;
        Ok(Self { memory, stag, base, domain: domain.shared.clone() })
    }

    /// Changes its access rights. The STag gets its next key and must be
    /// advertised to the peer again.
    ///
    /// # Errors
    /// Windows are bound to it.
    pub fn reregister(&mut self, access: Access) -> Result<(), MemoryError> {
        self.stag = self.domain.device.memory.reregister(self.stag, None, None, Some(access))?;
        self.base = if access.allows(Access::ZERO_BASED) { 0 } else { self.memory.address() };
        Ok(())
    }

    /// Returns its steering tag.
    #[must_use]
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Returns a range of it as a local segment.
    #[must_use]
    pub fn segment(&self, at: usize, length: u32) -> Segment {
        Segment { stag: self.stag, address: self.base + at as u64, length }
    }

    /// Returns a location in it, to be advertised to the peer.
    #[must_use]
    pub fn remote(&self, at: usize) -> Remote {
        Remote { stag: self.stag, address: self.base + at as u64 }
    }
}

impl Deref for Region {
    type Target = memory::Region;

    fn deref(&self) -> &memory::Region {
        &self.memory
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Windows that are still bound to it keep its memory, not its STag.
        self.domain.device.memory.retire(self.stag);
    }
}

/// A memory window: an STag bound to ranges of regions by
/// [`QueuePair::bind`](super::QueuePair::bind), for one queue pair at a time.
/// Dropping it deregisters its STag.
#[derive(Debug)]
pub struct Window {
    pub(super) stag: Stag,
    domain: Arc<Domain>,
}

impl Window {
    /// Allocates an unbound window.
    ///
    /// # Errors
    /// No STag is left.
    pub fn new(domain: &ProtectionDomain) -> Result<Self, MemoryError> {
        let stag = domain.rnic().memory().allocate_window(domain.id())?;
        Ok(Self { stag, domain: domain.shared.clone() })
    }

    /// Returns its STag: the one of the last posted bind.
    #[must_use]
    pub fn stag(&self) -> Stag {
        self.stag
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Binds that were posted but never processed did not change its key.
        for back in 0..=u8::MAX {
            let stag = Stag::new(self.stag.index(), self.stag.key().wrapping_sub(back));
            if self.domain.device.memory.deregister(stag).is_ok() {
                return;
            }
        }
    }
}

impl ProtectionDomain {
    /// Allocates a buffer for local use.
    ///
    /// # Errors
    /// When memory or STags are exhausted.
    pub fn buffer(&self, length: usize) -> Result<Buffer, MemoryError> {
        Buffer::new(self.rnic().memory(), self.id(), length)
    }

    /// Allocates buffers of equal length in one registration.
    ///
    /// # Errors
    /// When memory or STags are exhausted.
    pub fn buffers(&self, count: usize, length: usize) -> Result<Vec<Buffer>, MemoryError> {
        let whole = count.checked_mul(length).ok_or(MemoryError::TooLong(usize::MAX))?;
        let mut rest = self.buffer(whole)?;
        let mut buffers = Vec::with_capacity(count);
        for _ in 0..count {
            let after = rest.split_off(length);
            buffers.push(std::mem::replace(&mut rest, after));
        }
        Ok(buffers)
    }
}
