//! Endpoint of a connection whose bytes are carried by the test.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use clearstream_iwarp::memory::{Access, MemoryTable, Piece, Region};
use clearstream_iwarp::mpa::Negotiated;
use clearstream_iwarp::queue_pair::{Event, Limits, Machine, ReceiveQueue, Receives, Side};
use clearstream_iwarp::stag::{DomainId, QueuePairId, Stag};
use clearstream_iwarp::work::{
    Completed, Completion, Data, InlineData, Operation, ReceiveRequest, Remote, Segment, Segments,
    SendRequest,
};
use smallvec::SmallVec;

/// All access rights.
pub(crate) fn everything() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_WRITE
        | Access::REMOTE_ATOMIC
        | Access::BIND_WINDOW
}

/// Negotiated parameters.
pub(crate) fn negotiated(initiator: bool) -> Negotiated {
    Negotiated {
        crc: true,
        markers_out: false,
        markers_in: false,
        large_fpdus: false,
        immediate_data: false,
        revision: 1,
        ird: 4,
        ord: 4,
        rtr: None,
        initiator,
    }
}

/// A state machine with its memory.
pub(crate) struct End {
    pub table: Arc<MemoryTable>,
    pub domain: DomainId,
    pub region: Region,
    /// STag of the region, with every right.
    pub stag: Stag,
    pub machine: Machine,
    pub receives: Arc<Mutex<ReceiveQueue>>,
    pub sends: Vec<Completion>,
    pub received: Vec<Completion>,
    pub events: Vec<Event>,
    /// Memory that posted receives are extended by, by their id.
    pub later: HashMap<u64, VecDeque<Segment>>,
    /// The receive that is full.
    full: Option<u64>,
}

impl End {
    pub(crate) fn new(negotiated: &Negotiated, mulpdu: usize, bytes: usize) -> Self {
        Self::with(negotiated, mulpdu, bytes, Limits::default(), false)
    }

    pub(crate) fn with(
        negotiated: &Negotiated,
        mulpdu: usize,
        bytes: usize,
        limits: Limits,
        shared: bool,
    ) -> Self {
        let table = MemoryTable::new();
        let domain = table.allocate_domain();
        let region = Region::new(bytes).unwrap();
        let stag = table.register(domain, region.memory(), everything(), 0x5a).unwrap();
        let receives = Arc::new(Mutex::new(ReceiveQueue::new(1000, 16)));
        let of_machine =
            if shared { Receives::Shared(receives.clone()) } else { Receives::Own(receives.clone()) };
        let machine =
            Machine::new(QueuePairId(7), domain, table.clone(), negotiated, mulpdu, limits, of_machine);
        let (sends, received, events) = (Vec::new(), Vec::new(), Vec::new());
        let (later, full) = (HashMap::new(), None);
        Self { table, domain, region, stag, machine, receives, sends, received, events, later, full }
    }

    /// Returns the tagged offset of a byte of the region.
    pub(crate) fn address(&self, at: usize) -> u64 {
        self.region.address() + at as u64
    }

    pub(crate) fn segment(&self, at: usize, length: usize) -> Segment {
        Segment { stag: self.stag, address: self.address(at), length: u32::try_from(length).unwrap() }
    }

    pub(crate) fn remote(&self, at: usize) -> Remote {
        Remote { stag: self.stag, address: self.address(at) }
    }

    pub(crate) fn all(&self) -> Vec<u8> {
        self.region.to_vec(0, self.region.len())
    }

    pub(crate) fn post_receive(&mut self, id: u64, at: usize, length: usize) {
        let request = ReceiveRequest { id, segments: SmallVec::from_slice(&[self.segment(at, length)]) };
        let missed = {
            let mut receives = self.receives.lock().unwrap();
            receives.post(request).unwrap();
            receives.take_missed()
        };
        if missed {
            self.machine.resume();
        }
    }

    /// Collects completions and events of the state machine.
    pub(crate) fn collect(&mut self) {
        for (side, completion) in self.machine.completions() {
            match side {
                Side::Send => self.sends.push(completion),
                Side::Receive if completion.completed == Completed::ReceiveFull => {
                    self.full = Some(completion.id);
                }
                Side::Receive => self.received.push(completion),
            }
        }
        self.events.extend(self.machine.events());
    }

    /// Sends at most `most` bytes; returns their number.
    pub(crate) fn transmit(&mut self, stream: &mut VecDeque<u8>, most: usize) -> usize {
        let batch = self.machine.outgoing();
        let mut pieces = SmallVec::new();
        batch.pieces(&mut pieces);
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Bytes(part) => bytes.extend_from_slice(part),
                Piece::Memory(span) | Piece::Pages(span) => span.append_to(&mut bytes).unwrap(),
            }
        }
        assert_eq!(bytes.len(), batch.len());
        bytes.truncate(most);
        stream.extend(&bytes);
        self.machine.sent(bytes.len());
        self.collect();
        bytes.len()
    }

    /// Receives at most `most` bytes, as a socket would: directly into memory
    /// where the state machine allows it, the rest through staging bytes.
    pub(crate) fn arrive(&mut self, stream: &mut VecDeque<u8>, most: usize, straight: bool) -> usize {
        if self.machine.is_receiver_not_ready() {
            return 0;
        }
        if self.machine.is_waiting() {
            assert!(self.machine.straight().is_none());
            self.extend();
            return 1;
        }
        let places = if straight { self.machine.straight() } else { None };
        let room = places
            .as_ref()
            .map_or(usize::MAX, |(spans, extra)| spans.iter().map(|span| span.len()).sum::<usize>() + extra);
        let count = most.min(stream.len()).min(room);
        let bytes: Vec<u8> = stream.drain(..count).collect();
        let mut rest = &bytes[..];
        if let Some((spans, _)) = places {
            for span in spans {
                let (now, later) = rest.split_at(rest.len().min(span.len()));
                span.write(0, now).unwrap();
                rest = later;
            }
            self.machine.placed(count - rest.len());
        }
        if !rest.is_empty() {
            self.machine.consume(rest);
        }
        self.collect();
        count
    }

    /// Splits the memory of posted receives: they get their first bytes, and the rest when they are full.
    pub(crate) fn split_receives(&mut self, mut bytes: impl FnMut() -> u32) {
        let mut queue = self.receives.lock().unwrap();
        for _ in 0..queue.len() {
            let Some(ReceiveRequest { id, segments }) = queue.take().0 else { break };
            let mut pieces = VecDeque::new();
            for Segment { stag, mut address, mut length } in segments {
                while length > 0 {
                    let now = bytes().clamp(1, length);
                    pieces.push_back(Segment { stag, address, length: now });
                    (address, length) = (address + u64::from(now), length - now);
                }
            }
            let segments = if bytes().is_multiple_of(4) {
                Segments::new()
            } else {
                pieces.pop_front().into_iter().collect()
            };
            queue.post(ReceiveRequest { id, segments }).unwrap();
            self.later.insert(id, pieces);
        }
    }

    /// Extends the full receive by the next piece of its memory.
    fn extend(&mut self) {
        let id = self.full.take().unwrap();
        let piece = self.later.get_mut(&id).and_then(VecDeque::pop_front).unwrap();
        self.machine.extend_receive(&[piece]).unwrap();
        self.collect();
    }

    /// Returns everything that is sent now.
    pub(crate) fn output(&mut self) -> Vec<u8> {
        let mut stream = VecDeque::new();
        while self.transmit(&mut stream, usize::MAX) > 0 {}
        stream.into()
    }

    /// Consumes all of the bytes.
    pub(crate) fn input(&mut self, bytes: &[u8]) {
        self.machine.consume(bytes);
        self.collect();
    }
}

/// Creates a signaled request.
pub(crate) fn request(id: u64, operation: Operation) -> SendRequest {
    SendRequest { id, operation, signaled: true, fence: false }
}

pub(crate) fn inline(bytes: &[u8]) -> Data {
    Data::Inline(InlineData::from_slice(bytes))
}

/// Transfers everything between two endpoints until both are idle.
pub(crate) fn carry(one: &mut End, other: &mut End) {
    let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
    loop {
        let sent = one.transmit(&mut there, usize::MAX) + other.transmit(&mut back, usize::MAX);
        let came = other.arrive(&mut there, usize::MAX, true) + one.arrive(&mut back, usize::MAX, true);
        if sent + came == 0 && there.is_empty() && back.is_empty() {
            return;
        }
    }
}

/// Transfers everything, then the end of both streams, as sockets would.
pub(crate) fn carry_to_the_end(one: &mut End, other: &mut End) {
    for _ in 0..2 {
        carry(one, other);
        if one.machine.wants_close() {
            other.machine.end_of_stream();
        }
        if other.machine.wants_close() {
            one.machine.end_of_stream();
        }
        one.collect();
        other.collect();
    }
}
