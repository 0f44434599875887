//! C interface of software iWARP: `libclearstream_iwarp`.
//!
//! Each function checks its arguments, calls one verb of
//! [`clearstream_iwarp::verbs::raw`], and converts the result to a code and a
//! message. The header `include/clearstream_iwarp.h` is generated from these
//! files.
//!
//! # Safety
//!
//! The contract of this library is the head of that header (`cbindgen.toml`)
//! with what it says about a function: handles are live, and the call that
//! releases one is the last with it; other pointers are NULL or, during the
//! call, valid for what the function reads and writes there. The sections of
//! functions that refer to this are not copied into the header.

#![allow(unsafe_code, reason = "an interface for C takes pointers")]
#![allow(non_camel_case_types, reason = "names as C programs write them")]

pub mod connect;
pub mod error;
pub mod events;
pub mod memory;
mod options;
pub mod pointers;
pub mod queue_pair;
pub mod queues;
pub mod requests;
pub mod rnic;
