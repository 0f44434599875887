//! What is behind one tag, and the checks of an access to it.

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
    /// What it shows; `None`: invalid, or a window that is bound to nothing.
    pub(super) shown: Option<Shown>,
    pub(super) kind: Kind,
}

/// A range of an extent.
pub(super) struct Shown {
    pub(super) extent: Arc<Extent>,
    pub(super) start: usize,
}

pub(super) enum Kind {
    /// `given_up`: its owner is gone, and the last window takes it along.
    Region {
        memory: Memory,
        windows: u32,
        given_up: bool,
    },
    Window {
        bound: Option<(u32, QueuePairId)>,
    },
}

impl Entry {
    /// The tag is valid and may be used in this domain and, if it is a bound
    /// window, by this queue pair.
    pub(super) fn check_tag(
        &self,
        stag: Stag,
        domain: DomainId,
        queue_pair: Option<QueuePairId>,
    ) -> Result<(), AccessError> {
        if self.key != stag.key() || self.shown.is_none() {
            return Err(AccessError::InvalidStag);
        }
        let other_pair = match &self.kind {
            Kind::Window { bound: Some((_, bound)) } => queue_pair.is_some_and(|asking| asking != *bound),
            _ => false,
        };
        if self.domain != domain || other_pair {
            return Err(AccessError::NotAssociated);
        }
        Ok(())
    }

    /// Where in its extent a range begins.
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
        let start = self.shown.as_ref().map_or(0, |shown| shown.start);
        // Inside an extent, so it is a `usize`.
        Ok(start + inside as usize)
    }

    pub(super) fn span(&self, address: u64, length: u32, wanted: Access) -> Result<Span, AccessError> {
        if !self.access.allows(wanted) {
            return Err(AccessError::AccessRights);
        }
        let start = self.offset(address, length)?;
        let shown = self.shown.as_ref().ok_or(AccessError::InvalidStag)?;
        let storage = shown.extent.storage();
        if storage.lent.is_some() {
            // Memory of a buffer that its owner holds is nobody else's.
            return buffer::find_lent(storage, start, length as usize).ok_or(AccessError::AccessRights);
        }
        Ok(Span::new(shown.extent.clone(), start, length as usize))
    }
}

/// Tagged offset of the first byte, if memory may have these rights.
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
