//! The closed loop: diagnose a path, change one thing, compare baseline and
//! treatment in interleaved runs, keep it only if it is proven better and nothing else
//! got worse, and repeat.
//!
//! - [`candidates`](mod@candidates): from a diagnosis to changes that may help.
//! - [`comparison`](mod@comparison): one change, runs of baseline and treatment in pairs of
//!   random order, and the verdict.
//! - [`run`]: the loop, on anything that is a [`Testbed`]; [`PeersTestbed`] is the
//!   real one.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod candidates;
mod comparison;
mod kept;
mod peers;
mod run;
mod testbed;

pub use candidates::candidates;
pub use peers::PeersTestbed;
pub use run::{Event, Options, run};
pub use testbed::{ImproveError, Testbed};
