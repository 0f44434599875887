//! Code common to the linters of settings and of routes: construction of findings,
//! the mute list, the report, and SARIF output. The rules are in the linters' crates.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod finding;
mod mute;
mod report;
mod sarif;

pub use finding::{With, finding};
pub use mute::{MuteList, ParseMuteError};
pub use report::{Checked, report};
pub use sarif::sarif;
