//! Replays one half of each captured connection: a state machine receives what
//! one siw peer sent, its consumer posts what the other siw's consumer posted,
//! and its stream must equal that siw's, byte for byte.
//!
//! Three things of a stream are specific to each host and are substituted:
//! STags and addresses of its memory, and siw's pads, which the standard
//! requires to be zero.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::memory::{Access, MemoryTable, Piece, Region};
use clearstream_iwarp::mpa::{Framer, fpdu_length, mulpdu};
use clearstream_iwarp::queue_pair::{Event, Limits, Machine, ReceiveQueue, Receives, Side, State};
use clearstream_iwarp::rdmap::{Opcode, ReadRequest};
use clearstream_iwarp::stag::{DomainId, QueuePairId, Stag};
use clearstream_iwarp::work::{Data, Operation, ReceiveRequest, Remote, Segment, SendRequest, Status};
use clearstream_testkit::pcap::Stream;
use smallvec::{SmallVec, smallvec};

use crate::wire::captures::{agreement, conversations, setup_frames, ulpdus};
use crate::wire::conversation::fpdu;

/// MSS of the captured hosts: Ethernet with TCP timestamps.
const MSS: usize = 1448;
/// Receives are posted before the peer's first Send.
const RECEIVE_BYTES: u32 = 4096;

/// A captured segment, with its stream position.
struct Captured {
    header: Header,
    opcode: Opcode,
    body: Vec<u8>,
    at: Range<usize>,
}

fn captured(stream: &Stream, side: usize) -> Vec<Captured> {
    let mut at = setup_frames(stream).1[side];
    let each = |(ulpdu, _): (Vec<u8>, _)| {
        let (header, length) = Header::decode(&ulpdu).unwrap().unwrap();
        let from = at;
        at += fpdu_length(ulpdu.len());
        Captured {
            header,
            opcode: Opcode::of(&header).unwrap(),
            body: ulpdu[length..].to_vec(),
            at: from..at,
        }
    };
    ulpdus(stream, side).into_iter().map(each).collect()
}

/// Memory of the replayed host, in place of a buffer of the captured one.
struct Buffer {
    region: Region,
    stag: Stag,
    /// Captured tagged offset of its first byte.
    began: u64,
}

/// Every buffer of the captured host that a segment of either side refers to.
struct Buffers(BTreeMap<Stag, Buffer>);

impl Buffers {
    fn new(memory: &MemoryTable, domain: DomainId, own: &[Captured], peers: &[Captured]) -> Self {
        let mut ranges: BTreeMap<Stag, Range<u64>> = BTreeMap::new();
        let mut named = |stag, offset: u64, length: usize| {
            let range = ranges.entry(stag).or_insert(offset..offset);
            range.start = range.start.min(offset);
            range.end = range.end.max(offset + length as u64);
        };
        for segment in peers {
            match segment.header {
                Header::Tagged { stag, offset, .. } => named(stag, offset, segment.body.len()),
                Header::Untagged { .. } if segment.opcode == Opcode::ReadRequest => {
                    let request = ReadRequest::decode(&segment.body).unwrap();
                    named(request.source, request.source_offset, request.length as usize);
                }
                Header::Untagged { .. } => {}
            }
        }
        for segment in own.iter().filter(|segment| segment.opcode == Opcode::ReadRequest) {
            let request = ReadRequest::decode(&segment.body).unwrap();
            named(request.sink, request.sink_offset, request.length as usize);
        }
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let register = |(name, range): (Stag, Range<u64>)| {
            let region = Region::new((range.end - range.start) as usize).unwrap();
            let stag = memory.register(domain, region.memory(), all, name.key()).unwrap();
            (name, Buffer { region, stag, began: range.start })
        };
        Self(ranges.into_iter().map(register).collect())
    }

    /// Maps a captured tag and offset to ours.
    fn ours(&self, stag: Stag, offset: u64) -> (Stag, u64) {
        let buffer = &self.0[&stag];
        (buffer.stag, buffer.region.address() + (offset - buffer.began))
    }

    /// Maps our tag and offset back.
    fn theirs(&self, stag: Stag, offset: u64) -> (Stag, u64) {
        let (name, buffer) = self.0.iter().find(|(_, buffer)| buffer.stag == stag).unwrap();
        (*name, offset - buffer.region.address() + buffer.began)
    }

    fn at(&self, stag: Stag, offset: u64) -> (&Region, usize) {
        let buffer = &self.0[&stag];
        (&buffer.region, (offset - buffer.began) as usize)
    }
}

/// The host that replaces one captured host.
struct Host {
    machine: Machine,
    buffers: Buffers,
    memory: Arc<MemoryTable>,
    domain: DomainId,
    inbox: Region,
    inbox_stag: Stag,
    /// Framer of the peer's stream, after substitution.
    peer: Framer,
    /// Bytes sent by the state machine.
    sent: Vec<u8>,
    /// Sends of the peer's that completed, in order.
    received: Vec<Vec<u8>>,
    posted: u64,
    completed: u64,
}

impl Host {
    fn new(stream: &Stream, side: usize, own: &[Captured], peers: &[Captured]) -> Self {
        let memory = MemoryTable::new();
        let domain = memory.allocate_domain();
        let buffers = Buffers::new(&memory, domain, own, peers);
        let agreements = agreement(stream);
        let sends = peers.iter().filter(|segment| segment.opcode == Opcode::Send).count();
        let inbox = Region::new(sends.max(1) * RECEIVE_BYTES as usize).unwrap();
        let inbox_stag = memory.register(domain, inbox.memory(), Access::LOCAL_WRITE, 0).unwrap();
        let mut receives = ReceiveQueue::new(sends, 1);
        for id in 0..sends as u64 {
            let address = inbox.address() + id * u64::from(RECEIVE_BYTES);
            let segment = Segment { stag: inbox_stag, address, length: RECEIVE_BYTES };
            receives.post(ReceiveRequest { id, segments: smallvec![segment] }).unwrap();
        }
        let machine = Machine::new(
            QueuePairId(1),
            domain,
            memory.clone(),
            &agreements[side],
            mulpdu(MSS, false),
            Limits::default(),
            Receives::Own(Arc::new(Mutex::new(receives))),
        );
        Self {
            machine,
            buffers,
            memory,
            domain,
            inbox,
            inbox_stag,
            peer: Framer::new(&agreements[1 - side]),
            sent: vec![],
            received: vec![],
            posted: 0,
            completed: 0,
        }
    }

    /// Posts what the captured host's consumer posted: all but the responses,
    /// which a queue pair generates itself.
    fn post(&mut self, message: &[&Captured]) {
        let data: Vec<u8> = message.iter().flat_map(|segment| segment.body.iter().copied()).collect();
        let operation = match (message[0].opcode, message[0].header) {
            (Opcode::ReadResponse, _) => return,
            (Opcode::Send, _) => {
                Operation::Send { data: self.gather(&data), solicited: false, invalidate: None }
            }
            (Opcode::Write, Header::Tagged { stag, offset, .. }) => {
                Operation::Write { data: self.gather(&data), remote: Remote { stag, address: offset } }
            }
            (Opcode::ReadRequest, _) => {
                let request = ReadRequest::decode(&data).unwrap();
                let (stag, address) = self.buffers.ours(request.sink, request.sink_offset);
                Operation::Read {
                    sink: Segment { stag, address, length: request.length },
                    remote: Remote { stag: request.source, address: request.source_offset },
                    invalidate: false,
                }
            }
            other => panic!("not in these captures: {other:?}"),
        };
        self.posted += 1;
        let request = SendRequest { id: self.posted, operation, signaled: true, fence: false };
        self.machine.post_send(request).unwrap();
    }

    /// Registers memory with these bytes.
    fn gather(&self, data: &[u8]) -> Data {
        let region = Region::new(data.len().max(1)).unwrap();
        region.write(0, data);
        let stag = self.memory.register(self.domain, region.memory(), Access::NONE, 0).unwrap();
        let length = u32::try_from(data.len()).unwrap();
        Data::Gather(smallvec![Segment { stag, address: region.address(), length }])
    }

    /// Feeds a segment of the peer, with our memory substituted.
    fn feed(&mut self, segment: &Captured) {
        let (mut header, mut body) = (segment.header, segment.body.clone());
        if let Header::Tagged { stag, offset, .. } = &mut header {
            (*stag, *offset) = self.buffers.ours(*stag, *offset);
        } else if segment.opcode == Opcode::ReadRequest {
            let mut request = ReadRequest::decode(&body).unwrap();
            (request.source, request.source_offset) =
                self.buffers.ours(request.source, request.source_offset);
            body = request.encode().to_vec();
        }
        let bytes = fpdu(&mut self.peer, header, &body);
        // In two pieces, as TCP may split it.
        let (first, second) = bytes.split_at(bytes.len() / 3);
        self.machine.consume(first);
        self.machine.consume(second);
    }

    /// Sends pending bytes, and collects completions.
    fn pump(&mut self) {
        loop {
            let mut pieces: SmallVec<[Piece<'_>; 64]> = SmallVec::new();
            self.machine.outgoing().pieces(&mut pieces);
            let before = self.sent.len();
            for piece in &pieces {
                match piece {
                    Piece::Bytes(bytes) => self.sent.extend_from_slice(bytes),
                    Piece::Memory(span) | Piece::Pages(span) => span.append_to(&mut self.sent).unwrap(),
                }
            }
            drop(pieces);
            if self.sent.len() == before {
                break;
            }
            self.machine.sent(self.sent.len() - before);
        }
        for (side, completion) in self.machine.completions() {
            assert_eq!(completion.status, Status::Success, "{completion:?}");
            if side == Side::Receive {
                let at = completion.id as usize * RECEIVE_BYTES as usize;
                self.received.push(self.inbox.to_vec(at, completion.bytes as usize));
            } else {
                self.completed += 1;
            }
        }
    }
}

/// Groups segments into messages.
fn messages(segments: &[Captured]) -> Vec<Vec<&Captured>> {
    segments
        .split_inclusive(|segment| segment.header.last())
        .map(|message| message.iter().collect())
        .collect()
}

/// Returns the captured stream of FPDUs with zero pads.
fn expected(stream: &Stream, side: usize, own: &[Captured]) -> Vec<u8> {
    let mut framer = Framer::new(&agreement(stream)[side]);
    own.iter().flat_map(|segment| fpdu(&mut framer, segment.header, &segment.body)).collect()
}

/// Returns the sent stream, with the captured tags and offsets substituted.
fn renamed(stream: &Stream, side: usize, host: &Host) -> Vec<u8> {
    let mut deframer = clearstream_iwarp::mpa::Deframer::new(&agreement(stream)[1 - side]);
    let mut framer = Framer::new(&agreement(stream)[side]);
    let mut rest = host.sent.as_slice();
    let mut bytes = vec![];
    while let Some(ulpdu) = deframer.whole(&mut rest).unwrap() {
        let (header, length) = Header::decode(ulpdu).unwrap().unwrap();
        let mut body = ulpdu[length..].to_vec();
        if Opcode::of(&header) == Ok(Opcode::ReadRequest) {
            let mut request = ReadRequest::decode(&body).unwrap();
            (request.sink, request.sink_offset) = host.buffers.theirs(request.sink, request.sink_offset);
            body = request.encode().to_vec();
        }
        bytes.extend(fpdu(&mut framer, header, &body));
    }
    assert!(rest.is_empty());
    bytes
}

fn replay(stream: &Stream, side: usize) -> usize {
    let (own, peers) = (captured(stream, side), captured(stream, 1 - side));
    let mut host = Host::new(stream, side, &own, &peers);
    let own_messages = messages(&own);
    let (mut next, mut fed) = (0, 0);
    let mut responses = own_messages.iter().filter(|message| message[0].opcode == Opcode::ReadResponse);
    for &(who, up_to) in &stream.turns {
        if who == side {
            while next < own_messages.len() && own_messages[next][0].at.start < up_to {
                host.post(&own_messages[next]);
                host.pump();
                next += 1;
            }
            continue;
        }
        while fed < peers.len() && peers[fed].at.end <= up_to {
            if peers[fed].opcode == Opcode::ReadRequest {
                // What the captured host had there when it responded.
                let request = ReadRequest::decode(&peers[fed].body).unwrap();
                let (region, mut at) = host.buffers.at(request.source, request.source_offset);
                for segment in responses.next().unwrap() {
                    region.write(at, &segment.body);
                    at += segment.body.len();
                }
            }
            host.feed(&peers[fed]);
            host.pump();
            fed += 1;
        }
    }
    assert_eq!((next, fed), (own_messages.len(), peers.len()));
    let (ours, theirs) = (renamed(stream, side, &host), expected(stream, side, &own));
    let differs = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    assert!(ours == theirs, "{:?} of {}: differs at {differs:?} of {}", stream.client, side, theirs.len());
    arrived(&host, &peers);
    host.machine.end_of_stream();
    host.pump();
    assert_eq!(host.machine.state(), State::Idle);
    assert!(host.machine.events().all(|event| matches!(event, Event::Established | Event::PeerClosed)));
    assert_eq!(host.completed, host.posted);
    own.len()
}

/// Checks that what the peer sent, wrote and read was transferred correctly.
fn arrived(host: &Host, peers: &[Captured]) {
    let sends: Vec<Vec<u8>> = messages(peers)
        .into_iter()
        .filter(|message| message[0].opcode == Opcode::Send)
        .map(|message| message.iter().flat_map(|segment| segment.body.iter().copied()).collect())
        .collect();
    assert_eq!(host.received, sends);
    // Later segments may overwrite earlier ones: the last of each location
    // counts.
    let mut places = BTreeMap::new();
    for segment in peers {
        if let Header::Tagged { stag, offset, .. } = segment.header {
            places.insert((stag, offset), &segment.body);
        }
    }
    for ((stag, offset), body) in places {
        let (region, at) = host.buffers.at(stag, offset);
        assert!(&region.to_vec(at, body.len()) == body);
    }
    assert!(host.memory.registration(host.inbox_stag).is_some());
}

#[test]
fn a_replayed_half_gets_the_responses_of_siw() {
    for name in ["siw.pcap", "siw-crc.pcap"] {
        for stream in conversations(name) {
            let segments = replay(&stream, 0) + replay(&stream, 1);
            assert!(segments > 4, "{name}");
        }
    }
}
