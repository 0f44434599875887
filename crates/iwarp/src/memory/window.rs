//! Memory windows: STags bound to a range of a region, for one queue pair at a
//! time.

use super::{
    Access, AccessError, MemoryError, MemoryTable,
    entry::{Entry, Kind, Mapping},
    table::find,
};
use crate::{
    stag::{DomainId, QueuePairId, Stag},
    work::Segment,
};

impl MemoryTable {
    /// Allocates an unbound window. Its first key is zero.
    ///
    /// # Errors
    /// When the domain does not exist or no STag is left.
    pub fn allocate_window(&self, domain: DomainId) -> Result<Stag, MemoryError> {
        self.insert(domain, 0, |domain| Entry {
            key: 0,
            domain,
            access: Access::NONE,
            base: 0,
            length: 0,
            mapping: None,
            kind: Kind::Window { bound: None },
        })
    }

    /// Binds a window to a range of a region, for one queue pair; a previous
    /// binding is released. A length of zero only unbinds. The window's STag
    /// becomes [`Stag::next_key`] of the previous one.
    ///
    /// # Errors
    /// When window or region does not match its STag, belongs to another
    /// domain, or does not allow it; nothing is changed then.
    pub fn bind_window(
        &self,
        queue_pair: QueuePairId,
        domain: DomainId,
        window: Stag,
        memory: Segment,
        access: Access,
    ) -> Result<Stag, MemoryError> {
        let bound = if memory.length == 0 {
            None
        } else {
            Some((self.reserve(domain, memory, access)?, (memory.stag.index(), queue_pair)))
        };
        let new = bound.as_ref().map(|(_, bound)| *bound);
        match self.rebind(domain, window, memory, access, bound) {
            Ok(old) => {
                self.release(old);
                Ok(window.next_key())
            }
            Err(error) => {
                self.release(new);
                Err(error)
            }
        }
    }

    /// Checks the range of a binding and counts the window.
    fn reserve(&self, domain: DomainId, memory: Segment, access: Access) -> Result<Mapping, MemoryError> {
        let refused = |error| MemoryError::Access(memory.stag, error);
        let mut shard = self.write(memory.stag.index());
        let entry = shard.get_mut(&memory.stag.index()).ok_or_else(|| refused(AccessError::InvalidStag))?;
        entry.check_tag(memory.stag, domain, None).map_err(refused)?;
        let start = entry.offset(memory.address, memory.length).map_err(refused)?;
        let writes = access.allows(Access::REMOTE_WRITE) || access.allows(Access::REMOTE_ATOMIC);
        if !entry.access.allows(Access::BIND_WINDOW) || (writes && !entry.access.allows(Access::LOCAL_WRITE))
        {
            return Err(MemoryError::WindowRights);
        }
        let mapping = entry.mapping.as_ref().ok_or_else(|| refused(AccessError::InvalidStag))?;
        let mapping = Mapping { extent: mapping.extent.clone(), start };
        let Kind::Region { windows, .. } = &mut entry.kind else {
            return Err(MemoryError::WrongKind(memory.stag));
        };
        *windows += 1;
        Ok(mapping)
    }

    /// Changes a window and returns its previous binding.
    fn rebind(
        &self,
        domain: DomainId,
        window: Stag,
        memory: Segment,
        access: Access,
        new: Option<(Mapping, (u32, QueuePairId))>,
    ) -> Result<Option<(u32, QueuePairId)>, MemoryError> {
        let mut shard = self.write(window.index());
        let entry = find(&mut shard, window)?;
        if entry.domain != domain {
            return Err(MemoryError::Access(window, AccessError::NotAssociated));
        }
        let Kind::Window { bound } = &mut entry.kind else {
            return Err(MemoryError::WrongKind(window));
        };
        let (mapping, now) = new.unzip();
        let old = std::mem::replace(bound, now);
        entry.mapping = mapping;
        entry.base = if access.allows(Access::ZERO_BASED) { 0 } else { memory.address };
        entry.length = u64::from(memory.length);
        entry.access = access;
        entry.key = entry.key.wrapping_add(1);
        Ok(old)
    }

    /// Releases a window's reference to its region.
    pub(super) fn release(&self, bound: Option<(u32, QueuePairId)>) {
        let Some((region, _)) = bound else { return };
        let gone = {
            let mut shard = self.write(region);
            let Some(Entry { kind: Kind::Region { windows, retired, .. }, .. }) = shard.get_mut(&region)
            else {
                return;
            };
            *windows -= 1;
            if *retired && *windows == 0 { shard.remove(&region) } else { None }
        };
        if let Some(entry) = gone {
            self.unlink(&entry);
        }
    }
}
