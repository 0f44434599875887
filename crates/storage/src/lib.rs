//! Storage measurements on mounted file systems.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod semantics;
