//! The table of tags of one RNIC: what is registered, what windows show, and
//! every check of an access.

use std::{
    collections::HashMap,
    fmt,
    hash::BuildHasherDefault,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    Access, AccessError, Memory, MemoryError, Span,
    entry::{Entry, Kind, Shown, checked_base},
    tags::{INDICES, IndexHasher, Order},
};
use crate::{
    stag::{DomainId, QueuePairId, Stag},
    work::Segment,
};

/// Locks of the table: lookups of several threads seldom meet, and registering
/// holds up few of them.
const SHARDS: usize = 64;

/// Steering tags of one RNIC with their memory. Every method may be called from
/// every thread. A lookup takes a shared lock of one of 64 parts and a
/// reference count.
pub struct MemoryTable {
    shards: [RwLock<Shard>; SHARDS],
    books: Mutex<Books>,
}

type Shard = HashMap<u32, Entry, BuildHasherDefault<IndexHasher>>;

/// What changes seldom.
struct Books {
    order: Order,
    tags: u32,
    next_domain: u32,
    /// Users of each domain.
    domains: HashMap<DomainId, usize>,
}

/// Who asks for a tag to be made invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidator {
    /// The consumer, by a request of its send queue.
    Local,
    /// The peer, by a Send with Invalidate.
    Remote,
}

/// What a tag is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its protection domain.
    pub domain: DomainId,
    /// Its rights.
    pub access: Access,
    /// Tagged offset of its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// It can be used now: a region that was not made invalid, a window that
    /// is bound.
    pub valid: bool,
    /// Of a region: pages are kept in physical memory.
    pub pinned: bool,
    /// Of a window that is bound: for whom.
    pub queue_pair: Option<QueuePairId>,
}

impl MemoryTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let books = Books { order: Order::new(), tags: 0, next_domain: 1, domains: HashMap::new() };
        Arc::new(Self { shards: std::array::from_fn(|_| RwLock::default()), books: Mutex::new(books) })
    }

    /// A new protection domain.
    pub fn allocate_domain(&self) -> DomainId {
        let mut books = self.books();
        loop {
            let domain = DomainId(books.next_domain);
            books.next_domain = books.next_domain.wrapping_add(1);
            if let std::collections::hash_map::Entry::Vacant(place) = books.domains.entry(domain) {
                place.insert(0);
                return domain;
            }
        }
    }

    /// Gives a protection domain up.
    ///
    /// # Errors
    /// [`MemoryError::DomainInUse`] while memory, windows or others are in it.
    pub fn deallocate_domain(&self, domain: DomainId) -> Result<(), MemoryError> {
        let mut books = self.books();
        match *books.user_count(domain)? {
            0 => {
                books.domains.remove(&domain);
                Ok(())
            }
            users => Err(MemoryError::DomainInUse(domain, users)),
        }
    }

    /// Counts a queue pair or another user of a domain, so that it stays.
    ///
    /// # Errors
    /// [`MemoryError::UnknownDomain`].
    pub fn enter_domain(&self, domain: DomainId) -> Result<(), MemoryError> {
        *self.books().user_count(domain)? += 1;
        Ok(())
    }

    /// Ends what [`MemoryTable::enter_domain`] began.
    pub fn leave_domain(&self, domain: DomainId) {
        if let Ok(users) = self.books().user_count(domain) {
            *users = users.saturating_sub(1);
        }
    }

    /// Registers memory and returns its tag, whose lower eight bits are `key`.
    ///
    /// # Errors
    /// When there is no such domain, no tag left, the memory would pass the end
    /// of 64 bits, or memory of buffers is to be reached by a peer.
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
            shown: Some(Shown { extent: memory.extent().clone(), start: 0 }),
            kind: Kind::Region { memory, windows: 0, given_up: false },
        })
    }

    /// Changes what a region is: each that is given. Its tag gets the next key,
    /// and an invalid one is valid again.
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
        let given_up;
        let (old, new);
        {
            // Books first, then a shard: the one order of both locks.
            let mut books = self.books();
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
            books.move_user(old, new)?;
            given_up = memory.map(|memory| std::mem::replace(current, memory));
            entry.shown = Some(Shown { extent: current.extent().clone(), start: 0 });
            entry.length = current.len() as u64;
            (entry.domain, entry.access, entry.base) = (new, access, base);
            entry.key = entry.key.wrapping_add(1);
        }
        if let Some(memory) = given_up {
            memory.extent().storage().close();
        }
        Ok(stag.next_key())
    }

    /// Gives up a region or window. Spans that were looked up before keep
    /// memory of [`super::Region`]s and [`super::Buffer`]s alive; for memory of
    /// others see [`super::raw`].
    ///
    /// # Errors
    /// When there is no such tag, or windows are bound to it.
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
            self.forget(&entry);
        }
        Ok(())
    }

    /// Gives up a region whose owner is gone, in any case: its tag is invalid
    /// at once. Windows that are bound to it show its memory until they end.
    pub fn give_up(&self, stag: Stag) {
        let gone = {
            let mut shard = self.write(stag.index());
            let Ok(entry) = find(&mut shard, stag) else { return };
            match &mut entry.kind {
                Kind::Region { windows: 1.., given_up, .. } => {
                    *given_up = true;
                    entry.shown = None;
                    None
                }
                _ => shard.remove(&stag.index()),
            }
        };
        if let Some(entry) = gone {
            self.forget(&entry);
        }
    }

    /// Makes a tag invalid: a region stays to be registered again or given up,
    /// a window stays to be bound.
    ///
    /// # Errors
    /// When the tag is invalid, of another domain or queue pair, has windows
    /// bound to it, or is not reachable for a peer that asks.
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
            entry.shown = None;
            match &mut entry.kind {
                Kind::Region { .. } => None,
                Kind::Window { bound } => bound.take(),
            }
        };
        self.release(released);
        Ok(())
    }

    /// A range of local memory for a request of the consumer; to be written if
    /// `write`. A segment without bytes needs no tag.
    ///
    /// # Errors
    /// When the segment is not what its tag allows.
    pub fn local(&self, domain: DomainId, segment: Segment, write: bool) -> Result<Span, AccessError> {
        if segment.length == 0 {
            return Ok(Span::empty());
        }
        let wanted = if write { Access::LOCAL_WRITE } else { Access::NONE };
        let shard = self.read(segment.stag.index());
        let entry = shard.get(&segment.stag.index()).ok_or(AccessError::InvalidStag)?;
        if let Kind::Window { .. } = entry.kind {
            // A window shows memory to peers only.
            return Err(AccessError::AccessRights);
        }
        entry.check_tag(segment.stag, domain, None)?;
        entry.span(segment.address, segment.length, wanted)
    }

    /// A range that a peer asked for, with one right. A range without bytes
    /// needs no tag: nothing is reached.
    ///
    /// # Errors
    /// Why the peer may not.
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
        if access.allows(Access::REMOTE_ATOMIC) && (!address.is_multiple_of(8) || !span.is_word()) {
            return Err(AccessError::Misaligned);
        }
        Ok(span)
    }

    /// What a tag is at the moment; `None` when there is none of that key.
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
            valid: entry.shown.is_some(),
            pinned,
            queue_pair,
        })
    }

    /// How many tags there are.
    #[must_use]
    pub fn tag_count(&self) -> u32 {
        self.books().tags
    }

    pub(super) fn insert(
        &self,
        domain: DomainId,
        key: u8,
        entry: impl FnOnce(DomainId) -> Entry,
    ) -> Result<Stag, MemoryError> {
        let mut books = self.books();
        if books.tags == INDICES - 1 {
            return Err(MemoryError::NoTagLeft);
        }
        *books.user_count(domain)? += 1;
        books.tags += 1;
        loop {
            let index = books.order.next();
            let mut shard = self.write(index);
            if let std::collections::hash_map::Entry::Vacant(place) = shard.entry(index) {
                place.insert(entry(domain));
                return Ok(Stag::new(index, key));
            }
        }
    }

    /// What follows once an entry has left the table.
    pub(super) fn forget(&self, entry: &Entry) {
        {
            let mut books = self.books();
            books.tags -= 1;
            if let Ok(users) = books.user_count(entry.domain) {
                *users -= 1;
            }
        }
        match &entry.kind {
            Kind::Region { memory, .. } => memory.extent().storage().close(),
            Kind::Window { bound } => self.release(*bound),
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Books {
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
