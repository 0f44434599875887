//! Limits made for real, and what the diagnosis calls them.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

fn main() {}
