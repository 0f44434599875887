//! Structures and numbers of the public headers of rdma-core, for versions 44
//! to 64. `tests/layout.rs` compares sizes and offsets with the installed
//! headers.
#![allow(non_camel_case_types, reason = "names as C programs write them")]
#![allow(missing_docs, reason = "documented in the manual pages of rdma-core")]

mod cm;
mod requests;
mod verbs;

pub use cm::*;
pub use requests::*;
pub use verbs::*;
