//! Identifiers: steering tags, protection domains, queue pairs.

use std::fmt;

/// Steering tag (STag): 24 bits of index into the memory table, 8 bits of key
/// chosen by the consumer (RFC 5041, section 4.2: an identifier of a tagged
/// buffer; the split is that of the RDMA verbs specification).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stag(pub u32);

impl Stag {
    /// Creates an STag from index and key.
    #[must_use]
    pub fn new(index: u32, key: u8) -> Self {
        Self(index << 8 | u32::from(key))
    }

    /// Returns the index into the memory table.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Returns the same index with the next key: a window's STag after a bind,
    /// a region's after a reregistration.
    #[must_use]
    pub fn next_key(self) -> Self {
        Self::new(self.index(), self.key().wrapping_add(1))
    }

    /// Returns the consumer's key.
    #[must_use]
    pub fn key(self) -> u8 {
        (self.0 & 0xff) as u8
    }
}

impl fmt::Display for Stag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#010x}", self.0)
    }
}

/// Protection domain: queue pairs access only memory of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(pub u32);

/// Identifier of a queue pair of one RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePairId(pub u32);
