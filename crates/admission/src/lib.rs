//! Who of those that connect is served, and for how long anybody who has shown no right may stay: the one place
//! that every listener asks.
//!
//! - [`Strangers`] decides without I/O and without a clock: over (number, address, time) it says whom to close.
//! - [`AcceptFault`] is what an error of accept(2) means: it ends and spins no service.
//! - [`Lobby`] is that for a listener that polls: it accepts, and keeps sockets until their first message.
//! - [`Places`] bounds sessions of those that need no proof.
//! - [`Turns`] is about a place that only one may have: who wasted it comes after others.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod fault;
mod lobby;
mod places;
mod source;
mod strangers;
mod turns;

pub use fault::AcceptFault;
pub use lobby::{Lobby, Step, Waiting, fill};
pub use places::{Place, Places};
pub use source::Source;
pub use strangers::{Accepting, Limits, Proof, Strangers};
pub use turns::Turns;
