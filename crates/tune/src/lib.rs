//! The settings of a host that bear on a bulk path: what is wrong with them
//! ([`lint()`]) and what they should be ([`recommend()`]).
//!
//! Everything works on a [`HostState`], which comes from the running host, a
//! captured one, or files. What is known of the kernel's keys is data
//! (`knowledge/sysctls.toml`); rules are functions that only look. Nothing
//! here changes a host, prints, or asks the network.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod kernel_config;
pub mod knowledge;
mod lint;
pub mod path;
mod recommend;
mod rules;
mod state;
pub mod syntax;
mod version;

pub use lint::{lint, of_given_lines};
pub use recommend::{Profile, recommend};
pub use state::{
    Assignment, Assumed, Given, GivenOption, GivenQueue, HostState, Interface, Reader, Tuned, Value,
};
pub use version::{KernelVersion, ParseVersionError};
