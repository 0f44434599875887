//! The queue pairs that carry the data of a test, and their memory.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{
        AcceptOptions, Access, CompletionChannel, ConnectOptions, Established, Incoming, Notify, Progress,
        ProtectionDomain, Region, Rnic, RnicOptions, State,
        raw::{CompletionQueue, QueuePair, QueuePairOptions, ReceiveRequest},
    },
    work::{Completion, Segment, Status},
};
use clearstream_schema::rdma::{RdmaConfig, RdmaProgress, RdmaWait};

use crate::{
    blocking::{self, ending},
    error::RdmaError,
    negotiation::{Advert, Opening, Shape, welcome},
};

/// Completions taken at once.
pub const BATCH: usize = 64;
/// Place for them.
pub type Batch = [Completion; BATCH];
/// Requests beyond the depth of the data: credits, announcements, the Read
/// that ends a round.
const EXTRA_SENDS: u32 = 24;
/// Empty polls after which the core is offered to others.
const POLLS_PER_YIELD: u32 = 4096;
/// How long a sleeper sleeps before it looks at the messages of the test.
const NAP: Duration = Duration::from_millis(1);

/// Which end of a test this is: their patterns differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The one that connects.
    Near,
    /// The one that listens.
    Far,
}

/// What a request of a lane was for: the upper half of its id, above the
/// number of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Messages of the test; the lower half is how many end with it.
    Data,
    /// A receive; the lower half is its slot.
    Receive,
    /// Something that nobody waits for.
    Aside,
    /// The Read that ends a round.
    Flush,
}

/// Builds the id of a request.
#[must_use]
pub fn request_id(purpose: Purpose, lane: usize, number: u32) -> u64 {
    (purpose as u64) << 56 | (lane as u64) << 32 | u64::from(number)
}

/// Takes the id of a request apart.
#[must_use]
pub fn split_id(id: u64) -> (Purpose, usize, u32) {
    let purpose = match id >> 56 {
        0 => Purpose::Data,
        1 => Purpose::Receive,
        2 => Purpose::Aside,
        _ => Purpose::Flush,
    };
    (purpose, (id >> 32 & 0xff_ffff) as usize, id as u32)
}

/// All queue pairs of one end.
#[derive(Debug)]
pub struct Lanes {
    rnic: Rnic,
    domain: ProtectionDomain,
    channel: CompletionChannel,
    queue: CompletionQueue,
    /// In the order of their numbers.
    pub pairs: Vec<QueuePair>,
    established: Vec<Option<Established>>,
    /// What is sent, written from here, or read by the other end.
    pub source: Region,
    /// What arrives, is written by the other end, or read into.
    pub sink: Region,
    /// Where a flushing Read puts its byte.
    pub aside: Region,
    /// What was asked for.
    pub config: RdmaConfig,
    /// Of the memory and the queues.
    pub shape: Shape,
    end: End,
    armed: bool,
    idle: u32,
}

/// Opens an RNIC that makes progress as asked for, on the core asked for.
/// Inline progress is made by the calling thread, which is pinned.
///
/// # Errors
/// A core that cannot be used.
pub fn open_rnic(progress: RdmaProgress, core: Option<u32>) -> Result<Rnic, RdmaError> {
    let progress = match progress {
        RdmaProgress::Inline => {
            if let Some(core) = core {
                clearstream_sys::affinity::pin_to(core).map_err(|error| {
                    RdmaError::Option(format!(
                        "core {core}: {error}; choose one that this process may use (taskset -cp $$)"
                    ))
                })?;
            }
            Progress::Inline
        }
        RdmaProgress::Offloaded => Progress::Offloaded { cores: core.into_iter().collect() },
    };
    Ok(Rnic::open(RnicOptions { progress, ..RnicOptions::default() })?)
}

impl Lanes {
    /// Queue pairs that are not connected yet, with their memory and first
    /// receives.
    ///
    /// # Errors
    /// The RNIC's, or no memory.
    pub fn new(rnic: &Rnic, config: &RdmaConfig, shape: Shape, end: End) -> Result<Self, RdmaError> {
        let most = rnic.attributes().max_inline_bytes;
        if config.inline.0 > u64::from(most) {
            return Err(RdmaError::Option(format!(
                "--inline {}: at most {most} bytes are copied",
                config.inline
            )));
        }
        let domain = ProtectionDomain::new(rnic);
        let channel = CompletionChannel::new()?;
        let (sends, receives) = (shape.depth + EXTRA_SENDS, shape.receives());
        let queue = CompletionQueue::new(
            rnic,
            (sends + receives) * u32::from(shape.lanes) + BATCH as u32,
            0,
            Some(&channel),
        )?;
        let mut options = QueuePairOptions::new(&queue);
        (options.send_depth, options.receive_depth) = (sends, receives);
        let lanes = usize::from(shape.lanes);
        let pairs: Result<Vec<_>, _> = (0..lanes).map(|_| QueuePair::new(&domain, &options)).collect();
        let slot = shape.slot_bytes as usize;
        let shown = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let this = Self {
            source: Region::new(&domain, lanes * slot, shown)?,
            sink: Region::new(&domain, lanes * slot * shape.slots as usize, shown)?,
            aside: Region::new(&domain, lanes * 8, Access::LOCAL_WRITE)?,
            rnic: rnic.clone(),
            domain,
            channel,
            queue,
            pairs: pairs?,
            established: vec![None; lanes],
            config: config.clone(),
            shape,
            end,
            armed: false,
            idle: 0,
        };
        for lane in 0..lanes {
            for number in 0..this.shape.receives() {
                this.expect(lane, number)?;
            }
        }
        Ok(this)
    }

    /// The protection domain of the lanes.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Connects the next one.
    ///
    /// # Errors
    /// No connection; the same one may be tried again.
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        options: &ConnectOptions,
        stop: &AtomicBool,
    ) -> Result<(), RdmaError> {
        for (pair, place) in self.pairs.iter().zip(&mut self.established) {
            if place.is_none() {
                *place = Some(blocking::connect(pair, peer, options, stop)?);
                break;
            }
        }
        Ok(())
    }

    /// Accepts the lane of this number.
    ///
    /// # Errors
    /// A number that is none, or was there before; no connection.
    pub fn accept(&mut self, lane: u16, request: Incoming, options: &AcceptOptions) -> Result<(), RdmaError> {
        let number = usize::from(lane);
        let place = self.established.get_mut(number).filter(|place| place.is_none());
        let (Some(place), Some(pair)) = (place, self.pairs.get(number)) else {
            let peer = request.peer;
            let _ = request.reject(b"no such queue pair in this test");
            return Err(RdmaError::Lost { peer, reason: format!("it connected queue pair {lane} wrongly") });
        };
        *place = Some(pair.accept(request, options)?);
        Ok(())
    }

    /// All are connected.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.established.iter().all(Option::is_some)
    }

    /// What was agreed on for the first of them.
    #[must_use]
    pub fn agreed(&self) -> Option<&Established> {
        self.established.first().and_then(Option::as_ref)
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.agreed().map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |agreed| agreed.peer)
    }

    /// Where the other end finds our memory.
    #[must_use]
    pub fn advert(&self) -> Advert {
        Advert {
            source_stag: self.source.stag().0,
            source_address: self.source.address(),
            source_stride: self.shape.slot_bytes,
            sink_stag: self.sink.stag().0,
            sink_address: self.sink.address(),
            sink_stride: self.shape.slot_bytes * u64::from(self.shape.slots),
        }
    }

    /// A lane's message to send.
    #[must_use]
    pub fn source_segment(&self, lane: usize, size: u32) -> Segment {
        self.source.segment(self.source_offset(lane), size)
    }

    /// Offset of a lane's message in the source.
    #[must_use]
    pub fn source_offset(&self, lane: usize) -> usize {
        lane * self.shape.slot_bytes as usize
    }

    /// Offset of a lane's slot in the sink.
    #[must_use]
    pub fn sink_offset(&self, lane: usize, number: u32) -> usize {
        let slot = (number % self.shape.slots) as usize;
        (lane * self.shape.slots as usize + slot) * self.shape.slot_bytes as usize
    }

    /// Posts a receive; it takes a message of any size of the test.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn expect(&self, lane: usize, number: u32) -> Result<(), RdmaError> {
        let length = u32::try_from(self.shape.slot_bytes).unwrap_or(u32::MAX);
        let segment = self.sink.segment(self.sink_offset(lane, number), length);
        let id = request_id(Purpose::Receive, lane, number);
        self.pairs[lane]
            .post_receive(ReceiveRequest { id, segments: [segment].into_iter().collect() })
            .map_err(|error| self.lost(lane, &error.to_string()))
    }

    /// Takes completions; with inline progress it also moves bytes.
    ///
    /// # Errors
    /// The first request that did not end well: the connection is over.
    pub fn poll(&mut self, into: &mut Batch) -> Result<usize, RdmaError> {
        let count = self.queue.poll(into).map_err(|error| RdmaError::Fault(error.to_string()))?;
        if count > 0 {
            (self.idle, self.armed) = (0, false);
        }
        for completion in &into[..count] {
            if completion.status != Status::Success {
                let (_, lane, _) = split_id(completion.id);
                let ending = ending(&self.rnic, completion.queue_pair, completion.status);
                return Err(self.lost(lane, &ending.reason));
            }
        }
        Ok(count)
    }

    /// As [`Self::poll`], where the connections may end one after the other:
    /// what ended well comes first in `into`, and `failed` gets the lane and
    /// the reason of the rest.
    ///
    /// # Errors
    /// A queue that is lost.
    pub fn poll_each(
        &mut self,
        into: &mut Batch,
        mut failed: impl FnMut(usize, RdmaError),
    ) -> Result<usize, RdmaError> {
        let count = self.queue.poll(into).map_err(|error| RdmaError::Fault(error.to_string()))?;
        if count > 0 {
            (self.idle, self.armed) = (0, false);
        }
        let mut succeeded = 0;
        for at in 0..count {
            if into[at].status == Status::Success {
                into.swap(at, succeeded);
                succeeded += 1;
            } else {
                let (_, lane, _) = split_id(into[at].id);
                let ending = ending(&self.rnic, into[at].queue_pair, into[at].status);
                failed(lane, self.lost(lane, &ending.reason));
            }
        }
        Ok(succeeded)
    }

    /// There was nothing to do: whether it is time to look at other things
    /// than the data, after having slept where sleeping was asked for.
    ///
    /// # Errors
    /// A queue that is lost.
    pub fn rest(&mut self) -> Result<bool, RdmaError> {
        self.idle = self.idle.wrapping_add(1);
        if self.config.wait() == RdmaWait::Poll {
            std::hint::spin_loop();
            let pause = self.idle.is_multiple_of(POLLS_PER_YIELD);
            if pause {
                std::thread::yield_now();
            }
            return Ok(pause);
        }
        if std::mem::replace(&mut self.armed, false) {
            // There is one queue: whether it was this or the time does not matter.
            let _ = self.channel.next(Some(NAP));
            return Ok(true);
        }
        // What came before arming raises no event: the caller polls once more.
        self.queue.arm(Notify::Next).map_err(|error| RdmaError::Fault(error.to_string()))?;
        self.armed = true;
        Ok(false)
    }

    /// The connection of a lane broke.
    #[must_use]
    pub fn lost(&self, lane: usize, reason: &str) -> RdmaError {
        RdmaError::Lost { peer: self.peer(), reason: format!("queue pair {lane}: {reason}") }
    }

    /// Ends all connections in order.
    pub fn close(self) {
        for pair in &self.pairs {
            // One that is over already has nothing to end.
            let _ = pair.modify(State::Closing);
        }
    }

    /// Fills what is sent, and clears where things arrive.
    pub fn lay_out(&self, size: u64) {
        for lane in 0..self.pairs.len() {
            let message = pattern(self.end, lane, size);
            self.source.write(self.source_offset(lane), &message);
            for slot in 0..self.shape.slots {
                self.clear(lane, slot, size);
            }
        }
    }

    /// Clears a slot, so that nothing of an earlier message stays.
    pub fn clear(&self, lane: usize, number: u32, size: u64) {
        self.sink.write(self.sink_offset(lane, number), &vec![0; size as usize]);
    }

    /// Whether a slot holds what the other end has to say.
    #[must_use]
    pub fn as_sent(&self, lane: usize, number: u32, size: u64) -> bool {
        let offset = self.sink_offset(lane, number);
        self.sink.to_vec(offset, size as usize) == self.expected(lane, size)
    }

    /// Whether the first slot of a lane begins with what the other end has to
    /// say in messages of this size.
    #[must_use]
    pub fn begins_as_sent(&self, lane: usize, size: u64, length: u64) -> bool {
        let offset = self.sink_offset(lane, 0);
        let length = length as usize;
        self.sink.to_vec(offset, length) == self.expected(lane, size)[..length]
    }

    fn expected(&self, lane: usize, size: u64) -> Vec<u8> {
        let other = match self.end {
            End::Near => End::Far,
            End::Far => End::Near,
        };
        pattern(other, lane, size)
    }
}

/// The message of a lane: no two ends, lanes or sizes have the same, and no
/// part is the same as its neighbour.
#[must_use]
fn pattern(end: End, lane: usize, size: u64) -> Vec<u8> {
    let start = 1 + end as u64 * 89 + lane as u64 * 17 + size;
    (0..size).map(|at| (start + at * 131 + (at >> 8) * 7) as u8 | 1).collect()
}

/// How connections of a test are asked for.
#[must_use]
pub fn connect_options(config: &RdmaConfig, opening: Opening) -> ConnectOptions {
    ConnectOptions {
        private_data: opening.encode(),
        ird: config.outstanding_reads,
        ord: config.outstanding_reads,
        crc: !config.no_crc,
        markers: config.markers,
        revision: config.revision,
        large_fpdus: config.large_fpdus,
        // The far end is our own, which takes what comes at once.
        settle: Some(Duration::ZERO),
        ..ConnectOptions::default()
    }
}

/// How connections of a test are accepted.
#[must_use]
pub fn accept_options(config: &RdmaConfig) -> AcceptOptions {
    AcceptOptions {
        private_data: welcome(),
        ird: config.outstanding_reads,
        ord: config.outstanding_reads,
        crc: !config.no_crc,
        markers: config.markers,
        large_fpdus: config.large_fpdus,
        ..AcceptOptions::default()
    }
}

/// An empty batch.
#[must_use]
pub fn batch() -> Batch {
    [Completion::EMPTY; BATCH]
}
