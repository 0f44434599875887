//! A queue pair that receives hostile bytes: harness of the property test here
//! and of the fuzz target.
//!
//! The input selects the connection parameters, and then what the peer sends:
//! noise, or FPDUs with a correct CRC whose fields are mostly near boundary
//! values. In all cases nothing outside the memory that was registered for the
//! peer or lent to a request may change, nothing may panic, and the state of
//! the machine is bounded by what was posted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use clearstream_iwarp::memory::{Access, MemoryTable, Piece, Region};
use clearstream_iwarp::mpa::{Crc, Framer, Negotiated, Rtr};
use clearstream_iwarp::queue_pair::{Limits, Machine, ReceiveQueue, Receives, Side, State};
use clearstream_iwarp::stag::{QueuePairId, Stag};
use clearstream_iwarp::work::{Data, InlineData, Operation, ReceiveRequest, Remote, Segment, SendRequest};
use smallvec::SmallVec;

const REGION: usize = 8192;
/// Range that the peer may read and write.
const WINDOW: std::ops::Range<usize> = 1024..2048;
/// Range of the receives.
const RECEIVES: std::ops::Range<usize> = 3072..4096;
/// Range of the sinks of Reads and atomics.
const SINKS: std::ops::Range<usize> = 5120..6144;
const FILL: u8 = 0xc5;

/// Takes numbers from the front of the input; zeros at its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(self.0.len().min(most));
        self.0 = later;
        now
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Returns a number near a boundary value, or any.
    fn near(&mut self, interesting: &[u64]) -> u64 {
        let choice = usize::from(self.byte());
        match interesting.get(choice % (interesting.len() + 1)) {
            Some(value) => value.wrapping_add(u64::from(self.byte() & 0x0f)).wrapping_sub(4),
            None => u64::from(self.u32()) << 32 | u64::from(self.u32()),
        }
    }

    /// Returns one of the interesting values, or any.
    fn exact(&mut self, interesting: &[u32]) -> u32 {
        let choice = usize::from(self.byte());
        match interesting.get(choice % (interesting.len() + 1)) {
            Some(value) => *value,
            None => self.u32(),
        }
    }
}

/// State machine under test, with its memory.
struct Target {
    machine: Machine,
    region: Region,
    window: Stag,
    all: Stag,
    negotiated: Negotiated,
}

fn target(input: &mut Input<'_>) -> Target {
    let flags = input.byte();
    let rtr = [None, Some(Rtr::Send), Some(Rtr::Write), Some(Rtr::Read)][usize::from(input.byte() % 4)];
    let negotiated = Negotiated {
        crc: flags & 1 != 0,
        markers_out: flags & 2 != 0,
        markers_in: flags & 4 != 0,
        large_fpdus: false,
        immediate_data: flags & 16 != 0,
        revision: 2,
        ird: 3,
        ord: 3,
        rtr,
        initiator: flags & 8 != 0,
    };
    let table = MemoryTable::new();
    let domain = table.allocate_domain();
    let region = Region::new(REGION).unwrap();
    region.write(0, &[FILL; REGION]);
    let local = Access::LOCAL_WRITE | Access::BIND_WINDOW;
    let all = table.register(domain, region.memory(), local, 1).unwrap();
    let of = |range: &std::ops::Range<usize>| Segment {
        stag: all,
        address: region.address() + range.start as u64,
        length: range.len() as u32,
    };
    let window = table.allocate_window(domain).unwrap();
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let window = table.bind_window(QueuePairId(7), domain, window, of(&WINDOW), access).unwrap();
    let receives = Arc::new(Mutex::new(ReceiveQueue::new(8, 4)));
    for (id, at) in (0..8).zip(RECEIVES.step_by(128)) {
        let first = Segment { length: 50, ..of(&(at..at + 50)) };
        let segments = SmallVec::from_slice(&[first, of(&(at + 60..at + 100))]);
        receives.lock().unwrap().post(ReceiveRequest { id, segments }).unwrap();
    }
    let mut machine = Machine::new(
        QueuePairId(7),
        domain,
        table,
        &negotiated,
        256,
        Limits::default(),
        Receives::Own(receives),
    );
    let remote = Remote { stag: Stag(5), address: 8 };
    let read = |range| Operation::Read { sink: of(&range), remote, invalidate: false };
    let operations = [
        read(SINKS.start..SINKS.start + 600),
        Operation::FetchAdd { sink: of(&(SINKS.start + 600..SINKS.start + 608)), remote, add: 1, mask: 0 },
        read(SINKS.start + 608..SINKS.end),
        if negotiated.immediate_data {
            Operation::SendImmediate {
                data: Data::Inline(InlineData::new()),
                immediate: [1; 4],
                solicited: true,
            }
        } else {
            Operation::Immediate { data: [1; 8], solicited: true }
        },
    ];
    for (id, operation) in (0..).zip(operations) {
        machine.post_send(SendRequest { id, operation, signaled: true, fence: false }).unwrap();
    }
    Target { machine, region, window, all, negotiated }
}

/// Builds a ULPDU whose fields are mostly valid.
fn ulpdu(input: &mut Input<'_>, target: &Target) -> Vec<u8> {
    let base = target.region.address();
    let edges = [WINDOW.start, WINDOW.end, SINKS.start, SINKS.end, RECEIVES.start].map(|at| base + at as u64);
    let tags = [target.window.0, target.window.0, target.all.0, 0];
    let opcode = input.byte() % 17;
    let control = input.byte();
    let last = if control & 1 == 0 { 0x40 } else { 0 };
    let version = if control & 0xf0 == 0xf0 { control & 3 } else { 1 };
    let rdmap = if control & 0xf0 == 0xe0 { opcode } else { 0x40 | opcode & 0x0f };
    let mut bytes = Vec::new();
    if matches!(opcode, 0 | 2) != (control & 0x0e == 0x0e) {
        bytes.extend_from_slice(&[0x80 | last | version, rdmap]);
        bytes.extend_from_slice(&input.exact(&tags).to_be_bytes());
        bytes.extend_from_slice(&input.near(&edges).to_be_bytes());
    } else {
        let queue = match opcode {
            1 | 10 => 1,
            7 => 2,
            11 => 3,
            _ => 0,
        };
        bytes.extend_from_slice(&[last | version, rdmap]);
        bytes.extend_from_slice(&input.exact(&tags).to_be_bytes());
        bytes.extend_from_slice(&input.exact(&[queue, queue, queue]).to_be_bytes());
        bytes.extend_from_slice(&input.exact(&[1, 1, 2, 3, 4]).to_be_bytes());
        bytes.extend_from_slice(&input.exact(&[0, 0, 0, 50, 90, 100]).to_be_bytes());
    }
    match opcode {
        1 => {
            bytes.extend_from_slice(&input.u32().to_be_bytes());
            bytes.extend_from_slice(&input.near(&edges).to_be_bytes());
            bytes.extend_from_slice(&input.exact(&[0, 8, 1024, 1025, u32::MAX]).to_be_bytes());
            bytes.extend_from_slice(&input.exact(&tags).to_be_bytes());
            bytes.extend_from_slice(&input.near(&edges).to_be_bytes());
        }
        10 => {
            bytes.extend_from_slice(&input.exact(&[0, 2, 2]).to_be_bytes());
            bytes.extend_from_slice(&input.u32().to_be_bytes());
            bytes.extend_from_slice(&input.exact(&tags).to_be_bytes());
            bytes.extend_from_slice(&input.near(&edges).to_be_bytes());
            bytes.extend_from_slice(input.bytes(32));
            bytes.resize(bytes.len().max(18 + 52), 0);
        }
        _ => {
            let length = usize::from(input.byte()) * if control & 0x10 == 0 { 1 } else { 40 };
            let filled = bytes.len() + length;
            bytes.extend_from_slice(input.bytes(length));
            bytes.resize(filled, 0xee);
        }
    }
    bytes
}

/// Feeds the bytes as a socket would, partly directly into memory.
fn feed(target: &mut Target, input: &mut Input<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let most = match input.byte() {
            0..64 => 1,
            64..128 => 40,
            _ => usize::MAX,
        };
        let places = if most > 1 { target.machine.straight() } else { None };
        let room = places.as_ref().map_or(usize::MAX, |(spans, extra)| {
            spans.iter().map(|span| span.len()).sum::<usize>().saturating_add(*extra)
        });
        let (now, later) = bytes.split_at(bytes.len().min(most).min(room));
        let mut rest = now;
        if let Some((spans, _)) = places {
            for span in spans {
                let (first, behind) = rest.split_at(rest.len().min(span.len()));
                span.write(0, first).unwrap();
                rest = behind;
            }
            target.machine.placed(now.len() - rest.len());
        }
        target.machine.consume(rest);
        bytes = later;
    }
}

/// Sends at most `most` bytes.
fn transmit(target: &mut Target, most: usize) -> usize {
    let batch = target.machine.outgoing();
    let mut pieces = SmallVec::new();
    batch.pieces(&mut pieces);
    let length: usize = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Memory(span) | Piece::Pages(span) => span.len(),
        })
        .sum();
    assert_eq!(length, batch.len());
    drop(pieces);
    let sent = length.min(most);
    target.machine.sent(sent);
    sent
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.finish()
}

/// Runs one input; panics when an invariant is violated.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut target = target(&mut input);
    let peer = Negotiated { markers_out: target.negotiated.markers_in, ..target.negotiated };
    let mut framer = Framer::new(&peer);
    let (mut back, mut events, mut sent) = (BTreeSet::new(), 0, 0);
    while !input.0.is_empty() {
        let choice = input.byte();
        match choice {
            0..8 => {
                let length = usize::from(input.byte());
                let noise = input.bytes(length);
                feed(&mut target, &mut input, noise);
            }
            8..24 => sent += transmit(&mut target, usize::from(choice) * 7),
            24 => target.machine.end_of_stream(),
            25 => target.machine.close(),
            26..32 => {
                // An FPDU with a wrong length, CRC or end.
                let mut bytes = ulpdu(&mut input, &target);
                let length = (bytes.len() as u16).wrapping_add(u16::from(input.byte() % 3));
                bytes.splice(0..0, length.to_be_bytes());
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                bytes.extend_from_slice(&crc_of(&bytes).to_le_bytes());
                feed(&mut target, &mut input, &bytes);
            }
            _ => {
                let ulpdu = ulpdu(&mut input, &target);
                let mut bytes = Vec::new();
                framer.begin(ulpdu.len() as u16, &mut bytes);
                framer.bytes(&ulpdu, &mut bytes);
                framer.finish(&mut bytes);
                feed(&mut target, &mut input, &bytes);
            }
        }
        collect(&mut target, &mut back, &mut events);
    }
    while sent < 1 << 20 {
        match transmit(&mut target, usize::MAX) {
            0 => break,
            bytes => sent += bytes,
        }
    }
    // Three Reads of the window at once, each at most as long as it is, for
    // every 46 bytes of input; and a Terminate.
    assert!(sent <= 4096 + data.len() * 1100, "{sent} bytes out for {} in", data.len());
    collect(&mut target, &mut back, &mut events);
    assert!(events <= 8, "{events} events");
    check_memory(&target.region);
    // After the end every request was completed; a Terminate was sent, or can
    // be.
    let state = target.machine.state();
    if matches!(state, State::Error | State::Idle) {
        assert_eq!(back.len(), 8 + 4, "{state:?}: not all requests were completed");
    }
    assert!(state != State::Terminate || sent >= 1 << 20, "a Terminate stays");
}

/// Collects completions and events of the state machine: each request completes
/// once.
fn collect(target: &mut Target, back: &mut BTreeSet<(bool, u64)>, events: &mut usize) {
    for (side, completion) in target.machine.completions() {
        assert!(back.insert((side == Side::Send, completion.id)), "completed twice: {completion:?}");
    }
    *events += target.machine.events().count();
}

fn check_memory(region: &Region) {
    let mut memory = region.to_vec(0, REGION);
    memory[WINDOW].fill(FILL);
    memory[SINKS].fill(FILL);
    for at in RECEIVES.step_by(128) {
        memory[at..at + 50].fill(FILL);
        memory[at + 60..at + 100].fill(FILL);
    }
    assert!(memory == [FILL; REGION], "a byte outside of what was lent changed");
}
