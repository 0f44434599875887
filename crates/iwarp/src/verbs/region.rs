//! Memory of a protection domain: regions and windows that end with their
//! owners, and buffers.

use std::{ops::Deref, sync::Arc};

use crate::{
    memory::{self, Access, Buffer, Memory, MemoryError},
    rnic::{Domain, ProtectionDomain},
    stag::Stag,
    work::{Remote, Segment},
};

/// Registered memory that peers may reach, with the rights that it was made
/// with. Bytes are copied in and out ([`memory::Region`]). Dropped, its tag is
/// given up: requests and peers no longer find it. Windows that are bound to it
/// show its memory until they are bound again or dropped.
#[derive(Debug)]
pub struct Region {
    memory: memory::Region,
    stag: Stag,
    base: u64,
    domain: Arc<Domain>,
}

impl Region {
    /// Zeroed memory, registered.
    ///
    /// # Errors
    /// When there is not as much memory, or no tag left.
    pub fn new(domain: &ProtectionDomain, length: usize, access: Access) -> Result<Self, MemoryError> {
        Self::register(domain, memory::Region::new(length)?, access)
    }

    /// Registers memory, which may have other tags too.
    ///
    /// # Errors
    /// When there is no tag left.
    pub fn register(
        domain: &ProtectionDomain,
        memory: memory::Region,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let registered = memory.memory();
        Self::with(domain, memory, registered, access)
    }

    /// The same, with its pages kept in physical memory.
    ///
    /// # Errors
    /// As before, and when the system refuses to pin.
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

    /// Gives it other rights. The tag gets its next key: the peer must hear of
    /// it anew.
    ///
    /// # Errors
    /// Windows are bound to it.
    pub fn reregister(&mut self, access: Access) -> Result<(), MemoryError> {
        self.stag = self.domain.device.memory.reregister(self.stag, None, None, Some(access))?;
        self.base = if access.allows(Access::ZERO_BASED) { 0 } else { self.memory.address() };
        Ok(())
    }

    /// Its steering tag.
    #[must_use]
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// A range of it, for a request of this side.
    #[must_use]
    pub fn segment(&self, at: usize, length: u32) -> Segment {
        Segment { stag: self.stag, address: self.base + at as u64, length }
    }

    /// A place in it, as the peer is to name it.
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
        // Windows that are still bound to it keep its memory, not its tag.
        self.domain.device.memory.give_up(self.stag);
    }
}

/// A memory window: a tag that is bound to ranges of regions by
/// [`QueuePair::bind`](super::QueuePair::bind), for one queue pair at a time.
/// Dropped, its tag is given up.
#[derive(Debug)]
pub struct Window {
    pub(super) stag: Stag,
    domain: Arc<Domain>,
}

impl Window {
    /// A window that is bound to nothing.
    ///
    /// # Errors
    /// There is no tag left.
    pub fn new(domain: &ProtectionDomain) -> Result<Self, MemoryError> {
        let stag = domain.rnic().memory().allocate_window(domain.id())?;
        Ok(Self { stag, domain: domain.shared.clone() })
    }

    /// Its tag: the one of the last bind that was posted.
    #[must_use]
    pub fn stag(&self) -> Stag {
        self.stag
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Binds that were posted and never carried out did not change its key.
        for back in 0..=u8::MAX {
            let stag = Stag::new(self.stag.index(), self.stag.key().wrapping_sub(back));
            if self.domain.device.memory.deregister(stag).is_ok() {
                return;
            }
        }
    }
}

impl ProtectionDomain {
    /// A buffer for local use.
    ///
    /// # Errors
    /// When there is not as much memory, or no tag left.
    pub fn buffer(&self, length: usize) -> Result<Buffer, MemoryError> {
        Buffer::new(self.rnic().memory(), self.id(), length)
    }

    /// Buffers of equal length out of one registration.
    ///
    /// # Errors
    /// When there is not as much memory, or no tag left.
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
