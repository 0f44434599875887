//! Files that people write: where a key stands in one, and what an unknown name
//! probably meant.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod document;
mod suggest;

pub use self::{
    document::{Document, line_of},
    suggest::{did_you_mean, explain, nearest, unknown_name},
};
