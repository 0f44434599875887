//! Studies from file to record, on a bench without hosts.
#![allow(clippy::unwrap_used)]

mod common;
mod comparing;
mod loopback;
mod planning;
mod running;
mod study_files;
