//! Reference model: programs of requests for one direction, and their expected
//! effects on both memories and queues, independent of the protocol.

use clearstream_iwarp::memory::Access;
use clearstream_iwarp::stag::{QueuePairId, Stag};
use clearstream_iwarp::work::{
    Completed, Completion, Data, InlineData, Operation, ReceiveRequest, Segment, Segments, SendRequest,
    Status,
};
use proptest::prelude::*;
use smallvec::SmallVec;

use crate::queue_pair::end::{End, everything};

/// Range that is never written, read by both sides' sends and the peer's Reads.
pub(crate) const SOURCE: usize = 64 << 10;
/// Range that the peer's Writes change.
const LANDING: usize = SOURCE;
/// Targets of the peer's atomics.
const ATOMICS: usize = 2 * SOURCE;
const ATOMIC_COUNT: usize = 8;
/// Receives and sinks of Reads, in sequence with gaps.
const PLACES: usize = ATOMICS + ATOMIC_COUNT * 8 + 64;
/// Size of a side's region.
pub(crate) const REGION: usize = 3 << 20;

/// Request described by small numbers that proptest can shrink.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Send {
        from: usize,
        length: usize,
        pieces: usize,
        inline: bool,
        solicited: bool,
        invalidate: bool,
        slack: usize,
        immediate: Option<[u8; 4]>,
    },
    Write {
        from: usize,
        to: usize,
        length: usize,
        pieces: usize,
        inline: bool,
        immediate: Option<([u8; 4], bool)>,
    },
    Read {
        landing: bool,
        from: usize,
        length: usize,
        invalidate: bool,
    },
    Immediate {
        data: [u8; 8],
        solicited: bool,
    },
    FetchAdd {
        target: usize,
        add: u64,
        mask: u64,
    },
    CompareSwap {
        target: usize,
        hit: bool,
        compare: u64,
        compare_mask: u64,
        swap: u64,
        swap_mask: u64,
    },
    LocalInvalidate,
    BindWindow {
        from: usize,
        length: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub op: Op,
    pub signaled: bool,
    pub fence: bool,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0_usize), 1_usize..80, 1_usize..3000, 1_usize..40_000]
}

fn op() -> impl Strategy<Value = Op> {
    let place = 0..SOURCE;
    prop_oneof![
        4 => (place.clone(), length(), 1_usize..5, any::<[bool; 3]>(), 0_usize..200, any::<Option<[u8; 4]>>())
            .prop_map(|(from, length, pieces, [inline, solicited, invalidate], slack, immediate)| {
                Op::Send { from, length, pieces, inline, solicited, invalidate, slack, immediate }
            }),
        4 => (place.clone(), place.clone(), length(), 1_usize..5, any::<bool>(), any::<Option<([u8; 4], bool)>>())
            .prop_map(|(from, to, length, pieces, inline, immediate)| {
                Op::Write { from, to, length, pieces, inline, immediate }
            }),
        4 => (any::<bool>(), place.clone(), length(), any::<bool>()).prop_map(
            |(landing, from, length, invalidate)| Op::Read { landing, from, length, invalidate }),
        2 => (any::<[u8; 8]>(), any::<bool>()).prop_map(|(data, solicited)| Op::Immediate { data, solicited }),
        2 => (0..ATOMIC_COUNT, any::<u64>(), prop_oneof![Just(0), any::<u64>()]).prop_map(
            |(target, add, mask)| Op::FetchAdd { target, add, mask }),
        2 => (0..ATOMIC_COUNT, any::<bool>(), any::<[u64; 4]>()).prop_map(
            |(target, hit, [compare, compare_mask, swap, swap_mask])| {
                Op::CompareSwap { target, hit, compare, compare_mask, swap, swap_mask }
            }),
        1 => Just(Op::LocalInvalidate),
        1 => (place, 1_usize..5000).prop_map(|(from, length)| Op::BindWindow { from, length }),
    ]
}

pub(crate) fn program() -> impl Strategy<Value = Vec<Step>> {
    let step = (op(), any::<bool>(), prop::bool::weighted(0.2));
    prop::collection::vec(step.prop_map(|(op, signaled, fence)| Step { op, signaled, fence }), 0..24)
}

/// Whether a step sends a message.
pub(crate) fn is_message(step: &Step) -> bool {
    !matches!(step.op, Op::LocalInvalidate | Op::BindWindow { .. })
}

/// Expected state of a side at the end.
pub(crate) struct Expected {
    pub memory: Vec<u8>,
    pub sends: Vec<Completion>,
    pub received: Vec<Completion>,
    pub invalid: Vec<Stag>,
    pub valid: Vec<Stag>,
    /// Start of the next receive or sink.
    free: usize,
}

impl Expected {
    /// Creates a side in its initial state; its source is random.
    pub(crate) fn of(end: &End, seed: u64) -> Self {
        let mut state = seed | 1;
        let source: Vec<u8> = (0..SOURCE / 8).flat_map(|_| random(&mut state).to_le_bytes()).collect();
        end.region.write(0, &source);
        let (sends, received, invalid, valid) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { memory: end.all(), sends, received, invalid, valid, free: PLACES }
    }

    /// Allocates a range with unused bytes before it.
    fn place(&mut self, length: usize) -> usize {
        let at = (self.free + 8).next_multiple_of(8);
        self.free = at + length;
        assert!(self.free <= REGION, "the program is too large for the region");
        at
    }

    fn value_at(&self, target: usize) -> u64 {
        let at = ATOMICS + 8 * target;
        u64::from_ne_bytes(self.memory[at..at + 8].try_into().unwrap())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// xorshift64.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Plans the requests of one side: posts the peer's receives, and updates the
/// expected state of both sides.
pub(crate) struct Planner<'a> {
    pub end: &'a End,
    pub peer: &'a End,
    pub mine: &'a mut Expected,
    pub theirs: &'a mut Expected,
    /// A Read of a range that Writes change is outstanding: these Writes must
    /// be fenced, because the result of the Read would be undefined.
    pub reads_landing: bool,
    /// Both sides take immediate data with Sends and Writes; there is none of its own then.
    pub immediate_data: bool,
}

impl Planner<'_> {
    pub(crate) fn plan(&mut self, steps: &[Step]) -> Vec<SendRequest> {
        (0..).zip(steps).map(|(id, step)| self.request(id, step)).collect()
    }

    fn request(&mut self, id: u64, step: &Step) -> SendRequest {
        let mut fence = step.fence;
        if matches!(step.op, Op::Write { .. }) && self.reads_landing {
            fence = true;
        }
        if fence {
            self.reads_landing = false;
        }
        let (operation, completed, bytes) = self.operation(id, &step.op);
        if step.signaled {
            self.mine.sends.push(completion(id, completed, bytes));
        }
        SendRequest { id, operation, signaled: step.signaled, fence }
    }

    fn operation(&mut self, id: u64, op: &Op) -> (Operation, Completed, usize) {
        match *op {
            Op::Send { from, length, pieces, inline, solicited, invalidate, slack, immediate } => {
                let (data, bytes) = self.data(from, length, pieces, inline);
                if let Some(immediate) = immediate.filter(|_| self.immediate_data) {
                    self.receive(&bytes, slack, solicited, None);
                    self.announce([[0, 0, 0, 2], immediate]);
                    let operation = Operation::SendImmediate { data, immediate, solicited };
                    return (operation, Completed::Send, bytes.len());
                }
                let invalidate = invalidate.then(|| self.tag_of_theirs());
                self.receive(&bytes, slack, solicited, invalidate);
                (Operation::Send { data, solicited, invalidate }, Completed::Send, bytes.len())
            }
            Op::Write { from, to, length, pieces, inline, immediate } => {
                let (data, bytes) = self.data(from, length.min(SOURCE - to), pieces, inline);
                self.theirs.write(LANDING + to, &bytes);
                let remote = self.peer.remote(LANDING + to);
                if let Some((immediate, solicited)) = immediate.filter(|_| self.immediate_data) {
                    self.receive(&[], 0, solicited, None);
                    self.announce([[0, 0, 0, 1], immediate]);
                    let last = self.theirs.received.last_mut().unwrap();
                    (last.completed, last.bytes) =
                        (Completed::ReceiveWritten, u32::try_from(bytes.len()).unwrap());
                    let operation = Operation::WriteImmediate { data, remote, immediate, solicited };
                    return (operation, Completed::Write, bytes.len());
                }
                (Operation::Write { data, remote }, Completed::Write, bytes.len())
            }
            Op::Read { landing, from, length, invalidate } => {
                self.reads_landing |= landing;
                let length = length.min(SOURCE - from);
                let from = if landing { LANDING + from } else { from };
                let at = self.mine.place(length);
                let bytes = self.theirs.memory[from..from + length].to_vec();
                self.mine.write(at, &bytes);
                let mut sink = self.end.segment(at, length);
                if invalidate {
                    sink.stag = self.tag_of_mine(Access::LOCAL_WRITE);
                    self.mine.invalid.push(sink.stag);
                }
                let remote = self.peer.remote(from);
                (Operation::Read { sink, remote, invalidate }, Completed::Read, length)
            }
            Op::Immediate { data: [.., a, b, c, d], solicited } if self.immediate_data => {
                let immediate = Some(([a, b, c, d], solicited));
                self.operation(
                    id,
                    &Op::Write { from: 0, to: 0, length: 0, pieces: 1, inline: true, immediate },
                )
            }
            Op::Immediate { data, solicited } => {
                let number = self.theirs.received.len() as u64;
                self.post(number, Segments::new());
                self.theirs.received.push(Completion {
                    immediate: Some(data),
                    solicited,
                    ..completion(number, Completed::ReceiveImmediate, 8)
                });
                (Operation::Immediate { data, solicited }, Completed::Immediate, 8)
            }
            Op::FetchAdd { target, add, mask } => {
                let sum = add_fields(self.theirs.value_at(target), add, mask);
                let sink = self.atomic(target, sum);
                let remote = self.peer.remote(ATOMICS + 8 * target);
                (Operation::FetchAdd { sink, remote, add, mask }, Completed::FetchAdd, 8)
            }
            Op::CompareSwap { target, hit, compare, compare_mask, swap, swap_mask } => {
                let old = self.theirs.value_at(target);
                let compare = if hit { old ^ (compare & !compare_mask) } else { compare };
                let equal =
                    (0..64).all(|bit| compare_mask >> bit & 1 == 0 || (old ^ compare) >> bit & 1 == 0);
                let new = if equal { (old & !swap_mask) | (swap & swap_mask) } else { old };
                let sink = self.atomic(target, new);
                let remote = self.peer.remote(ATOMICS + 8 * target);
                let operation =
                    Operation::CompareSwap { sink, remote, compare, compare_mask, swap, swap_mask };
                (operation, Completed::CompareSwap, 8)
            }
            Op::LocalInvalidate => {
                let stag = self.tag_of_mine(everything());
                self.mine.invalid.push(stag);
                let _ = id;
                (Operation::LocalInvalidate { stag }, Completed::LocalInvalidate, 0)
            }
            Op::BindWindow { from, length } => {
                let window = self.end.table.allocate_window(self.end.domain).unwrap();
                self.mine.valid.push(window.next_key());
                let memory = self.end.segment(from, length);
                let access = Access::REMOTE_READ;
                (Operation::BindWindow { window, memory, access }, Completed::BindWindow, 0)
            }
        }
    }

    /// Bytes of the source: inline, or gathered in pieces.
    fn data(&self, from: usize, length: usize, pieces: usize, inline: bool) -> (Data, Vec<u8>) {
        let length = length.min(SOURCE - from);
        let bytes = self.mine.memory[from..from + length].to_vec();
        if inline && length <= 512 {
            return (Data::Inline(InlineData::from_slice(&bytes)), bytes);
        }
        (Data::Gather(cut(self.end.segment(from, length), pieces, 0)), bytes)
    }

    /// The peer's receive for a Send.
    fn receive(&mut self, bytes: &[u8], slack: usize, solicited: bool, invalidated: Option<Stag>) {
        let at = self.theirs.place(bytes.len() + slack + 64);
        let number = self.theirs.received.len() as u64;
        let pieces = 1 + slack % 4;
        let gap = slack % 16;
        let segments = cut(self.peer.segment(at, bytes.len() + slack), pieces, gap);
        let mut rest = bytes;
        for segment in &segments {
            let (now, later) = rest.split_at(rest.len().min(segment.length as usize));
            let at = usize::try_from(segment.address - self.peer.address(0)).unwrap();
            self.theirs.write(at, now);
            rest = later;
        }
        self.post(number, segments);
        self.theirs.received.push(Completion {
            solicited,
            invalidated,
            ..completion(number, Completed::Receive, bytes.len())
        });
        self.theirs.invalid.extend(invalidated);
    }

    /// The receive of the last message has immediate data too.
    fn announce(&mut self, immediate: [[u8; 4]; 2]) {
        self.theirs.received.last_mut().unwrap().immediate = immediate.concat().try_into().ok();
    }

    fn post(&self, id: u64, segments: Segments) {
        self.peer.receives.lock().unwrap().post(ReceiveRequest { id, segments }).unwrap();
    }

    /// Allocates a sink for the original value, and stores the new one.
    fn atomic(&mut self, target: usize, new: u64) -> Segment {
        let at = self.mine.place(8);
        let old = self.theirs.value_at(target);
        self.mine.write(at, &old.to_ne_bytes());
        self.theirs.write(ATOMICS + 8 * target, &new.to_ne_bytes());
        self.end.segment(at, 8)
    }

    fn tag_of_mine(&self, access: Access) -> Stag {
        self.end.table.register(self.end.domain, self.end.region.memory(), access, 1).unwrap()
    }

    fn tag_of_theirs(&self) -> Stag {
        self.peer.table.register(self.peer.domain, self.peer.region.memory(), everything(), 2).unwrap()
    }
}

/// A segment in pieces, with gaps between them.
fn cut(whole: Segment, pieces: usize, gap: usize) -> Segments {
    let (mut at, mut left) = (whole.address, whole.length);
    let each = (whole.length / u32::try_from(pieces).unwrap()).max(1);
    let mut segments = SmallVec::new();
    for piece in 1..=pieces {
        let length = if piece == pieces { left } else { each.min(left) };
        segments.push(Segment { stag: whole.stag, address: at, length });
        at += u64::from(length) + gap as u64;
        left -= length;
    }
    segments
}

/// Adds bit by bit; no carry leaves a bit that is set in the mask (RFC 7306,
/// section 5.1.1).
fn add_fields(one: u64, other: u64, mask: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let total = (one >> bit & 1) + (other >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}

fn completion(id: u64, completed: Completed, bytes: usize) -> Completion {
    Completion {
        id,
        queue_pair: QueuePairId(7),
        completed,
        status: Status::Success,
        bytes: u32::try_from(bytes).unwrap(),
        immediate: None,
        invalidated: None,
        solicited: false,
    }
}
