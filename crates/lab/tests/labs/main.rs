//! Real labs, in namespaces of their own.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod life;
mod load;
mod switch;
mod table;
