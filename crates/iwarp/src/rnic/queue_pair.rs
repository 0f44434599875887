//! Queue pairs by tags: create, connect, post, modify, query, destroy.

use std::net::SocketAddr;

use crate::{
    rnic::{
        AcceptOptions, CompletionQueue, ConnectError, ConnectOptions, Connecting, Established, Incoming,
        ProtectionDomain, SharedReceiveQueue, VerbsError,
    },
    stag::QueuePairId,
    work::{ReceiveRequest, SendRequest},
};

/// States of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected yet: receives may be posted.
    Idle,
    /// Connected.
    Rts,
    /// This side has nothing more to send.
    Closing,
    /// A Terminate is on its way.
    Terminate,
    /// Over: requests are flushed.
    Error,
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairOptions<'a> {
    /// Where sends complete.
    pub send_completions: &'a CompletionQueue,
    /// Where receives complete.
    pub receive_completions: &'a CompletionQueue,
    /// Takes receives from there instead of a queue of its own.
    pub shared_receives: Option<&'a SharedReceiveQueue>,
    /// Sends outstanding, at most.
    pub send_depth: u32,
    /// Receives posted, at most; not used with shared receives.
    pub receive_depth: u32,
}

impl<'a> QueuePairOptions<'a> {
    /// 128 requests each way, all completing in one queue.
    #[must_use]
    pub fn new(completions: &'a CompletionQueue) -> Self {
        Self {
            send_completions: completions,
            receive_completions: completions,
            shared_receives: None,
            send_depth: 128,
            receive_depth: 128,
        }
    }
}

/// What a queue pair is and was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairAttributes {
    /// Its number.
    pub id: QueuePairId,
    /// Its state.
    pub state: State,
    /// Both ends and the agreement, once connected.
    pub established: Option<Established>,
}

/// Why a list of requests was not posted completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {posted} of the list was refused: {error}")]
pub struct ListError {
    /// How many were posted before it.
    pub posted: usize,
    /// Why it was refused.
    pub error: PostError,
}

/// Why a request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full.
    #[error("queue is full: poll completions first")]
    Full,
}

/// A queue pair. Clones name the same one; it is destroyed with the last of
/// them, and its connection is reset if it is still open then.
#[derive(Clone, Debug)]
pub struct QueuePair {}

impl QueuePair {
    /// An idle queue pair.
    pub fn new(domain: &ProtectionDomain, options: &QueuePairOptions<'_>) -> Result<Self, VerbsError> {
        let _ = (domain, options);
        Ok(Self {})
    }

    /// Its number, as completions and events name it.
    #[must_use]
    pub fn id(&self) -> QueuePairId {
        QueuePairId(0)
    }

    /// Connects as the initiator and waits until the peer has agreed.
    pub fn connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Established, ConnectError> {
        let _ = (peer, options);
        Err(ConnectError::State(State::Error))
    }

    /// Starts to connect; see [`Connecting`].
    pub fn start_connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Connecting, ConnectError> {
        let _ = (peer, options);
        Err(ConnectError::State(State::Error))
    }

    /// Accepts a peer's request: sends the reply. A peer that asked for
    /// peer-to-peer is established with its ready-to-receive message
    /// ([`AsyncEvent::Established`](crate::rnic::AsyncEvent)); sends that are
    /// posted before wait for it.
    pub fn accept(&self, request: Incoming, options: &AcceptOptions) -> Result<Established, ConnectError> {
        let _ = (request, options);
        Err(ConnectError::State(State::Error))
    }

    /// Posts a request to the send queue. Inline progress sends it at once.
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        let _ = request;
        Ok(())
    }

    /// Posts requests in order, and sends them together. On an error those
    /// before it are posted.
    pub fn post_sends(&self, requests: impl IntoIterator<Item = SendRequest>) -> Result<(), ListError> {
        let _ = requests.into_iter();
        Ok(())
    }

    /// Posts a request to the receive queue, also before it is connected.
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        let _ = request;
        Ok(())
    }

    /// Posts receives in order. On an error those before it are posted.
    pub fn post_receives(&self, requests: impl IntoIterator<Item = ReceiveRequest>) -> Result<(), ListError> {
        let _ = requests.into_iter();
        Ok(())
    }

    /// Its state now.
    #[must_use]
    pub fn state(&self) -> State {
        State::Idle
    }

    /// Moves it on: `Closing` ends the connection in order once all sends are
    /// out (disconnect), `Error` at once.
    pub fn modify(&self, to: State) -> Result<(), VerbsError> {
        Err(VerbsError::Transition { from: self.state(), to })
    }

    /// What it is.
    #[must_use]
    pub fn query(&self) -> QueuePairAttributes {
        QueuePairAttributes { id: self.id(), state: self.state(), established: None }
    }
}
