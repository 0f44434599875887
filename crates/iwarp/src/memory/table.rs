//! Memory table of one RNIC: registrations, window bindings and every access
//! check.

use std::{
    collections::HashMap,
    fmt,
    hash::BuildHasherDefault,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    Access, AccessError, Memory, MemoryError, Span,
    entry::{Entry, Kind, Mapping, checked_base},
    held::Keeper,
    tags::{INDICES, IndexHasher, Order},
};
use crate::{
    stag::{DomainId, QueuePairId, Stag},
    work::Segment,
};

/// Number of shards: reduces lock contention between lookups and with
/// registration.
const SHARDS: usize = 64;

/// STags of one RNIC with their memory. Every method may be called from any
/// thread. A lookup takes a read lock of one of 64 shards and a reference
/// count.
pub struct MemoryTable {
    shards: [RwLock<Shard>; SHARDS],
    registry: Mutex<Registry>,
    keeper: Keeper,
}

type Shard = HashMap<u32, Entry, BuildHasherDefault<IndexHasher>>;

/// State that changes seldom.
struct Registry {
    order: Order,
    tags: u32,
    next_domain: u32,
    /// User count of each domain.
    domains: HashMap<DomainId, usize>,
}

/// Origin of an invalidation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidator {
    /// The consumer, by a work request of its send queue.
    Local,
    /// The peer, by a Send with Invalidate.
    Remote,
}

/// Current state of an STag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Protection domain.
    pub domain: DomainId,
    /// Access rights.
    pub access: Access,
    /// Tagged offset of its first byte.
    pub address: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// Whether it is usable now: a region that was not invalidated, a window
    /// that is bound.
    pub valid: bool,
    /// Of a region: pages are locked in physical memory.
    pub pinned: bool,
    /// Of a bound window: the queue pair that may use it.
    pub queue_pair: Option<QueuePairId>,
}

impl MemoryTable {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let registry = Registry { order: Order::new(), tags: 0, next_domain: 1, domains: HashMap::new() };
        let shards = std::array::from_fn(|_| RwLock::default());
        Arc::new(Self { shards, registry: Mutex::new(registry), keeper: Keeper::default() })
    }

    /// Allocates a protection domain.
    pub fn allocate_domain(&self) -> DomainId {
        let mut registry = self.registry();
        loop {
            let domain = DomainId(registry.next_domain);
            registry.next_domain = registry.next_domain.wrapping_add(1);
            if let std::collections::hash_map::Entry::Vacant(place) = registry.domains.entry(domain) {
                place.insert(0);
                return domain;
            }
        }
    }

    /// Deallocates a protection domain.
    ///
    /// # Errors
    /// [`MemoryError::DomainInUse`] while it has memory or windows.
    pub fn deallocate_domain(&self, domain: DomainId) -> Result<(), MemoryError> {
        let mut registry = self.registry();
        match *registry.user_count(domain)? {
            0 => {
                registry.domains.remove(&domain);
                Ok(())
            }
            users => Err(MemoryError::DomainInUse(domain, users)),
        }
    }

    /// Registers memory and returns its STag, whose lower eight bits are `key`.
    ///
    /// # Errors
    /// When the domain does not exist, no STag is left, the memory would exceed
    /// the 64-bit address space, or exclusive memory is registered for remote
    /// access.
    pub fn register(
        &self,
        domain: DomainId,
        memory: Memory,
        access: Access,
        key: u8,
    ) -> Result<Stag, MemoryError> {
        let base = checked_base(&memory, access)?;
        self.insert(domain, key, |domain| Entry {
            key,
            domain,
            access,
            base,
            length: memory.len() as u64,
            mapping: Some(Mapping { extent: memory.extent().clone(), start: 0 }),
            kind: Kind::Region { memory, windows: 0, retired: false },
        })
    }

    /// Changes the given attributes of a region. Its STag gets the next key,
    /// and an invalidated one becomes valid.
    ///
    /// # Errors
    /// As for [`MemoryTable::register`], and while windows are bound to it;
    /// nothing is changed then.
    pub fn reregister(
        &self,
        stag: Stag,
        domain: Option<DomainId>,
        memory: Option<Memory>,
        access: Option<Access>,
    ) -> Result<Stag, MemoryError> {
        let replaced;
        let (old, new);
        {
            // Lock order: registry first, then a shard.
            let mut registry = self.registry();
            let mut shard = self.write(stag.index());
            let entry = find(&mut shard, stag)?;
            let Kind::Region { memory: current, windows, .. } = &mut entry.kind else {
                return Err(MemoryError::WrongKind(stag));
            };
            if *windows > 0 {
                return Err(MemoryError::WindowsBound(stag, *windows));
            }
            let access = access.unwrap_or(entry.access);
            let base = checked_base(memory.as_ref().unwrap_or(current), access)?;
            (old, new) = (entry.domain, domain.unwrap_or(entry.domain));
            registry.move_user(old, new)?;
            replaced = memory.map(|memory| std::mem::replace(current, memory));
            entry.mapping = Some(Mapping { extent: current.extent().clone(), start: 0 });
            entry.length = current.len() as u64;
            (entry.domain, entry.access, entry.base) = (new, access, base);
            entry.key = entry.key.wrapping_add(1);
        }
        if let Some(memory) = replaced {
            memory.extent().storage().close();
        }
        Ok(stag.next_key())
    }

    /// Deregisters a region or window. Spans that were looked up before keep
    /// memory of [`super::Region`]s and [`super::Buffer`]s alive; for foreign
    /// memory see [`super::raw`].
    ///
    /// # Errors
    /// When the STag is unknown, or windows are bound to it.
    pub fn deregister(&self, stag: Stag) -> Result<(), MemoryError> {
        let entry = {
            let mut shard = self.write(stag.index());
            let entry = find(&mut shard, stag)?;
            if let Kind::Region { windows: windows @ 1.., .. } = entry.kind {
                return Err(MemoryError::WindowsBound(stag, windows));
            }
            shard.remove(&stag.index())
        };
        if let Some(entry) = entry {
            self.unlink(&entry);
        }
        Ok(())
    }

    /// Retires a region whose owner was dropped, unconditionally: its STag is
    /// invalid at once. Windows bound to it keep showing its memory until they
    /// are unbound.
    pub fn retire(&self, stag: Stag) {
        let gone = {
            let mut shard = self.write(stag.index());
            let Ok(entry) = find(&mut shard, stag) else { return };
            match &mut entry.kind {
                Kind::Region { windows: 1.., retired, .. } => {
                    *retired = true;
                    entry.mapping = None;
                    None
                }
                _ => shard.remove(&stag.index()),
            }
        };
        if let Some(entry) = gone {
            self.unlink(&entry);
        }
    }

    /// Invalidates an STag: a region stays, to be reregistered or deregistered,
    /// a window stays to be bound.
    ///
    /// # Errors
    /// When the STag is invalid, of another domain or queue pair, has windows
    /// bound to it, or grants no remote access and the requester is a peer.
    pub fn invalidate(
        &self,
        domain: DomainId,
        queue_pair: QueuePairId,
        stag: Stag,
        by: Invalidator,
    ) -> Result<(), AccessError> {
        let released = {
            let mut shard = self.write(stag.index());
            let entry = shard.get_mut(&stag.index()).ok_or(AccessError::InvalidStag)?;
            entry.check_tag(stag, domain, Some(queue_pair))?;
            if by == Invalidator::Remote && !entry.access.is_remote() {
                return Err(AccessError::CannotInvalidate);
            }
            if let Kind::Region { windows: 1.., .. } = entry.kind {
                return Err(AccessError::CannotInvalidate);
            }
            entry.mapping = None;
            match &mut entry.kind {
                Kind::Region { .. } => None,
                Kind::Window { bound } => bound.take(),
            }
        };
        self.release(released);
        Ok(())
    }

    /// Looks up a range of local memory for a work request; for writing if
    /// `write`. An empty segment needs no STag.
    ///
    /// # Errors
    /// When the STag does not allow it.
    pub fn local(&self, domain: DomainId, segment: Segment, write: bool) -> Result<Span, AccessError> {
        if segment.length == 0 {
            return Ok(Span::empty());
        }
        let required = if write { Access::LOCAL_WRITE } else { Access::NONE };
        let shard = self.read(segment.stag.index());
        let entry = shard.get(&segment.stag.index()).ok_or(AccessError::InvalidStag)?;
        if let Kind::Window { .. } = entry.kind {
            // A window grants access to peers only.
            return Err(AccessError::AccessRights);
        }
        entry.check_tag(segment.stag, domain, None)?;
        entry.span(segment.address, segment.length, required)
    }

    /// Looks up a range for a request of the peer, with one right. An empty
    /// range needs no STag: nothing is accessed.
    ///
    /// # Errors
    /// When the peer may not access it.
    pub fn remote(
        &self,
        domain: DomainId,
        queue_pair: QueuePairId,
        stag: Stag,
        address: u64,
        length: u32,
        access: Access,
    ) -> Result<Span, AccessError> {
        if length == 0 {
            return Ok(Span::empty());
        }
        let shard = self.read(stag.index());
        let entry = shard.get(&stag.index()).ok_or(AccessError::InvalidStag)?;
        entry.check_tag(stag, domain, Some(queue_pair))?;
        let span = entry.span(address, length, access)?;
        if access.allows(Access::REMOTE_ATOMIC) && (!address.is_multiple_of(8) || !span.is_aligned_u64()) {
            return Err(AccessError::Misaligned);
        }
        Ok(span)
    }

    /// Returns the current state of an STag; `None` when none has this key.
    #[must_use]
    pub fn registration(&self, stag: Stag) -> Option<Registration> {
        let shard = self.read(stag.index());
        let entry = shard.get(&stag.index()).filter(|entry| entry.key == stag.key())?;
        let (pinned, queue_pair) = match &entry.kind {
            Kind::Region { memory, .. } => (memory.is_pinned(), None),
            Kind::Window { bound } => (false, bound.map(|(_, queue_pair)| queue_pair)),
        };
        Some(Registration {
            domain: entry.domain,
            access: entry.access,
            address: entry.base,
            length_bytes: entry.length,
            valid: entry.mapping.is_some(),
            pinned,
            queue_pair,
        })
    }

    /// Returns the number of STags.
    #[must_use]
    pub fn tag_count(&self) -> u32 {
        self.registry().tags
    }

    pub(super) fn insert(
        &self,
        domain: DomainId,
        key: u8,
        entry: impl FnOnce(DomainId) -> Entry,
    ) -> Result<Stag, MemoryError> {
        let mut registry = self.registry();
        if registry.tags == INDICES - 1 {
            return Err(MemoryError::NoTagLeft);
        }
        *registry.user_count(domain)? += 1;
        registry.tags += 1;
        loop {
            let index = registry.order.next();
            let mut shard = self.write(index);
            if let std::collections::hash_map::Entry::Vacant(place) = shard.entry(index) {
                place.insert(entry(domain));
                return Ok(Stag::new(index, key));
            }
        }
    }

    /// Updates counters and bindings after an entry was removed from the table.
    pub(super) fn unlink(&self, entry: &Entry) {
        {
            let mut registry = self.registry();
            registry.tags -= 1;
            if let Ok(users) = registry.user_count(entry.domain) {
                *users -= 1;
            }
        }
        match &entry.kind {
            Kind::Region { memory, .. } => memory.extent().storage().close(),
            Kind::Window { bound } => self.release(*bound),
        }
    }

    /// What holds the pages of memory that its owner may take away.
    pub(super) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, index: u32) -> RwLockReadGuard<'_, Shard> {
        self.shards[index as usize % SHARDS].read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, index: u32) -> RwLockWriteGuard<'_, Shard> {
        self.shards[index as usize % SHARDS].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MemoryTable").field("tags", &self.tag_count()).finish_non_exhaustive()
    }
}

impl Registry {
    fn user_count(&mut self, domain: DomainId) -> Result<&mut usize, MemoryError> {
        self.domains.get_mut(&domain).ok_or(MemoryError::UnknownDomain(domain))
    }

    fn move_user(&mut self, from: DomainId, to: DomainId) -> Result<(), MemoryError> {
        *self.user_count(to)? += 1;
        *self.user_count(from)? -= 1;
        Ok(())
    }
}

pub(super) fn find(shard: &mut Shard, stag: Stag) -> Result<&mut Entry, MemoryError> {
    let entry = shard.get_mut(&stag.index()).filter(|entry| entry.key == stag.key());
    entry.ok_or(MemoryError::Access(stag, AccessError::InvalidStag))
}
