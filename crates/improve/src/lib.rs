//! The closed loop: diagnose a path, change one thing, measure with and
//! without it in turns, keep it only if it is proven better and nothing else
//! got worse, and begin again.
//!
//! - [`candidates`](mod@candidates): from a diagnosis to changes that may help.
//! - [`trial`](mod@trial): one change, runs with and without it in pairs of
//!   random order, and what follows from them.
//! - [`run`]: the loop, on anything that is a [`Bench`]; [`PeersBench`] is the
//!   real one.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bench;
mod candidates;
mod kept;
mod peers;
mod run;
mod trial;

pub use bench::{Bench, ImproveError};
pub use candidates::candidates;
pub use peers::PeersBench;
pub use run::{Event, Options, run};
