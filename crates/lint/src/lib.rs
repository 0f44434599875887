//! What the linters of settings and of routes share: how a finding is made,
//! what is muted, the report, and SARIF. The rules are theirs.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod finding;
mod mute;
mod report;
mod sarif;

pub use finding::{With, finding};
pub use mute::{MuteList, ParseMuteError};
pub use report::{Checked, report};
pub use sarif::sarif;
