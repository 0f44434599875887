//! C interface of software iWARP: `libclearstream_iwarp`.
//!
//! Each function checks its arguments, calls one verb of
//! [`clearstream_iwarp::verbs::raw`], and converts the result to a code and a
//! message. The header `include/clearstream_iwarp.h` is generated from these
//! files.
#![allow(unsafe_code, reason = "an interface for C takes pointers")]
#![allow(non_camel_case_types, reason = "names as C programs write them")]
#![allow(
    clippy::missing_safety_doc,
    reason = "requirements on pointers are stated once, at the top of the header"
)]

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
