//! The safe tier: buffers move into requests and come back with completions.

use std::{net::SocketAddr, time::Duration};

use smallvec::SmallVec;

use crate::{
    memory::Buffer,
    rnic::{
        AcceptOptions, CompletionChannel, ConnectError, ConnectOptions, Connecting, Established, Incoming, Notify,
        Overrun, ProtectionDomain, QueuePairAttributes, Rnic, State, VerbsError,
    },
    stag::{QueuePairId, Stag},
    work::{Completion, InlineData, Remote, Segment, Segments},
};

/// Buffers of one request, in order.
pub type Buffers = SmallVec<[Buffer; 1]>;

/// What a Send or Write carries.
#[derive(Debug)]
pub enum Source {
    /// Copied while it is posted.
    Inline(InlineData),
    /// Moved in, gathered in order, and returned with the completion.
    Buffers(Buffers),
    /// Ranges of a [`Region`](crate::memory::Region), which may change while
    /// they are sent.
    Region(Segments),
}

/// Where a Receive, Read or atomic puts what comes.
#[derive(Debug)]
pub enum Sink {
    /// Moved in, filled in order, and returned with the completion. A Read
    /// and an atomic take one buffer.
    Buffers(Buffers),
    /// Ranges of a [`Region`](crate::memory::Region).
    Region(Segments),
}

impl From<Buffer> for Source {
    fn from(buffer: Buffer) -> Self {
        Self::Buffers(SmallVec::from_buf([buffer]))
    }
}

impl From<Segment> for Source {
    fn from(segment: Segment) -> Self {
        Self::Region(SmallVec::from_slice(&[segment]))
    }
}

impl From<&[u8]> for Source {
    fn from(bytes: &[u8]) -> Self {
        Self::Inline(SmallVec::from_slice(bytes))
    }
}

impl From<Buffer> for Sink {
    fn from(buffer: Buffer) -> Self {
        Self::Buffers(SmallVec::from_buf([buffer]))
    }
}

impl From<Segment> for Sink {
    fn from(segment: Segment) -> Self {
        Self::Region(SmallVec::from_slice(&[segment]))
    }
}

/// How a request of the send queue is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// A completion is wanted also when it succeeds. The buffers of a request
    /// without one come back with the next completion of the send queue.
    pub signaled: bool,
    /// Waits until all earlier Reads and atomics are complete.
    pub fence: bool,
    /// Send and Immediate: wakes a peer that asked for solicited completions.
    pub solicited: bool,
    /// Send: a tag of the peer's that its RNIC invalidates on delivery.
    pub invalidate: Option<Stag>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { signaled: true, fence: false, solicited: false, invalidate: None }
    }
}

/// A request was not posted; its buffers are here.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    pub error: PostError,
    /// What would have moved in.
    pub buffers: Buffers,
}

/// A completion with the buffers that it gives back.
#[derive(Debug)]
pub struct Finished {
    /// What ended, and how.
    pub completion: Completion,
    /// The request's buffers, after those of earlier requests without a
    /// completion of their own.
    pub buffers: Buffers,
}

/// A completion queue. Clones name the same one.
#[derive(Clone, Debug)]
pub struct CompletionQueue {}

impl CompletionQueue {
    /// A queue for `capacity` completions.
    pub fn new(rnic: &Rnic, capacity: u32) -> Result<Self, VerbsError> {}

    /// A queue whose events come out of `channel` with the number `token`.
    pub fn with_channel(
        rnic: &Rnic,
        capacity: u32,
        channel: &CompletionChannel,
        token: u64,
    ) -> Result<Self, VerbsError> {
    }

    /// The oldest completion, if there is one.
    pub fn poll(&self) -> Result<Option<Finished>, Overrun> {}

    /// Appends up to `most` completions to `into`; how many.
    pub fn poll_into(&self, into: &mut Vec<Finished>, most: usize) -> Result<usize, Overrun> {}

    /// Polls until there is a completion, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Finished>, Overrun> {}

    /// Asks for one event on the channel. Completions that are in the queue
    /// already raise none: poll again after arming.
    pub fn arm(&self, notify: Notify) -> Result<(), Overrun> {}
}

/// A receive queue that several queue pairs share.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// A queue for `depth` receives; its events carry `token`.
    pub fn new(domain: &ProtectionDomain, depth: u32, token: u64) -> Result<Self, VerbsError> {}

    /// Posts a receive; `id` comes back with its completion.
    pub fn receive(&self, id: u64, into: impl Into<Sink>) -> Result<(), Refused> {}

    /// Raises [`AsyncEvent::SharedReceiveQueueLimit`](crate::rnic::AsyncEvent)
    /// once fewer than `limit` receives are posted; 0 is off.
    pub fn set_limit(&self, limit: u32) {}
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
    pub fn new(completions: &'a CompletionQueue) -> Self {}
}

/// A queue pair. Dropped, it is destroyed; its connection is reset if it is
/// still open then.
#[derive(Debug)]
pub struct QueuePair {}

impl QueuePair {
    /// An idle queue pair.
    pub fn new(domain: &ProtectionDomain, options: &QueuePairOptions<'_>) -> Result<Self, VerbsError> {}

    /// Its number, as completions and events name it.
    pub fn id(&self) -> QueuePairId {}

    /// Connects as the initiator and waits until the peer has agreed.
    pub fn connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Established, ConnectError> {}

    /// Starts to connect; see [`Connecting`].
    pub fn start_connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Connecting, ConnectError> {}

    /// Accepts a peer's request: sends the reply.
    pub fn accept(&self, request: Incoming, options: &AcceptOptions) -> Result<Established, ConnectError> {}

    /// Posts a Send.
    pub fn send(&self, id: u64, from: impl Into<Source>, options: SendOptions) -> Result<(), Refused> {}

    /// Posts a Write into the peer's memory.
    pub fn write(&self, id: u64, from: impl Into<Source>, to: Remote, options: SendOptions) -> Result<(), Refused> {}

    /// Posts a Read out of the peer's memory.
    pub fn read(&self, id: u64, into: impl Into<Sink>, from: Remote, options: SendOptions) -> Result<(), Refused> {}

    /// Posts eight bytes of immediate data.
    pub fn immediate(&self, id: u64, data: [u8; 8], options: SendOptions) -> Result<(), Refused> {}

    /// Posts an addition to eight bytes of the peer's memory; what was there
    /// comes into `into` (8 bytes).
    pub fn fetch_add(
        &self,
        id: u64,
        into: impl Into<Sink>,
        at: Remote,
        add: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
    }

    /// Posts: if eight bytes of the peer's memory equal `compare`, `swap` comes
    /// in their place; what was there comes into `into` (8 bytes).
    pub fn compare_swap(
        &self,
        id: u64,
        into: impl Into<Sink>,
        at: Remote,
        compare: u64,
        swap: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
    }

    /// Posts a request that moves no buffer: binding a window, invalidating a
    /// local tag, masked atomics into a region.
    pub fn post(&self, request: SendRequest) -> Result<(), Refused> {}

    /// Posts a receive.
    pub fn receive(&self, id: u64, into: impl Into<Sink>) -> Result<(), Refused> {}

    /// Its state now.
    pub fn state(&self) -> State {}

    /// Moves it on: `Closing` ends the connection in order once all sends are
    /// out (disconnect), `Error` at once.
    pub fn modify(&self, to: State) -> Result<(), VerbsError> {}

    /// What it is.
    pub fn query(&self) -> QueuePairAttributes {}
}
