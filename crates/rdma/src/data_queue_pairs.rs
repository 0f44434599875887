//! Data queue pairs of one side of a measurement, with their completion queue
//! and registered memory.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{
        AcceptOptions, Access, CompletionChannel, ConnectOptions, Established, Incoming, Notify, Progress,
        ProtectionDomain, Region, Rnic, RnicOptions, State,
        raw::{CompletionQueue, QueuePair, QueuePairOptions, ReceiveRequest},
    },
    work::{Completion, Segment, SendRequest, Status},
};
use clearstream_schema::rdma::{RdmaConfig, RdmaProgress, RdmaWait};

use crate::{
    blocking::{self, closure, overrun, peer_of},
    error::RdmaError,
    negotiation::{Advert, Layout},
};

/// Maximum number of completions per poll.
pub(crate) const BATCH: usize = 64;
/// Completions of one poll.
pub(crate) type Batch = [Completion; BATCH];
/// Send requests beyond the depth: credits, immediate data, the Read that ends
/// a run.
const EXTRA_SENDS: u32 = 24;
/// Empty polls after which the core is yielded to other threads.
const POLLS_PER_YIELD: u32 = 4096;
/// Longest sleep between two polls of the control channel.
const WAKE_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of each queue pair in the sink of the Reads that end a run.
const FLUSH_SINK_BYTES: usize = 8;

/// Role of a side: each sends its own pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Connects.
    Client,
    /// Listens.
    Server,
}

impl Role {
    /// The role of the peer.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Purpose of a work request, in the uppermost byte of its id; the index of the
/// queue pair and a number follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Messages of the measurement; the number is how many complete with it.
    Data,
    /// A receive; the number is its slot.
    Receive,
    /// Its completion is ignored.
    Untracked,
    /// The Read that ends a run.
    Flush,
}

/// Encodes the id of a work request.
pub(crate) fn request_id(purpose: Purpose, qp: usize, number: u32) -> u64 {
    (purpose as u64) << 56 | (qp as u64) << 32 | u64::from(number)
}

/// Decodes the id of a work request.
pub(crate) fn decode_id(id: u64) -> (Purpose, usize, u32) {
    let purpose = match id >> 56 {
        0 => Purpose::Data,
        1 => Purpose::Receive,
        2 => Purpose::Untracked,
        _ => Purpose::Flush,
    };
    (purpose, (id >> 32 & 0xff_ffff) as usize, id as u32)
}

/// All data queue pairs of one side.
#[derive(Debug)]
pub(crate) struct DataQueuePairs {
    rnic: Rnic,
    domain: ProtectionDomain,
    /// To sleep on. Polling ends have none: its epolls would be notified of each packet.
    channel: Option<CompletionChannel>,
    completions: CompletionQueue,
    queue_pairs: Vec<QueuePair>,
    established: Vec<Option<Established>>,
    /// Region that is sent or written from, or read by the peer.
    pub(crate) source: Region,
    /// Region that is received, written by the peer, or read into.
    pub(crate) sink: Region,
    flush_sink: Region,
    pub(crate) config: RdmaConfig,
    pub(crate) layout: Layout,
    role: Role,
    armed: bool,
    empty_poll_count: u32,
}

/// Opens an RNIC in the requested progress mode on the requested core. With
/// inline or adaptive progress the calling thread makes progress, and is pinned;
/// a helper inherits its core.
///
/// # Errors
/// A core that cannot be used.
pub(crate) fn open_rnic(progress: RdmaProgress, core: Option<u32>) -> Result<Rnic, RdmaError> {
    let progress = match progress {
        RdmaProgress::Inline | RdmaProgress::Adaptive => {
            if let Some(core) = core {
                clearstream_sys::affinity::pin_to(core).map_err(|error| {
                    RdmaError::Option(format!(
                        "core {core}: {error}; choose one that this process may use (taskset -cp $$)"
                    ))
                })?;
            }
            if progress == RdmaProgress::Adaptive { Progress::Adaptive } else { Progress::Inline }
        }
        RdmaProgress::Offloaded => Progress::Offloaded { cores: core.into_iter().collect() },
    };
    Ok(Rnic::open(RnicOptions { progress, ..RnicOptions::default() })?)
}

impl DataQueuePairs {
    /// Creates idle queue pairs with their memory and first receives.
    ///
    /// # Errors
    /// The RNIC's, or no memory.
    pub(crate) fn new(
        rnic: &Rnic,
        config: &RdmaConfig,
        layout: Layout,
        role: Role,
    ) -> Result<Self, RdmaError> {
        let max_inline = rnic.attributes().max_inline_bytes;
        if config.inline.0 > u64::from(max_inline) {
            return Err(RdmaError::Option(format!(
                "--inline {}: at most {max_inline} bytes are copied",
                config.inline
            )));
        }
        let domain = ProtectionDomain::new(rnic);
        let sleeps = config.wait() == RdmaWait::Sleep;
        let channel = if sleeps { Some(CompletionChannel::new()?) } else { None };
        let (sends, receives) = (layout.depth + EXTRA_SENDS, layout.receives());
        let capacity = (sends + receives) * u32::from(layout.queue_pairs) + BATCH as u32;
        let completions = CompletionQueue::new(rnic, capacity, 0, channel.as_ref())?;
        let mut options = QueuePairOptions::new(&completions);
        (options.send_depth, options.receive_depth) = (sends, receives);
        let count = usize::from(layout.queue_pairs);
        let queue_pairs: Result<Vec<_>, _> = (0..count).map(|_| QueuePair::new(&domain, &options)).collect();
        let slot = layout.slot_bytes as usize;
        let remote = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let this = Self {
            source: Region::new(&domain, count * slot, remote)?,
            sink: Region::new(&domain, count * slot * layout.slots as usize, remote)?,
            flush_sink: Region::new(&domain, count * FLUSH_SINK_BYTES, Access::LOCAL_WRITE)?,
            rnic: rnic.clone(),
            domain,
            channel,
            completions,
            queue_pairs: queue_pairs?,
            established: vec![None; count],
            config: config.clone(),
            layout,
            role,
            armed: false,
            empty_poll_count: 0,
        };
        for qp in 0..count {
            for slot in 0..this.layout.receives() {
                this.post_receive(qp, slot)?;
            }
        }
        Ok(this)
    }

    /// Returns the number of queue pairs.
    pub(crate) fn count(&self) -> usize {
        self.queue_pairs.len()
    }

    /// Returns the protection domain of the queue pairs.
    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Returns the RNIC's identifier of a queue pair.
    pub(crate) fn queue_pair_number(&self, qp: usize) -> u32 {
        self.queue_pairs[qp].id().0
    }

    /// Connects the first idle queue pair.
    ///
    /// # Errors
    /// No connection; the call may be repeated.
    pub(crate) fn connect_next(
        &mut self,
        peer: SocketAddr,
        options: &ConnectOptions,
        stop: &AtomicBool,
    ) -> Result<(), RdmaError> {
        let idle = self.queue_pairs.iter().zip(&mut self.established).find(|(_, place)| place.is_none());
        if let Some((queue_pair, place)) = idle {
            *place = Some(blocking::connect(queue_pair, peer, options, stop)?);
        }
        Ok(())
    }

    /// Accepts a connection on the queue pair of this index.
    ///
    /// # Errors
    /// An index that does not exist or is connected; no connection.
    pub(crate) fn accept(
        &mut self,
        index: u16,
        request: Incoming,
        options: &AcceptOptions,
    ) -> Result<(), RdmaError> {
        let qp = usize::from(index);
        let place = self.established.get_mut(qp).filter(|place| place.is_none());
        let (Some(place), Some(queue_pair)) = (place, self.queue_pairs.get(qp)) else {
            let peer = request.peer;
            let _ = request.reject(b"no such queue pair in this test");
            let reason = format!("it connected queue pair {index}, which does not exist or is connected");
            return Err(RdmaError::Lost { peer, reason });
        };
        *place = Some(queue_pair.accept(request, options)?);
        Ok(())
    }

    /// Whether all queue pairs are connected.
    pub(crate) fn all_connected(&self) -> bool {
        self.established.iter().all(Option::is_some)
    }

    /// Negotiated parameters of the first queue pair.
    pub(crate) fn established(&self) -> Option<&Established> {
        self.established.first().and_then(Option::as_ref)
    }

    /// Checks that the connections carry immediate data with Sends and Writes, where that was requested.
    ///
    /// # Errors
    /// The peer did not offer it.
    pub(crate) fn check_immediate_data(&self) -> Result<(), RdmaError> {
        let refused = |established: &&Established| self.config.immediate && !established.immediate_data;
        match self.established.iter().flatten().find(refused) {
            Some(established) => Err(RdmaError::Option(format!(
                "{} offers no immediate data with Sends and Writes: leave --immediate out, or use the same clearstream \
                 at both ends",
                established.peer
            ))),
            None => Ok(()),
        }
    }

    /// Returns the bytes that all connections have moved, both ways.
    pub(crate) fn moved_bytes(&self) -> u64 {
        let moved = self.queue_pairs.iter().map(QueuePair::statistics);
        moved.map(|moved| moved.sent_bytes() + moved.received_bytes()).sum()
    }

    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> SocketAddr {
        peer_of(self.established())
    }

    /// Returns the registered memory, to be advertised to the peer.
    pub(crate) fn advert(&self) -> Advert {
        Advert {
            source_stag: self.source.stag().0,
            source_address: self.source.address(),
            source_stride: self.layout.slot_bytes,
            sink_stag: self.sink.stag().0,
            sink_address: self.sink.address(),
            sink_stride: self.layout.slot_bytes * u64::from(self.layout.slots),
        }
    }

    /// Returns the segment of the message that a queue pair sends.
    pub(crate) fn source_segment(&self, qp: usize, size: u32) -> Segment {
        self.source.segment(self.source_offset(qp), size)
    }

    /// Offset of a queue pair's message in the source.
    pub(crate) fn source_offset(&self, qp: usize) -> usize {
        qp * self.layout.slot_bytes as usize
    }

    /// Returns the slot of an incoming message.
    pub(crate) fn sink_segment(&self, qp: usize, number: u32, size: u32) -> Segment {
        self.sink.segment(self.sink_offset(qp, number), size)
    }

    /// Offset of a message's slot in the sink.
    pub(crate) fn sink_offset(&self, qp: usize, number: u32) -> usize {
        let slot = (number % self.layout.slots) as usize;
        (qp * self.layout.slots as usize + slot) * self.layout.slot_bytes as usize
    }

    /// Returns the sink of the Read that ends a run.
    pub(crate) fn flush_segment(&self, qp: usize, size: u32) -> Segment {
        self.flush_sink.segment(qp * FLUSH_SINK_BYTES, size)
    }

    /// Posts a receive for a message of any size of the measurement.
    ///
    /// # Errors
    /// A closed connection.
    pub(crate) fn post_receive(&self, qp: usize, slot: u32) -> Result<(), RdmaError> {
        let length = u32::try_from(self.layout.slot_bytes).unwrap_or(u32::MAX);
        let segment = self.sink_segment(qp, slot, length);
        let id = request_id(Purpose::Receive, qp, slot);
        self.queue_pairs[qp]
            .post_receive(ReceiveRequest { id, segments: [segment].into_iter().collect() })
            .map_err(|error| self.lost(qp, &error.to_string()))
    }

    /// Posts one work request to a send queue.
    ///
    /// # Errors
    /// A full queue or a closed connection.
    pub(crate) fn post_send(&self, qp: usize, request: SendRequest) -> Result<(), RdmaError> {
        self.queue_pairs[qp].post_send(request).map_err(|error| self.lost(qp, &error.to_string()))
    }

    /// Posts work requests to a send queue, in order.
    ///
    /// # Errors
    /// A full queue or a closed connection.
    pub(crate) fn post_sends(
        &self,
        qp: usize,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<(), RdmaError> {
        self.queue_pairs[qp].post_sends(requests).map_err(|error| self.lost(qp, &error.to_string()))
    }

    /// Polls for completions; with inline progress this also drives the
    /// sockets.
    ///
    /// # Errors
    /// The first work request that failed: its connection is closed.
    pub(crate) fn poll(&mut self, batch: &mut Batch) -> Result<usize, RdmaError> {
        let mut failure = None;
        let count = self.poll_each(batch, |_, error| {
            failure.get_or_insert(error);
        })?;
        failure.map_or(Ok(count), Err)
    }

    /// Like [`Self::poll`], where connections may close one after the other:
    /// successful completions come first in `batch`, and `failed` gets the
    /// queue pair and the error of each other one.
    ///
    /// # Errors
    /// A completion queue that overran.
    pub(crate) fn poll_each(
        &mut self,
        batch: &mut Batch,
        mut failed: impl FnMut(usize, RdmaError),
    ) -> Result<usize, RdmaError> {
        let count = self.completions.poll(batch).map_err(overrun)?;
        if count > 0 {
            (self.empty_poll_count, self.armed) = (0, false);
        }
        let mut succeeded = 0;
        for at in 0..count {
            if batch[at].status == Status::Success {
                if at != succeeded {
                    batch.swap(at, succeeded);
                }
                succeeded += 1;
            } else {
                let (_, qp, _) = decode_id(batch[at].id);
                let closure = closure(&self.rnic, batch[at].queue_pair, batch[at].status);
                failed(qp, self.lost(qp, &closure.reason));
            }
        }
        Ok(succeeded)
    }

    /// Called after a poll without completions. Sleeps where that was requested;
    /// returns whether it is time to poll the control channel.
    ///
    /// # Errors
    /// A completion queue that overran.
    pub(crate) fn idle(&mut self) -> Result<bool, RdmaError> {
        self.empty_poll_count = self.empty_poll_count.wrapping_add(1);
        let Some(channel) = &self.channel else {
            std::hint::spin_loop();
            let due = self.empty_poll_count.is_multiple_of(POLLS_PER_YIELD);
            if due {
                std::thread::yield_now();
            }
            return Ok(due);
        };
        if std::mem::replace(&mut self.armed, false) {
            // There is one queue: a wake-up and a timeout need the same
            // handling.
            let _ = channel.next(Some(WAKE_INTERVAL));
            return Ok(true);
        }
        // Completions from before the arming generate no event: the caller
        // polls once more.
        self.completions.arm(Notify::Next).map_err(overrun)?;
        self.armed = true;
        Ok(false)
    }

    /// Creates the error of a queue pair whose connection was lost.
    pub(crate) fn lost(&self, qp: usize, reason: &str) -> RdmaError {
        RdmaError::Lost { peer: self.peer(), reason: format!("queue pair {qp}: {reason}") }
    }

    /// Closes all connections gracefully.
    pub(crate) fn close(self) {
        for queue_pair in &self.queue_pairs {
            // No error if it is closed already.
            let _ = queue_pair.modify(State::Closing);
        }
    }

    /// Fills the source and clears the sink.
    pub(crate) fn fill_memory(&self, size: u64) {
        for qp in 0..self.queue_pairs.len() {
            self.source.write(self.source_offset(qp), &pattern(self.role, qp, size));
            for slot in 0..self.layout.slots {
                self.clear_slot(qp, slot, size);
            }
        }
    }

    /// Clears a slot, so that nothing of an earlier message remains.
    pub(crate) fn clear_slot(&self, qp: usize, number: u32, size: u64) {
        self.sink.write(self.sink_offset(qp, number), &vec![0; size as usize]);
    }

    /// Whether a slot holds the peer's message.
    pub(crate) fn holds_message(&self, qp: usize, number: u32, size: u64) -> bool {
        let found = self.sink.to_vec(self.sink_offset(qp, number), size as usize);
        found == self.expected(qp, size)
    }

    /// Whether the first slot of a queue pair holds the first `length` bytes of
    /// the peer's message of this size.
    pub(crate) fn holds_prefix(&self, qp: usize, size: u64, length: u64) -> bool {
        let length = length as usize;
        self.sink.to_vec(self.sink_offset(qp, 0), length) == self.expected(qp, size)[..length]
    }

    fn expected(&self, qp: usize, size: u64) -> Vec<u8> {
        pattern(self.role.other(), qp, size)
    }
}

/// Pattern of a queue pair: different for each role, queue pair and size, and
/// without repetition in adjacent parts.
fn pattern(role: Role, qp: usize, size: u64) -> Vec<u8> {
    let start = 1 + role as u64 * 89 + qp as u64 * 17 + size;
    (0..size).map(|at| (start + at * 131 + (at >> 8) * 7) as u8 | 1).collect()
}
