//! Tests of this crate as its users have it: one executable, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod files_loaded_by_tools;
mod files_of_others;
mod files_round_trip;
mod formats;
mod tools;
