//! Why memory could not be had, and why an access was refused.

use std::io;

use crate::stag::{DomainId, Stag};

/// Why an access by tag is refused. Each has its code in a Terminate: RFC
/// 5040, section 4.8 for what RDMAP finds, RFC 5041, section 7.2 for what DDP
/// finds when it places a tagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AccessError {
    /// No such tag, its key differs, or it was made invalid.
    #[error("the steering tag names no valid memory: use the one of the last registration or bind")]
    InvalidStag,
    /// Some byte is before the first or after the last.
    #[error("the range leaves the registered memory: check address and length")]
    BaseOrBounds,
    /// The tag does not grant this kind of access.
    #[error("the steering tag does not grant this access: register or bind with that right")]
    AccessRights,
    /// The tag is of another protection domain, or of a window bound to
    /// another queue pair.
    #[error("the steering tag belongs to another protection domain or queue pair")]
    NotAssociated,
    /// Address and length together pass 2^64.
    #[error("address and length pass the end of 64 bits")]
    AddressWrap,
    /// The tag may not be made invalid by this caller, or not now.
    #[error(
        "the steering tag can not be made invalid: windows are bound to it, or it grants no remote access"
    )]
    CannotInvalidate,
    /// An atomic operation needs eight bytes at a multiple of eight.
    #[error("an atomic operation needs eight bytes at a multiple of eight")]
    Misaligned,
}

/// Why memory could not be allocated, registered, bound or given up.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// No such protection domain.
    #[error("there is no protection domain {0:?}: allocate it first")]
    UnknownDomain(DomainId),
    /// Memory, windows or queue pairs are still in the domain.
    #[error("protection domain {0:?} has {1} users: deregister its memory and destroy its queue pairs first")]
    DomainInUse(DomainId, usize),
    /// Windows are bound to the region.
    #[error("{1} windows are bound to region {0}: unbind them first")]
    WindowsBound(Stag, u32),
    /// All 2^24 - 1 indices are in use.
    #[error("all steering tags are in use: deregister some memory")]
    NoTagLeft,
    /// The operation is for regions and this is a window, or the other way.
    #[error("steering tag {0} is of the other kind: regions are registered, windows are bound")]
    WrongKind(Stag),
    /// The memory would pass the end of the address space.
    #[error("{length_bytes} bytes at {address:#x} pass the end of 64 bits: choose a lower address")]
    AddressWrap {
        /// Where it was to begin.
        address: u64,
        /// How long it is.
        length_bytes: u64,
    },
    /// Exclusive memory was to be shown to a peer.
    #[error("memory of a Buffer is reached by its owner only: use a Region for remote access and windows")]
    Exclusive,
    /// The rights of a window are more than its region allows.
    #[error("a window needs a region with the right to bind, and with local write for remote writes")]
    WindowRights,
    /// More than can be addressed.
    #[error("{0} bytes can not be allocated: ask for less")]
    TooLong(usize),
    /// The system has no more memory.
    #[error("{length_bytes} bytes of memory are not to be had")]
    NoMemory {
        /// What was asked for.
        length_bytes: usize,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses to keep the pages in memory.
    #[error(
        "{length_bytes} bytes can not be pinned: raise the limit (ulimit -l, in KiB) or register without pinning"
    )]
    NotPinned {
        /// What was to be pinned.
        length_bytes: usize,
        /// What the system says.
        source: io::Error,
    },
    /// A tag is not what it has to be.
    #[error("steering tag {0}: {1}")]
    Access(Stag, #[source] AccessError),
}
