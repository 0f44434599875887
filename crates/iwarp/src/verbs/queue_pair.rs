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
        ProtectionDomain, QueuePairAttributes, QueuePairStatistics, VerbsError,
    },
    stag::{QueuePairId, Stag},
    verbs::{
        buffers::{Buffers, Flight, Loans, Posted, Sends, Sink, Source, lend, locked, reclaim},
        completion_queue::CompletionQueue,
        region::Window,
    },
    work::{Data, Operation, ReceiveRequest, Remote, Segment, Segments, SendRequest},
};

/// Options of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// Generates a completion also on success. The buffers of an unsignaled
    /// request are returned with the next completion of the send queue.
    pub signaled: bool,
    /// Starts after all earlier Reads and atomics are complete.
    pub fence: bool,
    /// Send and Immediate: notifies a peer that waits for solicited
    /// completions.
    pub solicited: bool,
    /// Send: an STag of the peer, invalidated by its RNIC on delivery.
    pub invalidate: Option<Stag>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { signaled: true, fence: false, solicited: false, invalidate: None }
    }
}

/// A rejected request, with its buffers.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Cause.
    #[source]
    pub error: PostError,
    /// Buffers of the request.
    pub buffers: Buffers,
}

impl Refused {
    fn new(error: PostError, loans: Loans) -> Self {
        let mut buffers = Buffers::new();
        reclaim(loans, &mut buffers);
        Self { error, buffers }
    }
}

/// A shared receive queue (SRQ). Clones refer to the same queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    raw: rnic::SharedReceiveQueue,
    posted: Arc<Mutex<Posted>>,
}

impl SharedReceiveQueue {
    /// Creates a queue for `depth` receives; `token` identifies it in events.
    ///
    /// # Errors
    /// The depth is out of range.
    pub fn new(domain: &ProtectionDomain, depth: u32, token: u64) -> Result<Self, VerbsError> {
        let raw = rnic::SharedReceiveQueue::new(domain, depth, token)?;
        Ok(Self { raw, posted: Arc::default() })
    }

    /// Posts a receive; `id` is returned with its completion.
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn receive(&self, id: u64, into: impl Into<Sink>) -> Result<(), Refused> {
        receive(&self.posted, id, into.into(), |request| self.raw.post([request]).map_err(|list| list.error))
    }

    /// Requests one [`SharedReceiveQueueLimit`](crate::rnic::AsyncEvent) as
    /// soon as fewer than `limit` receives are left; 0 requests none.
    pub fn set_limit(&self, limit: u32) {
        self.raw.set_limit(limit);
    }
}

/// Options of a queue pair.
pub type QueuePairOptions<'a> = rnic::QueuePairOptions<'a, CompletionQueue, SharedReceiveQueue>;

/// A queue pair. Dropping it destroys it: its connection is closed, outstanding
/// requests are discarded and their buffers freed.
///
/// Buffers in flight are inaccessible:
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
    /// Creates an idle queue pair.
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

    /// Returns its identifier in completions and events.
    #[must_use]
    pub fn id(&self) -> QueuePairId {
        self.raw.id()
    }

    /// Connects as the initiator and waits until the connection is established.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is idle again.
    pub fn connect(&self, peer: SocketAddr, options: &ConnectOptions) -> Result<Established, ConnectError> {
        self.raw.connect(peer, options)
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
        self.raw.start_connect(peer, options)
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

    /// Posts a Read from the peer's memory, of the length of the sink.
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

    /// Posts a fetch and add on eight bytes of the peer's memory; the original
    /// value is stored in `into` (8 bytes, native byte order).
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

    /// Posts a compare and swap: if eight bytes of the peer's memory equal
    /// `compare`, they are replaced by `swap`; the original value is stored in
    /// `into` (8 bytes, native byte order).
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
    /// Later requests and the peer use the window's new STag.
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

    /// Posts a request without buffers: local invalidation of an STag, masked
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

    /// Posts a receive, also before the connection is established; `id` is
    /// returned with its completion.
    ///
    /// # Errors
    /// [`Refused`], with the buffers.
    pub fn receive(&self, id: u64, into: impl Into<Sink>) -> Result<(), Refused> {
        receive(&self.flight.receives, id, into.into(), |request| self.raw.post_receive(request))
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.raw.state()
    }

    /// Changes the state: `Closing` closes the connection gracefully once all
    /// sends are out (disconnect), `Error` closes it immediately.
    ///
    /// # Errors
    /// [`VerbsError::Transition`]: other states are entered only by `connect`,
    /// `accept` and the peer.
    pub fn modify(&self, to: State) -> Result<(), VerbsError> {
        self.raw.modify(to)
    }

    /// Returns what its connection moved, and which threads moved it.
    #[must_use]
    pub fn statistics(&self) -> QueuePairStatistics {
        self.raw.statistics()
    }

    /// Returns its attributes.
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
        // Locked while posting, so that the tracking has the order of the
        // queue.
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

/// Converts a sink of one segment.
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
