//! Files by which hosts are configured: what a host routes by is read from them
//! ([`read`]) and written as them ([`routes`]), the settings of a plan are
//! written ([`settings`]).
//!
//! A format is one file of `formats`, which implements `backend::Backend`, and
//! one line in `backend::BACKENDS`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backend;
mod formats;
pub mod read;
pub mod routes;
pub mod settings;
