//! The protocol of one established connection as a state machine: requests
//! and received bytes go in, bytes to send and completions come out. No
//! sockets, no clock, no threads.
//!
//! [`Machine`] is the face; behind it `transmit` chooses what is sent next,
//! `message` cuts it into FPDUs for a [`Batch`], `receive` takes the stream
//! apart, `place` puts payload into memory, `deliver` ends messages, and
//! `ending` is how a connection ends.

mod batch;
mod deliver;
mod ending;
mod limits;
mod machine;
mod message;
mod place;
mod receive;
mod receives;
mod send_queue;
mod transmit;

pub use batch::Batch;
pub use limits::Limits;
pub use machine::Machine;
pub use receives::{ReceiveQueue, Receives};

use crate::rdmap::Terminate;

/// States of a queue pair, as the verbs name them (RFC 5040, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection is over and was closed in order.
    Idle,
    /// Ready to send: requests are carried out.
    Rts,
    /// Closing in order: what was posted is still sent, nothing new is taken.
    Closing,
    /// A Terminate is on its way to the peer; nothing else happens.
    Terminate,
    /// The connection ended with an error; every request came back.
    Error,
}

/// Which of the two completion queues a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The send queue's.
    Send,
    /// The receive queue's.
    Receive,
}

/// What happened beside the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's first FPDU came (RFC 5044, section 7.1; RFC 6581, section
    /// 9.2): a responder may send from now on. A responder's connection is
    /// established for its consumer only now if a ready-to-receive message
    /// was agreed.
    Established,
    /// The peer found an error and ended the connection.
    TerminateReceived(Terminate),
    /// We found an error and told the peer.
    TerminateSent(Terminate),
    /// The peer sends nothing any more; it closed between two messages.
    PeerClosed,
    /// The connection broke off.
    Failed(Failure),
    /// A shared receive queue has fewer requests than its limit.
    ReceivesLow,
}

/// Why a connection ended without a Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// RST, or an error of the socket.
    #[error("the peer reset the connection; connect again")]
    Reset,
    /// The peer closed in the middle of a message or with answers due.
    #[error("the peer closed the connection in the middle of a message; see why it ended")]
    Truncated,
    /// Whoever drives the connection gave it up.
    #[error("the connection was given up after waiting too long; look for a stalled peer")]
    TimedOut,
    /// The consumer ended it.
    #[error("the queue pair was moved to the error state; connect a new one")]
    Ended,
    /// Registered memory was taken back when half of an FPDU was sent from it.
    #[error("memory was deregistered while it was sent; wait for completions before it is given up")]
    TakenBack,
}

/// A request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many requests are outstanding as the queue was made for.
    #[error("the queue is full; poll completions first, or make a deeper queue")]
    Full,
    /// Wrong state.
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
    #[error("an atomic operation brings back 8 bytes; give a sink of 8 bytes")]
    AtomicSink,
    /// Reads and atomics were negotiated away.
    #[error("the connection was set up for no outstanding Reads; connect with ORD of at least 1")]
    NoReads,
    /// Receives are posted to the shared queue.
    #[error("this queue pair uses a shared receive queue; post there")]
    SharedReceives,
}
