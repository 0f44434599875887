//! Acceptance of verdicts that depend on timing: they need the whole machine, and minutes. `make accept` runs them;
//! `tests/it` has some of each end to end, and `crates/diagnose` the same signatures from captured samples.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]
#![allow(clippy::print_stdout, reason = "tables of counts are for people")]

#[path = "../it/common/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use all of it")]
mod common;
mod diagnose;
mod gateways;
#[path = "../it/gateways/scene.rs"]
mod gateways_scene;
mod improve;
mod install;
#[path = "../it/limits.rs"]
#[allow(dead_code, reason = "the other tests use all of it")]
mod limits;
#[path = "../it/packages.rs"]
#[allow(dead_code, reason = "the other tests use all of it")]
mod packages;
#[path = "../it/sockets/scene.rs"]
#[allow(dead_code, reason = "the other tests use all of it")]
mod scene;
mod sockets;
