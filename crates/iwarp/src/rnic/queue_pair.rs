//! Raw queue pairs: create, connect, post, modify, query, destroy.

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
        phase::flushed,
        statistics::QueuePairStatistics,
    },
    stag::QueuePairId,
    work::{Completed, ReceiveRequest, Segment, SendRequest},
};

/// Options of a queue pair, with queues of this tier or of the safe one.
#[derive(Debug)]
pub struct QueuePairOptions<'a, Completions = CompletionQueue, Receives = SharedReceiveQueue> {
    /// Completion queue of sends.
    pub send_completions: &'a Completions,
    /// Completion queue of receives.
    pub receive_completions: &'a Completions,
    /// Shared receive queue, instead of its own.
    pub shared_receives: Option<&'a Receives>,
    /// Maximum number of outstanding sends.
    pub send_depth: u32,
    /// Maximum number of posted receives; unused with a shared receive queue.
    pub receive_depth: u32,
}

impl<Completions, Receives> Clone for QueuePairOptions<'_, Completions, Receives> {
    fn clone(&self) -> Self {
        *self
    }
}

// A derived implementation would require `Copy` of the queues.
impl<Completions, Receives> Copy for QueuePairOptions<'_, Completions, Receives> {}

impl<'a, Completions, Receives> QueuePairOptions<'a, Completions, Receives> {
    /// 128 requests per queue, with one completion queue.
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

/// Attributes and negotiated parameters of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairAttributes {
    /// Identifier.
    pub id: QueuePairId,
    /// State.
    pub state: State,
    /// Addresses and negotiated parameters, once connected.
    pub established: Option<Established>,
}

/// Error of posting a list of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {posted} of the list was rejected: {error}")]
pub struct ListError {
    /// Number of requests posted before it.
    pub posted: usize,
    /// Reason of the rejection.
    pub error: PostError,
}

/// A queue pair (QP). Clones refer to the same one; it is destroyed with the
/// last of them: its connection is closed, and outstanding requests are
/// discarded.
#[derive(Clone, Debug)]
pub struct QueuePair {
    handle: Arc<Handle>,
}

/// Destroys the queue pair with its last clone, whichever thread drives it.
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
    /// Creates an idle queue pair.
    ///
    /// # Errors
    /// A depth is out of range, or a queue belongs to another RNIC or domain.
    pub fn new(domain: &ProtectionDomain, options: &QueuePairOptions<'_>) -> Result<Self, VerbsError> {
        Self::create(domain, options, false)
    }

    /// Creates an idle queue pair on which a Send longer than its receive waits for more memory
    /// ([`QueuePair::extend_receive`]); it ends the connection otherwise.
    ///
    /// # Errors
    /// As for [`QueuePair::new`].
    pub fn with_extended_receives(
        domain: &ProtectionDomain,
        options: &QueuePairOptions<'_>,
    ) -> Result<Self, VerbsError> {
        Self::create(domain, options, true)
    }

    fn create(
        domain: &ProtectionDomain,
        options: &QueuePairOptions<'_>,
        receives_extend: bool,
    ) -> Result<Self, VerbsError> {
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
                receives_extend,
                receives_wait: !domain.rnic().options().receive_timeout.is_zero()
                    && options.shared_receives.is_none(),
            },
            device.engine(),
        );
        Ok(Self { handle: Arc::new(Handle { link: Arc::new(link) }) })
    }

    /// Returns its identifier in completions and events.
    #[must_use]
    pub fn id(&self) -> QueuePairId {
        self.link().id
    }

    /// Connects as the initiator and waits until the connection is established.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is idle again.
    pub fn connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Established, ConnectError> {
        Attempt::start(self.handle.clone(), peer, options)?.wait()
    }

    /// Starts a connection setup; see [`Connecting`].
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

    /// Accepts a connection request: sends the Reply. A responder sends only
    /// after the peer's first message (RFC 5044, section 7.1), which is
    /// reported by [`AsyncEvent::Established`](crate::rnic::AsyncEvent);
    /// requests posted before wait for it.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is idle again, the peer's connection is
    /// closed.
    pub fn accept(&self, request: Incoming, options: &AcceptOptions) -> Result<Established, ConnectError> {
        connect::accept(self.link(), request, options)
    }

    /// Whether sends of a responder wait for the first message of an initiator that may never send one: its setup is not
    /// peer-to-peer.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.link().with_machine(|machine| machine.is_held_back()).unwrap_or(false)
    }

    /// Sends as responder before the initiator's first message, which the standard forbids ([`AcceptOptions::send_first`]).
    pub fn send_first(&self) {
        self.link().with_machine(Machine::send_first);
    }

    /// Posts a request to the send queue. Inline progress sends it at once;
    /// adaptive progress may hold a small Write for the post that follows, for
    /// two ticks of its helper (two milliseconds, if that is scheduled in time).
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        self.link().post_sends([request]).map_err(|refused| refused.error)
    }

    /// Posts requests in order, and sends them together.
    ///
    /// # Errors
    /// The first rejected request; those before it are posted.
    pub fn post_sends(&self, requests: impl IntoIterator<Item = SendRequest>) -> Result<(), ListError> {
        self.link().post_sends(requests)
    }

    /// Posts a request to the receive queue, also before the connection is
    /// established.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        self.link().post_receives([request]).map_err(|refused| refused.error)
    }

    /// Posts receives in order.
    ///
    /// # Errors
    /// The first rejected request; those before it are posted.
    pub fn post_receives(&self, requests: impl IntoIterator<Item = ReceiveRequest>) -> Result<(), ListError> {
        self.link().post_receives(requests)
    }

    /// Names memory for the rest of a message, or a part of it, after a completion with
    /// [`Completed::ReceiveFull`]: the stream waits for it. Needs
    /// [`QueuePair::with_extended_receives`].
    ///
    /// # Errors
    /// [`PostError`]: no receive waits (any more), or too many segments.
    pub fn extend_receive(&self, segments: &[Segment]) -> Result<(), PostError> {
        let outcome = self.link().with_machine(|machine| machine.extend_receive(segments));
        outcome.unwrap_or(Err(PostError::NotConnected))
    }

    /// Completes a request as flushed without posting it: requests posted after
    /// the end of a connection, in interfaces that accept them.
    pub fn complete_flushed(&self, id: u64, completed: Completed) {
        let completions = match completed {
            Completed::Receive
            | Completed::ReceiveImmediate
            | Completed::ReceiveWritten
            | Completed::ReceiveFull => &self.link().receives,
            _ => &self.link().sends,
        };
        completions.push(flushed(self.id(), id, completed));
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.link().state()
    }

    /// Changes the state: `Closing` closes the connection gracefully once all
    /// sends are out (disconnect), `Error` closes it immediately.
    ///
    /// # Errors
    /// [`VerbsError::Transition`]: other states are entered only by `connect`,
    /// `accept` and the peer.
    pub fn modify(&self, to: State) -> Result<(), VerbsError> {
        let from = self.state();
        match (from, to) {
            (State::Rts | State::Closing, State::Closing) => _ = self.link().with_machine(Machine::close),
            (State::Rts | State::Closing | State::Terminate | State::Error, State::Error) => {
                self.link().with_machine(|machine| machine.fail(Failure::Ended));
            }
            _ => return Err(VerbsError::Transition { from, to }),
        }
        Ok(())
    }

    /// Returns its attributes.
    #[must_use]
    pub fn query(&self) -> QueuePairAttributes {
        let established = self.link().established.get().cloned();
        QueuePairAttributes { id: self.id(), state: self.state(), established }
    }

    /// Returns what its connection moved, and which threads moved it; also
    /// after the connection ended.
    #[must_use]
    pub fn statistics(&self) -> QueuePairStatistics {
        self.link().counters.read()
    }

    fn link(&self) -> &Arc<Link> {
        &self.handle.link
    }
}
