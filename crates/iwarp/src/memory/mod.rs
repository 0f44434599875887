//! Registered memory: regions, windows and their STags, and the only unsafe
//! code of this crate.
//!
//! Guarantees of this module to safe code:
//!
//! - A [`Span`] keeps its memory alive. Whatever happens to the STag it was
//!   looked up by, it never points to freed memory.
//! - Memory that is registered for remote access ([`Region`]) is never borrowed
//!   as a reference. It is accessed only through atomic words (`atomic_copy`), so that
//!   a concurrent placement, read and write are no data race; a reader may then
//!   see partly old and partly new bytes, as with any RDMA device.
//! - A [`Buffer`] is a plain slice because nothing else can access it: lookups
//!   find it only while it is lent ([`Loan`]), and a loan ends only when no
//!   [`Span`] of it is left.
//! - Foreign memory is registered by [`raw`], which is unsafe and documents the
//!   caller's obligations; or by [`raw::register_untrusted`], whose owner may take it
//!   away: no load or store reaches it, only the kernel (`reach`).
//!
//! The kernel accesses registered memory in two socket calls ([`send`] and
//! [`receive`]). For the memory model it is one more thread that uses atomic
//! accesses.
#![allow(unsafe_code)]

mod access;
mod atomic_copy;
mod buffer;
mod entry;
mod error;
mod exchange;
mod fold;
mod gate;
mod held;
mod pin;
mod placements;
pub mod raw;
mod reach;
mod region;
mod socket;
mod span;
mod storage;
mod table;
mod tags;
mod window;

pub use access::Access;
pub use buffer::{Buffer, Loan};
pub use error::{AccessError, MemoryError};
pub use fold::{Instructions, limit_instructions};
pub use held::Received;
pub use placements::Placements;
pub use region::Region;
pub use socket::{Piece, receive, send};
pub use span::Span;
pub use storage::Memory;
pub use table::{Invalidator, MemoryTable, Registration};
