//! Storage measurements on mounted file systems.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod mount;
pub mod semantics;
pub mod stream;
