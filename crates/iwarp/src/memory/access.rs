//! What may be done with a tag.

/// Rights of a region or window. Reading locally is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// Nothing but reading locally.
    pub const NONE: Self = Self(0);
    /// Receives and Read responses may be placed there.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer may read it.
    pub const REMOTE_READ: Self = Self(2);
    /// A peer may write it.
    pub const REMOTE_WRITE: Self = Self(4);
    /// A peer may use atomic operations on it.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// Windows may be bound to it.
    pub const BIND_WINDOW: Self = Self(16);
    /// Tagged offsets count from its first byte instead of being addresses.
    pub const ZERO_BASED: Self = Self(32);

    /// Whether all of `wanted` is among these rights.
    #[must_use]
    pub fn allows(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether a peer may do anything.
    #[must_use]
    pub fn is_remote(self) -> bool {
        self.0 & (Self::REMOTE_READ.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }

    /// The rights as bits, for a C caller.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Rights from bits; `None` when a bit has no meaning.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits < 64).then_some(Self(bits))
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
