//! Studies from file to record, on a testbed without hosts.
#![allow(clippy::unwrap_used)]

mod common;
mod comparing;
mod loopback;
mod published;
mod running;
mod scheduling;
mod study_files;
mod verbs_study;
