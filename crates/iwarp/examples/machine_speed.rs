//! Cost of the protocol state machine alone: two of them in one thread, with
//! memory copies instead of sockets. Nanoseconds per message of each side,
//! medians over bursts.
//!
//! `cargo run --release -p clearstream-iwarp --example machine_speed`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clearstream_iwarp::memory::{Access, MemoryTable, Piece, Region};
use clearstream_iwarp::mpa::{Negotiated, mulpdu};
use clearstream_iwarp::queue_pair::{Limits, Machine, ReceiveQueue, Receives};
use clearstream_iwarp::stag::{QueuePairId, Stag};
use clearstream_iwarp::work::{Data, InlineData, Operation, ReceiveRequest, Remote, Segment, SendRequest};
use smallvec::SmallVec;

/// Messages posted before they are sent.
const BURST: u64 = 16;
/// Largest segment over loopback.
const MSS: usize = 65_483;

struct End {
    machine: Machine,
    receives: Arc<Mutex<ReceiveQueue>>,
    region: Region,
    stag: Stag,
}

impl End {
    fn new(initiator: bool, crc: bool) -> Self {
        let negotiated = Negotiated {
            crc,
            markers_out: false,
            markers_in: false,
            large_fpdus: false,
            immediate_data: false,
            revision: 2,
            ird: 16,
            ord: 16,
            rtr: None,
            initiator,
        };
        let table = MemoryTable::new();
        let domain = table.allocate_domain();
        let region = Region::new(8 << 20).unwrap();
        region.write(0, &vec![1; 8 << 20]);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let stag = table.register(domain, region.memory(), access, 1).unwrap();
        let receives = Arc::new(Mutex::new(ReceiveQueue::new(64, 4)));
        let of_machine = Receives::Own(receives.clone());
        let limits = Limits::default();
        let machine =
            Machine::new(QueuePairId(1), domain, table, &negotiated, mulpdu(MSS, false), limits, of_machine);
        Self { machine, receives, region, stag }
    }

    fn segment(&self, length: usize) -> Segment {
        Segment { stag: self.stag, address: self.region.address(), length: length as u32 }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Inline,
    Send,
    Write,
}

/// Time spent by each side.
#[derive(Default)]
struct Spent {
    sender: Duration,
    stream: Duration,
    receiver: Duration,
}

fn post(one: &mut End, other: &mut End, kind: Kind, size: usize, spent: &mut Spent) {
    let remote = Remote { stag: other.stag, address: other.region.address() };
    let segments = SmallVec::from_slice(&[one.segment(size)]);
    if !matches!(kind, Kind::Write) {
        let into = SmallVec::from_slice(&[other.segment(size)]);
        let began = Instant::now();
        for id in 0..BURST {
            let request = ReceiveRequest { id, segments: into.clone() };
            other.receives.lock().unwrap().post(request).unwrap();
        }
        spent.receiver += began.elapsed();
    }
    let bytes = vec![7; size];
    let began = Instant::now();
    for id in 0..BURST {
        let operation = match kind {
            Kind::Inline => {
                let data = Data::Inline(InlineData::from_slice(&bytes));
                Operation::Send { data, solicited: false, invalidate: None }
            }
            Kind::Send => {
                let data = Data::Gather(segments.clone());
                Operation::Send { data, solicited: false, invalidate: None }
            }
            Kind::Write => Operation::Write { data: Data::Gather(segments.clone()), remote },
        };
        one.machine.post_send(SendRequest { id, operation, signaled: true, fence: false }).unwrap();
    }
    spent.sender += began.elapsed();
}

/// Copies a batch through memory, as one socket call in each direction would.
fn carry(one: &mut End, other: &mut End, stream: &mut Vec<u8>, spent: &mut Spent) -> bool {
    let began = Instant::now();
    let batch = one.machine.outgoing();
    let mut pieces = SmallVec::new();
    batch.pieces(&mut pieces);
    let built = Instant::now();
    stream.clear();
    for piece in &pieces {
        match piece {
            Piece::Bytes(bytes) => stream.extend_from_slice(bytes),
            Piece::Memory(span) | Piece::Pages(span) => span.append_to(stream).unwrap(),
        }
    }
    drop(pieces);
    let copied = Instant::now();
    one.machine.sent(stream.len());
    one.machine.completions().for_each(drop);
    let sent = Instant::now();
    spent.sender += (built - began) + (sent - copied);
    spent.stream += copied - built;
    let mut rest = &stream[..];
    while !rest.is_empty() {
        let began = Instant::now();
        let places = other.machine.straight();
        let found = Instant::now();
        spent.receiver += found - began;
        if let Some((spans, extra)) = places {
            let mut placed = 0;
            for span in &spans {
                let (now, later) = rest.split_at(rest.len().min(span.len()));
                span.write(0, now).unwrap();
                placed += now.len();
                rest = later;
            }
            let written = Instant::now();
            other.machine.placed(placed);
            let (now, later) = rest.split_at(rest.len().min(extra));
            other.machine.consume(now);
            rest = later;
            spent.stream += written - found;
            spent.receiver += written.elapsed();
        } else {
            let (now, later) = rest.split_at(rest.len().min(16 << 10));
            other.machine.consume(now);
            rest = later;
            spent.receiver += found.elapsed();
        }
    }
    let began = Instant::now();
    other.machine.completions().for_each(drop);
    other.machine.events().for_each(drop);
    spent.receiver += began.elapsed();
    !stream.is_empty()
}

fn measure(name: &str, kind: Kind, size: usize, crc: bool, rounds: u64) {
    let (mut one, mut other) = (End::new(true, crc), End::new(false, crc));
    let mut stream = Vec::new();
    let mut bursts = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let mut spent = Spent::default();
        post(&mut one, &mut other, kind, size, &mut spent);
        while carry(&mut one, &mut other, &mut stream, &mut spent) {}
        for (all, one) in bursts.iter_mut().zip([spent.sender, spent.receiver, spent.stream]) {
            all.push(one);
        }
    }
    let [sender, receiver, copies] = bursts.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2].as_nanos() as f64 / BURST as f64
    });
    println!(
        "{name:<22} {size:>8} bytes  CRC {:<3}  sender {sender:>9.1} ns  receiver {receiver:>9.1} ns  copies {copies:>9.1} ns",
        if crc { "on" } else { "off" },
    );
}

fn main() {
    for crc in [false, true] {
        measure("Send, inline", Kind::Inline, 64, crc, 50_000);
        measure("Send", Kind::Send, 64, crc, 50_000);
        measure("Write", Kind::Write, 64, crc, 50_000);
        measure("Send", Kind::Send, 1024, crc, 20_000);
        measure("Send", Kind::Send, 65_536, crc, 500);
        measure("Write", Kind::Write, 1 << 20, crc, 50);
    }
}
