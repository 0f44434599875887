//! The verbs: what a program uses.
//!
//! Two tiers over one RNIC:
//!
//! - **Safe** (this module): [`QueuePair`], [`CompletionQueue`] and
//!   [`SharedReceiveQueue`]. A [`Buffer`](crate::memory::Buffer) moves into a
//!   request and comes back with its completion ([`Finished`]), so that memory
//!   in flight can be neither freed nor read nor written.
//! - **Raw** ([`raw`]): the same queues by steering tags
//!   ([`Segment`](crate::work::Segment)) and the consumer's own numbers, for a
//!   C interface or a fabric provider. Posting is safe there too, because the
//!   RNIC checks every tag; unsafe is only to register memory that the RNIC
//!   does not own (`memory::raw`).
//!
//! Set-up is common to both: [`Rnic`], [`ProtectionDomain`],
//! [`CompletionChannel`], [`Listener`], [`ConnectOptions`], [`AsyncEvents`].
//!
//! A queue pair is created, gets its first receives posted, and is then
//! connected (`connect`) or accepts ([`Listener::accept`], then `accept` of the
//! queue pair).

mod safe;

pub use crate::rnic::{
    AcceptOptions, AsyncEvent, AsyncEvents, Attributes, CompletionChannel, ConnectError, ConnectOptions,
    Connecting, Established, Incoming, Listener, Notify, Overrun, Progress, ProtectionDomain, QueuePairAttributes,
    Rnic, RnicOptions, State, VerbsError,
};
pub use safe::{
    Buffers, CompletionQueue, Finished, QueuePair, QueuePairOptions, Refused, SendOptions, SharedReceiveQueue,
    Sink, Source,
};

/// Queues by steering tags and the consumer's own numbers.
pub mod raw {
    pub use crate::rnic::{CompletionQueue, ListError, QueuePair, QueuePairOptions, SharedReceiveQueue};
    pub use crate::work::{Completion, Data, Operation, ReceiveRequest, Segment, SendRequest};
}
