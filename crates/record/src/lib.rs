//! The run folder: writer and reader.
//!
//! One folder per run, described in [`clearstream_schema::record`]. The writer appends and syncs, so that a
//! killed run keeps every finished trial; the reader streams, so that eight days of one-second samples need
//! no more memory than one line. Execution of trials and
//! plots are elsewhere.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod catalogue;
mod error;
mod file;
mod lines;
mod reader;
#[cfg(feature = "synthetic")]
pub mod synthetic;
mod writer;

pub use catalogue::{CHECK, CatalogueEntry, KEEP, catalogue, check_result, remove};
pub use error::RecordError;
pub use lines::{MAX_LINE_BYTES, Records};
pub use reader::Reader;
pub use writer::{SampleWriter, Writer};
