//! Tests of this crate as its users have it: one executable, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod ethtool;
mod kernel;
mod refusal;
mod routing;
mod source_translation;
