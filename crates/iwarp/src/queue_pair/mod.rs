//! Protocol of one established connection as a state machine: inputs are
//! requests and received bytes, outputs are bytes to send and completions. No
//! sockets, no clock, no threads.
//!
//! [`Machine`] is the interface; `transmit` selects the next message, `message`
//! segments it into FPDUs of a [`Batch`], `receive` decodes the stream, `place`
//! places payload into memory, `extend` adds memory to a receive, `deliver`
//! completes messages, `bound` sends and delivers immediate data with them, and
//! `teardown` ends the connection.

mod batch;
mod bound;
mod deliver;
mod extend;
mod limits;
mod machine;
mod message;
mod place;
mod receive;
mod receiver_not_ready;
mod receives;
mod send_queue;
mod teardown;
mod transmit;

pub use batch::Batch;
pub use limits::Limits;
pub use machine::Machine;
pub use receives::{ReceiveQueue, Receives};

use crate::rdmap::Terminate;

/// Queue pair states, as in the verbs (RFC 5040, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection was closed gracefully.
    Idle,
    /// Ready to send: requests are processed.
    Rts,
    /// Graceful close in progress: posted requests are still sent, new ones are
    /// rejected.
    Closing,
    /// A Terminate is being sent to the peer; nothing else is processed.
    Terminate,
    /// The connection ended with an error; every request was completed.
    Error,
}

/// Completion queue that a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The send queue's.
    Send,
    /// The receive queue's.
    Receive,
}

/// Events that are no completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's first FPDU was received (RFC 5044, section 7.1; RFC 6581,
    /// section 9.2): a responder may send from now on. With a negotiated
    /// ready-to-receive message the responder's connection is established for
    /// its consumer only now.
    Established,
    /// The peer detected an error and terminated the connection.
    TerminateReceived(Terminate),
    /// This side detected an error and sent a Terminate.
    TerminateSent(Terminate),
    /// The peer closed the stream between two messages.
    PeerClosed,
    /// The connection was lost.
    Failed(Failure),
    /// A shared receive queue has fewer requests than its limit.
    ReceivesLow,
}

/// Reasons for the end of a connection without a Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// RST, or an error of the socket.
    #[error("the peer reset the connection; reconnect")]
    Reset,
    /// The peer closed within a message or with responses outstanding.
    #[error("the peer closed the connection within a message; check why it ended")]
    Truncated,
    /// The driver of the connection timed out.
    #[error("the connection timed out; check for a stalled peer")]
    TimedOut,
    /// The consumer ended it.
    #[error("the queue pair was moved to the error state; connect a new one")]
    Ended,
    /// Registered memory was withdrawn after part of an FPDU was sent from it.
    #[error("memory was deregistered while it was sent; wait for completions before deregistering it")]
    MemoryWithdrawn,
}

/// Reasons for which a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full.
    #[error("the queue is full; poll completions first, or create a deeper queue")]
    Full,
    /// The queue pair is not in a state that accepts requests.
    #[error("the queue pair is not connected any more; connect a new one")]
    NotConnected,
    /// Too many segments.
    #[error("too many segments in one request; split it or raise the queue pair's segments")]
    Segments,
    /// Too many inline bytes.
    #[error("too many inline bytes; send them from registered memory")]
    Inline,
    /// The segments are longer than a message can be (2^32 - 1 bytes).
    #[error("the message is longer than 4 GiB - 1; split it")]
    Length,
    /// The sink of an atomic operation is not eight bytes long.
    #[error("an atomic operation returns 8 bytes; use a sink of 8 bytes")]
    AtomicSink,
    /// The ends have not both offered immediate data with Sends and Writes.
    #[error(
        "the peer takes no immediate data with Sends and Writes on this connection; send it in a message"
    )]
    NoImmediateData,
    /// The ends have both offered immediate data with Sends and Writes.
    #[error("immediate data goes with a Send or Write on this connection; post a Write of no bytes with it")]
    ImmediateAlone,
    /// No outstanding Reads and atomics were negotiated.
    #[error("the connection was set up for no outstanding Reads; connect with ORD of at least 1")]
    NoReads,
    /// No receive waits for more memory.
    #[error(
        "no message is longer than its receive; extend a receive once, after a completion reports that it is full"
    )]
    NotFull,
    /// Receives are posted to the shared queue.
    #[error("this queue pair uses a shared receive queue; post there")]
    SharedReceives,
}
