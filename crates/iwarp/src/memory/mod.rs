//! Registered memory: regions, windows and their tags, and the only unsafe
//! code of this crate.

mod access;

pub use access::Access;
