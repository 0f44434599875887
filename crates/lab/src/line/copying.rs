//! Forwarder that copies packets from one host's TUN device into memory, and
//! from there to the other host's device.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex},
    time::Instant,
};

use clearstream_sys::tun::{PACKET_HEADER_BYTES, PACKET_MAX_BYTES, Tun};

use super::{
    counters::Counters,
    forwarder::{Forwarder, Lateness, MIN_STALL_NS, Pace, lock, nanoseconds},
    model::{Direction, LinkModel, Verdict},
    segment::Shape,
    store::Store,
};

/// Bytes read of a packet that is dropped anyway: its headers.
const START_BYTES: usize = 256;

/// Size of the packet store: this many times what the link can hold.
const ROOM_FACTOR: u64 = 2;
/// Rate assumed for the store of an unlimited link.
const UNLIMITED_RATE_BPS: u64 = 100_000_000_000;
const MIN_ROOM_BYTES: u64 = 16 << 20;
const MAX_ROOM_BYTES: u64 = 2 << 30;

/// One direction between two TUN devices.
#[derive(Debug)]
pub(super) struct CopyingForwarder {
    from: Arc<Tun>,
    to: Arc<Tun>,
    direction: Direction,
    store: Store,
    /// Buffer for a packet without room in the store, and for the remaining
    /// parts of one that lost segments.
    aside: Vec<u8>,
    part: Vec<u8>,
    counters: Arc<Mutex<Counters>>,
    /// Time at which the device was last empty: what is read now arrived later.
    empty_ns: u64,
    stall_ns: u64,
    lateness: Lateness,
    pace: Pace,
}

/// Bytes of packets that a link can hold, and a reserve.
fn room_for(model: &LinkModel) -> u64 {
    let rate = u128::from(model.rate_bps.unwrap_or(UNLIMITED_RATE_BPS));
    let time = u128::from(model.delay_ns) + u128::from(model.jitter_ns) + u128::from(model.queue_ns);
    let holds = u64::try_from(rate * time / 8_000_000_000).unwrap_or(MAX_ROOM_BYTES);
    holds.saturating_mul(ROOM_FACTOR).clamp(MIN_ROOM_BYTES, MAX_ROOM_BYTES)
}

impl CopyingForwarder {
    pub(super) fn new(
        [from, to]: [Arc<Tun>; 2],
        direction: Direction,
        model: &LinkModel,
        counters: Arc<Mutex<Counters>>,
    ) -> io::Result<Self> {
        Ok(Self {
            from,
            to,
            direction,
            store: Store::with_room_for(room_for(model))?,
            aside: vec![0; PACKET_MAX_BYTES],
            part: Vec::with_capacity(PACKET_MAX_BYTES),
            counters,
            empty_ns: 0,
            stall_ns: model.queue_ns.max(MIN_STALL_NS),
            lateness: Lateness::default(),
            pace: Pace::default(),
        })
    }

    /// Reads one packet; false when there is none.
    fn take_one(&mut self, clock: &Instant) -> bool {
        let before_ns = nanoseconds(clock);
        let (late_ns, waited_ns) = (self.lateness.lasting_ns(), before_ns - self.empty_ns);
        if waited_ns > self.stall_ns || self.direction.takes_nothing(before_ns, late_ns) {
            return self.drop_one(before_ns);
        }
        let (room, kept) = match self.store.room() {
            Some(room) => (room, true),
            None => (self.aside.as_mut_slice(), false),
        };
        let Ok(bytes) = self.from.receive(room) else {
            // Empty, or the device is being removed: nothing to read either
            // way.
            self.empty_ns = before_ns;
            return false;
        };
        // It may have arrived after `before_ns`: its delay counts from now, so
        // that it is never released early.
        let now_ns = nanoseconds(clock);
        let shape = Shape::of(&room[..bytes]);
        let mut counters = lock(&self.counters);
        counters.arrived(waited_ns);
        if self.direction.is_black_holed(shape.longest_bytes()) {
            counters.lost(shape.segment_count);
        } else if !kept {
            counters.relay_dropped(shape.segment_count);
        } else if self.direction.passes(shape.segment_count) {
            self.direction.pass(shape.segment_count);
            let verdict = self.direction.accept_behind(now_ns, late_ns, shape.wire_bytes);
            counters.record(verdict, shape.segment_count);
            if let Verdict::Leaves { at_ns } = verdict {
                self.store.keep(bytes, at_ns);
            }
        } else {
            drop(counters);
            // The same slot as before: nothing was stored since.
            if let Some(room) = self.store.room() {
                self.aside[..bytes].copy_from_slice(&room[..bytes]);
            }
            self.take_with_losses(now_ns, late_ns, bytes, &shape);
        }
        true
    }

    /// Reads the start of a packet and drops it.
    fn drop_one(&mut self, now_ns: u64) -> bool {
        let Ok(bytes) = self.from.receive(&mut self.aside[..START_BYTES]) else {
            self.empty_ns = now_ns;
            return false;
        };
        let shape = Shape::of_start(&self.aside[..bytes]);
        let mut counters = lock(&self.counters);
        if self.direction.is_black_holed(shape.longest_bytes()) {
            counters.lost(shape.segment_count);
        } else {
            counters.relay_dropped(shape.segment_count);
        }
        true
    }

    /// Forwards a packet with at least one lost segment: the runs between lost
    /// segments are forwarded as separate packets.
    fn take_with_losses(&mut self, now_ns: u64, late_ns: u64, bytes: usize, shape: &Shape) {
        let mut run_start = 0;
        for segment in 0..=shape.segment_count {
            let ends = segment == shape.segment_count;
            let lost = !ends && self.direction.loses_next();
            if lost {
                lock(&self.counters).lost(1);
            }
            if lost || ends {
                if run_start < segment
                    && shape.cut(&self.aside[..bytes], run_start, segment, &mut self.part).is_some()
                {
                    self.take_part(now_ns, late_ns, segment - run_start);
                }
                run_start = segment + 1;
            }
        }
    }

    fn take_part(&mut self, now_ns: u64, late_ns: u64, segments: u32) {
        let wire_bytes = Shape::of(&self.part).wire_bytes;
        let Some(room) = self.store.room() else { return lock(&self.counters).relay_dropped(segments) };
        let verdict = self.direction.accept_behind(now_ns, late_ns, wire_bytes);
        lock(&self.counters).record(verdict, segments);
        if let Verdict::Leaves { at_ns } = verdict {
            room[..self.part.len()].copy_from_slice(&self.part);
            self.store.keep(self.part.len(), at_ns);
        }
    }
}

impl Forwarder for CopyingForwarder {
    /// More than are released: the device is emptied first, so that no packet
    /// waits unobserved, and a line that cannot keep up measures its own
    /// lateness.
    const TAKE_COUNT: usize = 32;
    /// A packet of 64 KiB takes several microseconds to copy.
    const RELEASE_COUNT: usize = 8;

    fn take(&mut self, clock: &Instant) -> usize {
        (0..Self::TAKE_COUNT).take_while(|_| self.take_one(clock)).count()
    }

    fn release(&mut self, clock: &Instant) -> usize {
        let now_ns = nanoseconds(clock);
        let late_ns = self.store.next_leaves_ns().map_or(0, |leaves_ns| now_ns.saturating_sub(leaves_ns));
        self.lateness.observe(now_ns, late_ns);
        for released in 0..Self::RELEASE_COUNT {
            let now_ns = nanoseconds(clock);
            let due = self.store.next_leaves_ns().filter(|&leaves_ns| leaves_ns <= now_ns);
            let (Some(leaves_ns), Some(packet)) = (due, self.store.oldest()) else { return released };
            let sent = self.to.send(packet);
            let bytes = (packet.len() - PACKET_HEADER_BYTES) as u64;
            match sent {
                Ok(()) => lock(&self.counters).passed(bytes, now_ns - leaves_ns),
                Err(_) => lock(&self.counters).refused(),
            }
            self.store.remove_oldest();
            self.pace.count(now_ns);
        }
        Self::RELEASE_COUNT
    }

    fn next_leaves_ns(&self) -> Option<u64> {
        self.store.next_leaves_ns()
    }

    fn arrivals(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    fn seen_empty(&mut self, at_ns: u64) {
        self.empty_ns = at_ns;
    }

    fn change(&mut self, model: LinkModel) {
        self.direction.change(model);
        self.stall_ns = model.queue_ns.max(MIN_STALL_NS);
        self.store.grow_to(room_for(&model));
    }

    fn busy(&self) -> bool {
        self.pace.busy()
    }
}
