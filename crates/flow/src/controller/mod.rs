//! The controller's side: drives both agents and merges their results.

mod adaptation;
mod cores;
mod direction;
mod error;
mod merge;
mod notices;
mod session;
mod stall;
mod summary;

pub use error::FlowError;
pub use session::run;

use clearstream_schema::flow::{Direction, FlowSettings, Interval};
use clearstream_schema::notice::Notice;

/// Events of [`run`].
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "events are few and live briefly")]
pub enum FlowEvent {
    /// All flows are connected: effective settings of both sides.
    Ready {
        /// At the client.
        client: FlowSettings,
        /// At the server.
        server: FlowSettings,
    },
    /// Counts of both sides for one interval.
    Interval(Interval),
    /// A notice; the summary contains it, too.
    Notice(Notice),
}

/// An end of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Sides whose threads receive.
fn receivers(direction: Direction) -> &'static [Side] {
    match direction {
        Direction::Forward => &[Side::Server],
        Direction::Reverse => &[Side::Client],
        Direction::Both => &[Side::Client, Side::Server],
    }
}

/// Sides whose threads send.
fn senders(direction: Direction) -> &'static [Side] {
    match direction {
        Direction::Forward => &[Side::Client],
        Direction::Reverse => &[Side::Server],
        Direction::Both => &[Side::Client, Side::Server],
    }
}
