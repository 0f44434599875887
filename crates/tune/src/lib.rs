//! Settings of a host that affect bulk data paths: checks ([`lint()`]) and
//! recommended values ([`recommend()`]).
//!
//! Both take a [`HostState`], which is read from the running host, a capture, or
//! files. Knowledge of the kernel's keys is data (`knowledge/sysctls.toml`); rules
//! are pure functions. Nothing here changes a host, prints, or uses the network.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod kernel_config;
pub mod knowledge;
mod lint;
mod path;
mod recommend;
mod rules;
mod state;
pub mod syntax;
mod version;

pub use lint::{lint, of_given_lines};
pub use recommend::{Profile, recommend};
pub use state::{Assumed, Given, HostState, Interface, Value};
pub use version::{KernelVersion, ParseVersionError};
