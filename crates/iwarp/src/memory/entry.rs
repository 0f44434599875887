//! Memory table entry of one STag, and the access checks.

use std::sync::Arc;

use super::{Access, AccessError, Memory, MemoryError, Span, buffer, storage::Extent};
use crate::stag::{DomainId, QueuePairId, Stag};

pub(super) struct Entry {
    pub(super) key: u8,
    pub(super) domain: DomainId,
    pub(super) access: Access,
    /// Tagged offset of the first byte.
    pub(super) base: u64,
    pub(super) length: u64,
    /// Visible range; `None`: invalid, or an unbound window.
    pub(super) mapping: Option<Mapping>,
    pub(super) kind: Kind,
}

/// A range of an extent.
pub(super) struct Mapping {
    pub(super) extent: Arc<Extent>,
    pub(super) start: usize,
}

pub(super) enum Kind {
    /// `retired`: deregistered by its owner; removed when the last window is
    /// unbound.
    Region {
        memory: Memory,
        windows: u32,
        retired: bool,
    },
    Window {
        bound: Option<(u32, QueuePairId)>,
    },
}

impl Entry {
    /// Checks that the tag is valid and may be used in this domain and, if it
    /// is a bound window, by this queue pair.
    pub(super) fn check_tag(
        &self,
        stag: Stag,
        domain: DomainId,
        queue_pair: Option<QueuePairId>,
    ) -> Result<(), AccessError> {
        if self.key != stag.key() || self.mapping.is_none() {
            return Err(AccessError::InvalidStag);
        }
        let other_pair = match &self.kind {
            Kind::Window { bound: Some((_, bound)) } => {
                queue_pair.is_some_and(|requester| requester != *bound)
            }
            _ => false,
        };
        if self.domain != domain || other_pair {
            return Err(AccessError::NotAssociated);
        }
        Ok(())
    }

    /// Returns the offset of a range in its extent.
    pub(super) fn offset(&self, address: u64, length: u32) -> Result<usize, AccessError> {
        let length = u64::from(length);
        if length > 0 && address.checked_add(length - 1).is_none() {
            return Err(AccessError::AddressWrap);
        }
        let inside = address.checked_sub(self.base).ok_or(AccessError::BaseOrBounds)?;
        let end = inside.checked_add(length).ok_or(AccessError::BaseOrBounds)?;
        if end > self.length {
            return Err(AccessError::BaseOrBounds);
        }
        let start = self.mapping.as_ref().map_or(0, |mapping| mapping.start);
        // Within an extent, so it fits a `usize`.
        Ok(start + inside as usize)
    }

    pub(super) fn span(&self, address: u64, length: u32, required: Access) -> Result<Span, AccessError> {
        if !self.access.allows(required) {
            return Err(AccessError::AccessRights);
        }
        let start = self.offset(address, length)?;
        let mapping = self.mapping.as_ref().ok_or(AccessError::InvalidStag)?;
        let storage = mapping.extent.storage();
        if storage.lent.is_some() {
            // A buffer that is not lent is inaccessible to requests.
            return buffer::find_lent(storage, start, length as usize).ok_or(AccessError::AccessRights);
        }
        Ok(Span::new(mapping.extent.clone(), start, length as usize))
    }
}

/// Returns the tagged offset of the first byte, if the memory may be registered
/// with these rights.
pub(super) fn checked_base(memory: &Memory, access: Access) -> Result<u64, MemoryError> {
    if memory.is_exclusive()
        && (access.is_remote() || access.allows(Access::BIND_WINDOW) || access.allows(Access::ZERO_BASED))
    {
        return Err(MemoryError::Exclusive);
    }
    let base = if access.allows(Access::ZERO_BASED) { 0 } else { memory.address() };
    let length_bytes = memory.len() as u64;
    if base.checked_add(length_bytes.saturating_sub(1)).is_none() {
        return Err(MemoryError::AddressWrap { address: base, length_bytes });
    }
    Ok(base)
}
