//! Errors of memory registration and access.

use std::io;

use crate::stag::{DomainId, Stag};

/// Errors of an access by STag. Each maps to a Terminate code: RFC 5040,
/// section 4.8 for errors found by RDMAP, RFC 5041, section 7.2 for errors
/// found by DDP when placing a tagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AccessError {
    /// Unknown index, wrong key, or invalidated.
    #[error("the steering tag is invalid: use the one of the last registration or bind")]
    InvalidStag,
    /// Range exceeds the bounds of the region or window.
    #[error("the range exceeds the registered memory: check address and length")]
    BaseOrBounds,
    /// The STag does not grant this access.
    #[error("the steering tag does not grant this access: register or bind with that right")]
    AccessRights,
    /// The STag belongs to another protection domain, or to a window bound to
    /// another queue pair.
    #[error("the steering tag belongs to another protection domain or queue pair")]
    NotAssociated,
    /// Address plus length exceeds 2^64.
    #[error("address plus length exceeds 64 bits")]
    AddressWrap,
    /// The STag may not be invalidated by this caller, or not now.
    #[error("the steering tag cannot be invalidated: windows are bound to it, or it grants no remote access")]
    CannotInvalidate,
    /// An atomic operation needs eight bytes at an aligned address.
    #[error("an atomic operation needs eight bytes at an aligned address")]
    Misaligned,
}

/// Errors of allocation, registration, binding and deregistration.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Unknown protection domain.
    #[error("there is no protection domain {0:?}: allocate it first")]
    UnknownDomain(DomainId),
    /// The domain still contains memory or windows.
    #[error("protection domain {0:?} has {1} regions and windows: deregister them first")]
    DomainInUse(DomainId, usize),
    /// Windows are bound to the region.
    #[error("{1} windows are bound to region {0}: unbind them first")]
    WindowsBound(Stag, u32),
    /// All 2^24 - 1 STag indices are in use.
    #[error("all steering tags are in use: deregister some memory")]
    NoTagLeft,
    /// Operation for a region applied to a window, or the reverse.
    #[error("steering tag {0} has the wrong type: regions are registered, windows are bound")]
    WrongKind(Stag),
    /// The memory would exceed the end of the address space.
    #[error("{length_bytes} bytes at {address:#x} exceed the 64-bit address space: choose a lower address")]
    AddressWrap {
        /// Requested start address.
        address: u64,
        /// Length of the memory.
        length_bytes: u64,
    },
    /// Exclusive memory cannot be registered for remote access.
    #[error("a Buffer cannot be registered for remote access: use a Region for remote access and windows")]
    Exclusive,
    /// A window requests rights that its region does not grant.
    #[error("a window needs a region with the right to bind, and with local write for remote writes")]
    WindowRights,
    /// Longer than the address space.
    #[error("{0} bytes cannot be allocated: request less")]
    TooLong(usize),
    /// Out of memory.
    #[error("cannot allocate {length_bytes} bytes")]
    NoMemory {
        /// Requested length.
        length_bytes: usize,
        /// Error of the system call.
        source: io::Error,
    },
    /// It is not mapped, or not with the rights that the access needs.
    #[error(
        "{length_bytes} bytes at {address:#x} are not mapped with the rights that are registered: map them, or register without writing"
    )]
    Inaccessible {
        /// First byte.
        address: usize,
        /// Length of the memory.
        length_bytes: usize,
        /// Error of the system call.
        source: io::Error,
    },
    /// The system call to lock pages failed.
    #[error(
        "{length_bytes} bytes cannot be pinned: raise the limit (ulimit -l, in KiB) or register without pinning"
    )]
    NotPinned {
        /// Length to be pinned.
        length_bytes: usize,
        /// Error of the system call.
        source: io::Error,
    },
    /// The STag failed an access check.
    #[error("steering tag {0}: {1}")]
    Access(Stag, #[source] AccessError),
}
