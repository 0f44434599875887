//! Queue pairs by tags: create, connect, post, modify, query, destroy.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use crate::{
    queue_pair::{Failure, Limits, Machine, PostError, ReceiveQueue, State},
    rnic::{
        AcceptOptions, CompletionQueue, ConnectError, ConnectOptions, Connecting, Established, Incoming,
        ProtectionDomain, SharedReceiveQueue, VerbsError,
        connect::{self, Attempt},
        device::Attributes,
        link::Link,
    },
    stag::QueuePairId,
    work::{ReceiveRequest, SendRequest},
};

/// What a queue pair is made of: queues of this tier, or of the safe one.
#[derive(Debug)]
pub struct QueuePairOptions<'a, Completions = CompletionQueue, Receives = SharedReceiveQueue> {
    /// Where sends complete.
    pub send_completions: &'a Completions,
    /// Where receives complete.
    pub receive_completions: &'a Completions,
    /// Takes receives from there instead of a queue of its own.
    pub shared_receives: Option<&'a Receives>,
    /// Sends outstanding, at most.
    pub send_depth: u32,
    /// Receives posted, at most; not used with shared receives.
    pub receive_depth: u32,
}

impl<Completions, Receives> Clone for QueuePairOptions<'_, Completions, Receives> {
    fn clone(&self) -> Self {
        *self
    }
}

// Derived, it would ask the same of the queues.
impl<Completions, Receives> Copy for QueuePairOptions<'_, Completions, Receives> {}

impl<'a, Completions, Receives> QueuePairOptions<'a, Completions, Receives> {
    /// 128 requests each way, all completing in one queue.
    #[must_use]
    pub fn new(completions: &'a Completions) -> Self {
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

/// A queue pair. Clones name the same one; it is destroyed with the last of
/// them: its connection is closed, and what is outstanding is forgotten.
#[derive(Clone, Debug)]
pub struct QueuePair {
    handle: Arc<Handle>,
}

/// Destroys the queue pair with its last clone, whoever drives it.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) link: Arc<Link>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.link.destroy();
    }
}

impl QueuePair {
    /// An idle queue pair.
    ///
    /// # Errors
    /// A depth is out of range, or a queue belongs to another RNIC or domain.
    pub fn new(domain: &ProtectionDomain, options: &QueuePairOptions<'_>) -> Result<Self, VerbsError> {
        let device = &domain.shared.device;
        let attributes = domain.rnic().attributes();
        Attributes::check("depth of a send queue", options.send_depth, attributes.max_depth)?;
        for completions in [options.send_completions, options.receive_completions] {
            if !Arc::ptr_eq(completions.device(), device) {
                return Err(VerbsError::Foreign { what: "completion queue" });
            }
        }
        let queue = match options.shared_receives {
            Some(shared) if !Arc::ptr_eq(&shared.domain, &domain.shared) => {
                return Err(VerbsError::Foreign { what: "shared receive queue" });
            }
            Some(shared) => shared.queue.clone(),
            None => {
                Attributes::check("depth of a receive queue", options.receive_depth, attributes.max_depth)?;
                let depth = options.receive_depth as usize;
                Arc::new(Mutex::new(ReceiveQueue::new(depth, attributes.max_segments as usize)))
            }
        };
        let link = Link::new(
            device.queue_pair_id(),
            domain.shared.clone(),
            options.send_completions.clone(),
            options.receive_completions.clone(),
            queue,
            options.shared_receives.map(|shared| shared.token),
            Limits {
                send_queue: options.send_depth as usize,
                segments: attributes.max_segments as usize,
                inline_bytes: attributes.max_inline_bytes as usize,
            },
            device.engine(),
        );
        Ok(Self { handle: Arc::new(Handle { link: Arc::new(link) }) })
    }

    /// Its number, as completions and events name it.
    #[must_use]
    pub fn id(&self) -> QueuePairId {
        self.link().id
    }

    /// Connects as the initiator and waits until the peer has agreed.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is idle again.
    pub fn connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Established, ConnectError> {
        Attempt::start(self.handle.clone(), peer, options)?.wait()
    }

    /// Starts to connect; see [`Connecting`].
    ///
    /// # Errors
    /// As for [`QueuePair::connect`].
    pub fn start_connect(
        &self,
        peer: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Connecting, ConnectError> {
        Connecting::new(Attempt::start(self.handle.clone(), peer, options)?)
    }

    /// Accepts a peer's request: sends the Reply. A responder sends only after
    /// the peer's first message (RFC 5044, section 7.1), which is then told by
    /// [`AsyncEvent::Established`](crate::rnic::AsyncEvent); requests that are
    /// posted before wait for it.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is idle again, the peer's connection is
    /// closed.
    pub fn accept(&self, request: Incoming, options: &AcceptOptions) -> Result<Established, ConnectError> {
        connect::accept(self.link(), request, options)
    }

    /// Posts a request to the send queue. Inline progress sends it at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        self.link().post_sends([request]).map_err(|refused| refused.error)
    }

    /// Posts requests in order, and sends them together.
    ///
    /// # Errors
    /// The first that was refused; those before it are posted.
    pub fn post_sends(&self, requests: impl IntoIterator<Item = SendRequest>) -> Result<(), ListError> {
        self.link().post_sends(requests)
    }

    /// Posts a request to the receive queue, also before it is connected.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        self.link().post_receives([request]).map_err(|refused| refused.error)
    }

    /// Posts receives in order.
    ///
    /// # Errors
    /// The first that was refused; those before it are posted.
    pub fn post_receives(&self, requests: impl IntoIterator<Item = ReceiveRequest>) -> Result<(), ListError> {
        self.link().post_receives(requests)
    }

    /// Its state now.
    #[must_use]
    pub fn state(&self) -> State {
        self.link().state()
    }

    /// Moves it on: `Closing` ends the connection in order once all sends are
    /// out (disconnect), `Error` at once.
    ///
    /// # Errors
    /// [`VerbsError::Transition`]: the others are reached by `connect`,
    /// `accept` and the peer only.
    pub fn modify(&self, to: State) -> Result<(), VerbsError> {
        let from = self.state();
        match (from, to) {
            (State::Rts | State::Closing, State::Closing) => self.link().with_machine(Machine::close),
            (State::Rts | State::Closing | State::Terminate | State::Error, State::Error) => {
                self.link().with_machine(|machine| machine.fail(Failure::Ended));
            }
            _ => return Err(VerbsError::Transition { from, to }),
        }
        Ok(())
    }

    /// What it is.
    #[must_use]
    pub fn query(&self) -> QueuePairAttributes {
        let established = self.link().established.get().cloned();
        QueuePairAttributes { id: self.id(), state: self.state(), established }
    }

    fn link(&self) -> &Arc<Link> {
        &self.handle.link
    }
}
