//! Queue pairs and shared receive queues whose requests own their buffers.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use crate::{
    memory::Access,
    queue_pair::{PostError, State},
    rnic::{
        self, AcceptOptions, ConnectError, ConnectOptions, Connecting, Established, Incoming,
        ProtectionDomain, QueuePairAttributes, VerbsError,
    },
    stag::{QueuePairId, Stag},
    verbs::{
        buffers::{Buffers, Flight, Loans, Posted, Sends, Sink, Source, lend, locked, take_back},
        completion_queue::CompletionQueue,
        region::Window,
    },
    work::{Data, Operation, ReceiveRequest, Remote, Segment, Segments, SendRequest},
};

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
    #[source]
    pub error: PostError,
    /// What would have moved in.
    pub buffers: Buffers,
}

impl Refused {
    fn new(error: PostError, loans: Loans) -> Self {
        let mut buffers = Buffers::new();
        take_back(loans, &mut buffers);
        Self { error, buffers }
    }
}

/// A receive queue that several queue pairs share. Clones name the same one.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    raw: rnic::SharedReceiveQueue,
    posted: Arc<Mutex<Posted>>,
}

impl SharedReceiveQueue {
    /// A queue for `depth` receives; `token` names it in events.
    ///
    /// # Errors
    /// The depth is out of range.
    pub fn new(domain: &ProtectionDomain, depth: u32, token: u64) -> Result<Self, VerbsError> {
        let raw = rnic::SharedReceiveQueue::new(domain, depth, token)?;
        Ok(Self { raw, posted: Arc::default() })
    }

    /// Posts a receive; `id` comes back with its completion.
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn receive(&self, id: u64, into: impl Into<Sink>) -> Result<(), Refused> {
        receive(&self.posted, id, into.into(), |request| self.raw.post([request]).map_err(|list| list.error))
    }

    /// Asks for one [`SharedReceiveQueueLimit`](crate::rnic::AsyncEvent) as soon
    /// as fewer than `limit` receives are left; 0 asks for none.
    pub fn set_limit(&self, limit: u32) {
        self.raw.set_limit(limit);
    }
}

/// What a queue pair is made of.
pub type QueuePairOptions<'a> = rnic::QueuePairOptions<'a, CompletionQueue, SharedReceiveQueue>;

/// A queue pair. Dropped, it is destroyed: its connection is closed, what is
/// outstanding is forgotten and its buffers are freed.
///
/// What is in flight is out of reach:
///
/// ```compile_fail,E0382
/// # use clearstream_iwarp::{memory::Buffer, verbs::QueuePair};
/// fn read_too_early(queue_pair: &QueuePair, buffer: Buffer) -> u8 {
///     let _ = queue_pair.receive(1, buffer);
///     buffer[0]
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use clearstream_iwarp::{memory::Buffer, verbs::{QueuePair, SendOptions}};
/// fn write_meanwhile(queue_pair: &QueuePair, mut buffer: Buffer) {
///     let _ = queue_pair.send(1, buffer, SendOptions::default());
///     buffer[0] = 1;
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use clearstream_iwarp::{memory::Buffer, verbs::{QueuePair, SendOptions}};
/// fn post_twice(queue_pair: &QueuePair, buffer: Buffer) {
///     let _ = queue_pair.send(1, buffer, SendOptions::default());
///     let _ = queue_pair.receive(2, buffer);
/// }
/// ```
#[derive(Debug)]
pub struct QueuePair {
    raw: rnic::QueuePair,
    flight: Arc<Flight>,
    completions: [CompletionQueue; 2],
}

impl QueuePair {
    /// An idle queue pair.
    ///
    /// # Errors
    /// A depth is out of range, or a queue belongs to another RNIC or domain.
    pub fn new(domain: &ProtectionDomain, options: &QueuePairOptions<'_>) -> Result<Self, VerbsError> {
        let raw = rnic::QueuePair::new(
            domain,
            &rnic::QueuePairOptions {
                send_completions: &options.send_completions.raw,
                receive_completions: &options.receive_completions.raw,
                shared_receives: options.shared_receives.map(|shared| &shared.raw),
                send_depth: options.send_depth,
                receive_depth: options.receive_depth,
            },
        )?;
        let receives = options.shared_receives.map(|shared| shared.posted.clone()).unwrap_or_default();
        let flight = Arc::new(Flight { sends: Mutex::new(Sends::default()), receives });
        let completions = [options.send_completions.clone(), options.receive_completions.clone()];
        completions.iter().for_each(|queue| queue.add(raw.id(), &flight));
        Ok(Self { raw, flight, completions })
    }

    /// Its number, as completions and events name it.
    #[must_use]
    pub fn id(&self) -> QueuePairId {
        self.raw.id()
    }

    /// Connects as the initiator and waits until the peer has agreed.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is idle again.
    pub fn connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Established, ConnectError> {
        self.raw.connect(peer, options)
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
        self.raw.start_connect(peer, options)
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
        self.raw.accept(request, options)
    }

    /// Posts a Send.
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn send(&self, id: u64, from: impl Into<Source>, options: SendOptions) -> Result<(), Refused> {
        let (loans, data) = data(from.into());
        let SendOptions { solicited, invalidate, .. } = options;
        self.post_with(id, loans, Operation::Send { data, solicited, invalidate }, options)
    }

    /// Posts a Write into the peer's memory.
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn write(
        &self,
        id: u64,
        from: impl Into<Source>,
        to: Remote,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let (loans, data) = data(from.into());
        self.post_with(id, loans, Operation::Write { data, remote: to }, options)
    }

    /// Posts a Read out of the peer's memory, as long as the sink.
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn read(
        &self,
        id: u64,
        into: impl Into<Sink>,
        from: Remote,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let (loans, sink) = one(into.into())?;
        self.post_with(id, loans, Operation::Read { sink, remote: from, invalidate: false }, options)
    }

    /// Posts eight bytes of immediate data.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn immediate(&self, id: u64, data: [u8; 8], options: SendOptions) -> Result<(), Refused> {
        let operation = Operation::Immediate { data, solicited: options.solicited };
        self.post_with(id, Loans::new(), operation, options)
    }

    /// Posts an addition to eight bytes of the peer's memory; what was there
    /// comes into `into` (8 bytes, native byte order).
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn fetch_add(
        &self,
        id: u64,
        into: impl Into<Sink>,
        at: Remote,
        add: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let (loans, sink) = one(into.into())?;
        self.post_with(id, loans, Operation::FetchAdd { sink, remote: at, add, mask: 0 }, options)
    }

    /// Posts: if eight bytes of the peer's memory equal `compare`, `swap` comes
    /// in their place; what was there comes into `into` (8 bytes, native byte
    /// order).
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn compare_swap(
        &self,
        id: u64,
        into: impl Into<Sink>,
        at: Remote,
        compare: u64,
        swap: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let (loans, sink) = one(into.into())?;
        let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
        let operation = Operation::CompareSwap { sink, remote: at, compare, compare_mask, swap, swap_mask };
        self.post_with(id, loans, operation, options)
    }

    /// Posts the binding of a window to a range of a region (none: unbinds it).
    /// Requests posted later and the peer use the tag that it has then.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn bind(
        &self,
        id: u64,
        window: &mut Window,
        memory: Segment,
        access: Access,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let operation = Operation::BindWindow { window: window.stag, memory, access };
        self.post_with(id, Loans::new(), operation, options)?;
        window.stag = window.stag.next_key();
        Ok(())
    }

    /// Posts a request that moves no buffer: invalidating a local tag, masked
    /// atomics into a region.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn post(&self, mut request: SendRequest) -> Result<(), Refused> {
        let id = request.id;
        let mut sends = locked(&self.flight.sends);
        request.id = sends.serial();
        self.raw.post_send(request).map_err(|error| Refused::new(error, Loans::new()))?;
        sends.push(id, Loans::new());
        Ok(())
    }

    /// Posts a receive, also before it is connected; `id` comes back with its
    /// completion.
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn receive(&self, id: u64, into: impl Into<Sink>) -> Result<(), Refused> {
        receive(&self.flight.receives, id, into.into(), |request| self.raw.post_receive(request))
    }

    /// Its state now.
    #[must_use]
    pub fn state(&self) -> State {
        self.raw.state()
    }

    /// Moves it on: `Closing` ends the connection in order once all sends are
    /// out (disconnect), `Error` at once.
    ///
    /// # Errors
    /// [`VerbsError::Transition`]: the others are reached by `connect`,
    /// `accept` and the peer only.
    pub fn modify(&self, to: State) -> Result<(), VerbsError> {
        self.raw.modify(to)
    }

    /// What it is.
    #[must_use]
    pub fn query(&self) -> QueuePairAttributes {
        self.raw.query()
    }

    fn post_with(
        &self,
        id: u64,
        loans: Loans,
        operation: Operation,
        SendOptions { signaled, fence, .. }: SendOptions,
    ) -> Result<(), Refused> {
        // Held while it is posted: the books have the order of the queue.
        let mut sends = locked(&self.flight.sends);
        let request = SendRequest { id: sends.serial(), operation, signaled, fence };
        match self.raw.post_send(request) {
            Ok(()) => {
                sends.push(id, loans);
                Ok(())
            }
            Err(error) => Err(Refused::new(error, loans)),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.completions.iter().for_each(|queue| queue.remove(self.raw.id()));
    }
}

fn data(source: Source) -> (Loans, Data) {
    match source {
        Source::Inline(bytes) => (Loans::new(), Data::Inline(bytes)),
        Source::Region(segments) => (Loans::new(), Data::Gather(segments)),
        Source::Buffers(buffers) => {
            let (loans, segments) = lend(buffers);
            (loans, Data::Gather(segments))
        }
    }
}

fn places(sink: Sink) -> (Loans, Segments) {
    match sink {
        Sink::Region(segments) => (Loans::new(), segments),
        Sink::Buffers(buffers) => lend(buffers),
    }
}

/// A sink of one piece.
fn one(sink: Sink) -> Result<(Loans, Segment), Refused> {
    let (loans, segments) = places(sink);
    match segments[..] {
        [segment] => Ok((loans, segment)),
        _ => Err(Refused::new(PostError::Segments, loans)),
    }
}

fn receive(
    posted: &Mutex<Posted>,
    id: u64,
    sink: Sink,
    post: impl FnOnce(ReceiveRequest) -> Result<(), PostError>,
) -> Result<(), Refused> {
    let (loans, segments) = places(sink);
    let number = locked(posted).insert(id, loans);
    post(ReceiveRequest { id: number, segments }).map_err(|error| {
        let loans = locked(posted).remove(number).map(|(_, loans)| loans).unwrap_or_default();
        Refused::new(error, loans)
    })
}
