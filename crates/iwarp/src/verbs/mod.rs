//! Verbs: the programming interface.
//!
//! Two tiers over one RNIC:
//!
//! - **Safe** (this module): [`QueuePair`], [`CompletionQueue`] and
//!   [`SharedReceiveQueue`]. A [`Buffer`] moves into a request and is returned
//!   with its completion ([`Finished`]), so that memory in flight can be neither
//!   freed nor read nor written. A [`Region`] is accessible to peers: bytes are
//!   copied in and out of it.
//! - **Raw** ([`raw`]): the same queues with STags ([`raw::Segment`]) and the
//!   consumer's own identifiers, for a C interface or a fabric provider. Posting
//!   is safe there too, because the RNIC checks every STag; only registering
//!   memory that the RNIC does not own is unsafe
//!   ([`memory::raw`](crate::memory::raw)).
//!
//! Connection setup is common to both: [`Rnic`], [`ProtectionDomain`],
//! [`CompletionChannel`], [`Listener`], [`ConnectOptions`], [`AsyncEvents`].
//!
//! A queue pair is created, gets its first receives posted, and is then
//! connected (`connect`) or accepts ([`Listener::accept`], then `accept` of the
//! queue pair).

mod buffers;
mod completion_queue;
mod queue_pair;
mod region;

pub use crate::{
    memory::{Access, Buffer},
    queue_pair::{Failure, PostError, State},
    rnic::{
        AcceptOptions, AsyncEvent, AsyncEvents, Attributes, CompletionChannel, ConnectError, ConnectOptions,
        Connecting, Established, Incoming, Listener, Moved, Notify, Overrun, Progress, ProtectionDomain,
        QueuePairAttributes, QueuePairStatistics, Rnic, RnicOptions, VerbsError,
    },
};
pub use buffers::{Buffers, Sink, Source};
pub use completion_queue::{CompletionQueue, Finished};
pub use queue_pair::{QueuePair, QueuePairOptions, Refused, SendOptions, SharedReceiveQueue};
pub use region::{Region, Window};

/// Queues with STags and the consumer's own identifiers.
pub mod raw {
    pub use crate::{
        rnic::{CompletionQueue, ListError, QueuePair, QueuePairOptions, SharedReceiveQueue},
        work::{Completion, Data, Operation, ReceiveRequest, Segment, SendRequest},
    };
}
