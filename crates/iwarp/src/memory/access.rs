//! Access rights of a steering tag.

/// Access rights of a region or window. Local read is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// Local read only.
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

    /// Whether these rights include all of `required`.
    #[must_use]
    pub fn allows(self, required: Self) -> bool {
        self.0 & required.0 == required.0
    }

    /// Whether anything may be written there.
    pub(super) fn writes(self) -> bool {
        self.0 & (Self::LOCAL_WRITE.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }

    /// Whether any remote access is granted.
    #[must_use]
    pub fn is_remote(self) -> bool {
        self.0 & (Self::REMOTE_READ.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
