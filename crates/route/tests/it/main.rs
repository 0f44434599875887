//! Tests of this crate as its users have it: one executable, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod kernel_agrees;
mod kernel_decides;
mod kernel_sources;
mod lint_files;
mod lint_paths;
