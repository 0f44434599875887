//! Names of things: steering tags, protection domains, queue pairs.

use std::fmt;

/// A steering tag: 24 bits that name an entry of the memory table, 8 bits of
/// key that the consumer chooses (RFC 5041, section 4.2: an identifier of a
/// tagged buffer; the split is that of the RDMA verbs specification).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stag(pub u32);

impl Stag {
    /// The tag of an entry with a key.
    #[must_use]
    pub fn new(index: u32, key: u8) -> Self {
        Self(index << 8 | u32::from(key))
    }

    /// Which entry of the table.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The same entry with the next key: a window's tag after a bind, a region's
    /// after it was registered again.
    #[must_use]
    pub fn next_key(self) -> Self {
        Self::new(self.index(), self.key().wrapping_add(1))
    }

    /// The consumer's part.
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

/// A protection domain: queue pairs reach only memory of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(pub u32);

/// A queue pair of one RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePairId(pub u32);
