//! Configuration files written by people: found by name or path, read up to a size limit, with errors that
//! name file, line and key and suggest a correction.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod document;
mod error;
mod kind;
mod suggest;

pub use self::{
    error::{ConfigError, Fault, fault},
    kind::{FileKind, Source},
    suggest::{did_you_mean, explain, nearest, unknown_name},
};
