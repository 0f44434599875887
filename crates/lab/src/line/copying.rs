//! A lane that copies packets from one host's TUN device into memory, and from
//! there to the other host's device.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex},
    time::Instant,
};

use clearstream_sys::tun::{PACKET_HEADER_BYTES, PACKET_MAX_BYTES, Tun};

use super::{
    lane::{LEAST_STALL_NS, Lane, Lateness, Pace, lock, nanoseconds},
    model::{Direction, LinkModel, Verdict},
    segment::Shape,
    store::Store,
    tally::Tally,
};

/// What is read of a packet that is dropped anyway: its headers.
const START_BYTES: usize = 256;

/// Memory for packets on their way: this many times what the link can hold.
const ROOM_FACTOR: u64 = 2;
/// An unlimited link is given room for this rate.
const UNLIMITED_RATE_BPS: u64 = 100_000_000_000;
const LEAST_ROOM_BYTES: u64 = 16 << 20;
const MOST_ROOM_BYTES: u64 = 2 << 30;

/// One direction between two TUN devices.
#[derive(Debug)]
pub(super) struct CopyingLane {
    from: Arc<Tun>,
    to: Arc<Tun>,
    direction: Direction,
    store: Store,
    /// A packet that finds no room, and parts of one that lost segments.
    aside: Vec<u8>,
    part: Vec<u8>,
    tally: Arc<Mutex<Tally>>,
    /// When the device was last seen empty: what is read now came later.
    empty_ns: u64,
    stall_ns: u64,
    lateness: Lateness,
    pace: Pace,
}

impl CopyingLane {
    pub(super) fn new(
        [from, to]: [Arc<Tun>; 2],
        direction: Direction,
        model: &LinkModel,
        tally: Arc<Mutex<Tally>>,
    ) -> io::Result<Self> {
        let rate = u128::from(model.rate_bps.unwrap_or(UNLIMITED_RATE_BPS));
        let time = u128::from(model.delay_ns) + u128::from(model.jitter_ns) + u128::from(model.queue_ns);
        let holds = u64::try_from(rate * time / 8_000_000_000).unwrap_or(MOST_ROOM_BYTES);
        let room = holds.saturating_mul(ROOM_FACTOR).clamp(LEAST_ROOM_BYTES, MOST_ROOM_BYTES);
        Ok(Self {
            from,
            to,
            direction,
            store: Store::with_room_for(room)?,
            aside: vec![0; PACKET_MAX_BYTES],
            part: Vec::with_capacity(PACKET_MAX_BYTES),
            tally,
            empty_ns: 0,
            stall_ns: model.queue_ns.max(LEAST_STALL_NS),
            lateness: Lateness::default(),
            pace: Pace::default(),
        })
    }

    /// Takes one packet; false when there is none.
    fn take_one(&mut self, now_ns: u64) -> bool {
        let (late_ns, waited_ns) = (self.lateness.lasting_ns(), now_ns - self.empty_ns);
        if waited_ns > self.stall_ns || self.direction.takes_nothing(now_ns, late_ns) {
            return self.drop_one(now_ns);
        }
        let (room, kept) = match self.store.room() {
            Some(room) => (room, true),
            None => (self.aside.as_mut_slice(), false),
        };
        let Ok(bytes) = self.from.receive(room) else {
            // Empty, or the device is going: either way nothing to take.
            self.empty_ns = now_ns;
            return false;
        };
        let shape = Shape::of(&room[..bytes]);
        let mut tally = lock(&self.tally);
        tally.arrived(waited_ns);
        if self.direction.swallows(shape.longest_bytes()) {
            tally.lost(shape.segment_count);
        } else if !kept {
            tally.relay_dropped(shape.segment_count);
        } else if self.direction.passes(shape.segment_count) {
            self.direction.pass(shape.segment_count);
            let verdict = self.direction.accept_behind(now_ns, late_ns, shape.wire_bytes);
            tally.judged(verdict, shape.segment_count);
            if let Verdict::Leaves { at_ns } = verdict {
                self.store.keep(bytes, at_ns);
            }
        } else {
            drop(tally);
            // The same room as before: nothing was kept since.
            if let Some(room) = self.store.room() {
                self.aside[..bytes].copy_from_slice(&room[..bytes]);
            }
            self.take_with_losses(now_ns, late_ns, bytes, &shape);
        }
        true
    }

    /// Reads the start of a packet and forgets it.
    fn drop_one(&mut self, now_ns: u64) -> bool {
        let Ok(bytes) = self.from.receive(&mut self.aside[..START_BYTES]) else {
            self.empty_ns = now_ns;
            return false;
        };
        let shape = Shape::of_start(&self.aside[..bytes]);
        let mut tally = lock(&self.tally);
        if self.direction.swallows(shape.longest_bytes()) {
            tally.lost(shape.segment_count);
        } else {
            tally.relay_dropped(shape.segment_count);
        }
        true
    }

    /// A packet of which at least one segment is lost: the runs between lost
    /// segments go on as packets of their own.
    fn take_with_losses(&mut self, now_ns: u64, late_ns: u64, bytes: usize, shape: &Shape) {
        let mut run_start = 0;
        for segment in 0..=shape.segment_count {
            let ends = segment == shape.segment_count;
            let lost = !ends && self.direction.loses_next();
            if lost {
                lock(&self.tally).lost(1);
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
        let Some(room) = self.store.room() else { return lock(&self.tally).relay_dropped(segments) };
        let verdict = self.direction.accept_behind(now_ns, late_ns, wire_bytes);
        lock(&self.tally).judged(verdict, segments);
        if let Verdict::Leaves { at_ns } = verdict {
            room[..self.part.len()].copy_from_slice(&self.part);
            self.store.keep(self.part.len(), at_ns);
        }
    }
}

impl Lane for CopyingLane {
    /// More than are released: the device is emptied first, so that nothing waits
    /// where the line does not see it, and a line that cannot keep up is late,
    /// which it knows.
    const TAKE_COUNT: usize = 32;
    /// One of 64 KiB takes several microseconds to copy.
    const RELEASE_COUNT: usize = 8;

    fn take(&mut self, clock: &Instant) -> usize {
        (0..Self::TAKE_COUNT).take_while(|_| self.take_one(nanoseconds(clock))).count()
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
                Ok(()) => lock(&self.tally).passed(bytes, now_ns - leaves_ns),
                Err(_) => lock(&self.tally).refused(),
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

    fn busy(&self) -> bool {
        self.pace.busy()
    }
}
