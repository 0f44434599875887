//! Registered memory: regions, windows and their tags, and the only unsafe
//! code of this crate.
//!
//! What this module promises to safe code:
//!
//! - A [`Span`] keeps its memory alive. Whatever happens to the tag it was
//!   looked up by, it never points at memory that was given back.
//! - Memory that a peer may reach ([`Region`]) has no references into it. It is
//!   only ever touched through atomic words (`words`), so that a placement, a
//!   reader and a writer at the same time are no data race; what a reader sees
//!   then may be part old and part new, as on any RDMA device.
//! - A [`Buffer`] is a plain slice because nobody else can reach it: lookups
//!   find it only while it is lent ([`Loan`]), and it comes back from a loan
//!   only when no [`Span`] of it is left.
//! - Memory that others own is registered by [`raw`], which is unsafe and says
//!   what the caller has to promise.
//!
//! The kernel takes part through two calls of a socket ([`send`] and
//! [`receive`]). To the language it is one more thread that uses atomic
//! accesses.
#![allow(unsafe_code)]

mod access;
mod buffer;
mod entry;
mod error;
mod gate;
mod pin;
pub mod raw;
mod region;
mod socket;
mod span;
mod storage;
mod table;
mod tags;
mod window;
mod words;

pub use access::Access;
pub use buffer::{Buffer, Loan};
pub use error::{AccessError, MemoryError};
pub use region::Region;
pub use socket::{Piece, receive, send};
pub use span::Span;
pub use storage::Memory;
pub use table::{Invalidator, MemoryTable, Registration};
