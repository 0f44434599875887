//! A lane whose packets the kernel holds: only their headers are seen here, and
//! what is due is released by number. Nothing is copied, and arrivals carry the
//! kernel's time.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use clearstream_netlink::packet_queue::{MESSAGE_BYTES, PacketQueue};
use clearstream_sys::segment_mark::SEGMENT_SIZE_MASK;

use super::{
    lane::{LEAST_STALL_NS, Lane, Lateness, Pace, lock, nanoseconds},
    model::{Direction, LinkModel, Verdict},
    segment::Shape,
    tally::Tally,
};

/// To drop a packet at once the kernel searches the queue for it from the oldest
/// on (`find_dequeue_entry`, nfnetlink_queue.c); so many bytes of dropped ones
/// wait until they are the oldest.
const DROPPED_BYTES: usize = 32 << 20;

/// One direction over a queue of the kernel.
#[derive(Debug)]
pub(super) struct HeldLane {
    queue: PacketQueue,
    direction: Direction,
    slots: VecDeque<Slot>,
    /// Bytes in slots of dropped packets.
    dropped_bytes: usize,
    tally: Arc<Mutex<Tally>>,
    buffer: Vec<u8>,
    last_arrival_ns: u64,
    last_leaves_ns: u64,
    empty_ns: u64,
    stall_ns: u64,
    lateness: Lateness,
    pace: Pace,
}

/// A packet in the kernel's queue.
#[derive(Debug, Clone, Copy)]
struct Slot {
    id: u32,
    bytes: usize,
    leaves_ns: u64,
    dropped: bool,
}

impl HeldLane {
    pub(super) fn new(
        queue: PacketQueue,
        direction: Direction,
        model: &LinkModel,
        tally: Arc<Mutex<Tally>>,
    ) -> Self {
        Self {
            queue,
            direction,
            slots: VecDeque::with_capacity(4096),
            dropped_bytes: 0,
            tally,
            buffer: vec![0; MESSAGE_BYTES],
            last_arrival_ns: 0,
            last_leaves_ns: 0,
            empty_ns: 0,
            stall_ns: model.queue_ns.max(LEAST_STALL_NS),
            lateness: Lateness::default(),
            pace: Pace::default(),
        }
    }

    fn take_one(&mut self, now_ns: u64) -> bool {
        let packet = match self.queue.receive(&mut self.buffer) {
            Ok(Some(packet)) => packet,
            Ok(None) => return true,
            Err(_) => {
                self.empty_ns = now_ns;
                return false;
            }
        };
        // Without a stamp (the kernel switches them on some time after it was
        // asked to: net_enable_timestamp) the packet came after the queue was
        // last empty. That bounds its wait; its delay counts from now, so that
        // it is never released early.
        let stamped_ns = packet.arrived_us.map(|stamp| since(stamp).min(now_ns));
        let waited_ns = stamped_ns.unwrap_or(now_ns - self.empty_ns);
        // The model's time does not go back where the machine's clock does.
        self.last_arrival_ns = self.last_arrival_ns.max(now_ns - stamped_ns.unwrap_or(0));
        let shape = Shape::of_ip(packet.start, packet.ip_bytes, (packet.mark & SEGMENT_SIZE_MASK) as usize);
        let mut slot = Slot { id: packet.id, bytes: packet.ip_bytes, leaves_ns: 0, dropped: false };
        let mut tally = lock(&self.tally);
        tally.arrived(waited_ns);
        if self.direction.swallows(shape.longest_bytes()) {
            tally.lost(shape.segment_count);
            slot.dropped = true;
        } else {
            let late_ns = self.lateness.lasting_ns();
            let verdict = if waited_ns > self.stall_ns {
                Verdict::Behind
            } else {
                self.direction.accept_behind(self.last_arrival_ns, late_ns, shape.wire_bytes)
            };
            tally.judged(verdict, shape.segment_count);
            match verdict {
                Verdict::Leaves { at_ns } => self.last_leaves_ns = at_ns,
                Verdict::Overflow | Verdict::Behind => slot.dropped = true,
            }
        }
        drop(tally);
        slot.leaves_ns = self.last_leaves_ns;
        self.keep(slot);
        true
    }

    fn keep(&mut self, slot: Slot) {
        if slot.dropped {
            if self.slots.is_empty() || self.dropped_bytes + slot.bytes > DROPPED_BYTES {
                // One that is gone already needs no dropping.
                let _ = self.queue.drop_one(slot.id);
                return;
            }
            self.dropped_bytes += slot.bytes;
        }
        self.slots.push_back(slot);
    }

    /// Lets everything up to a number go on.
    fn release_to(&self, id: Option<u32>) {
        if let Some(id) = id
            && self.queue.release_to(id).is_err()
        {
            lock(&self.tally).refused();
        }
    }
}

/// Time since a stamp, to the nanosecond after it: nothing is released early.
fn since(stamp_us: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let stamp = (u128::from(stamp_us) + 1) * 1000;
    u64::try_from(now.saturating_sub(stamp)).unwrap_or(u64::MAX)
}

impl Lane for HeldLane {
    const TAKE_COUNT: usize = 64;
    const RELEASE_COUNT: usize = 32;

    fn take(&mut self, clock: &Instant) -> usize {
        (0..Self::TAKE_COUNT).take_while(|_| self.take_one(nanoseconds(clock))).count()
    }

    fn release(&mut self, clock: &Instant) -> usize {
        let now_ns = nanoseconds(clock);
        let late_ns = self.next_leaves_ns().map_or(0, |leaves_ns| now_ns.saturating_sub(leaves_ns));
        self.lateness.observe(now_ns, late_ns);
        let (mut count, mut upto) = (0, None);
        while count < Self::RELEASE_COUNT
            && let Some(slot) = self.slots.pop_front_if(|slot| slot.leaves_ns <= now_ns)
        {
            count += 1;
            if slot.dropped {
                self.release_to(upto.take());
                let _ = self.queue.drop_one(slot.id);
                self.dropped_bytes -= slot.bytes;
            } else {
                lock(&self.tally).passed(slot.bytes as u64, now_ns - slot.leaves_ns);
                self.pace.count(now_ns);
                upto = Some(slot.id);
            }
        }
        self.release_to(upto);
        count
    }

    fn next_leaves_ns(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.leaves_ns)
    }

    fn arrivals(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    fn seen_empty(&mut self, at_ns: u64) {
        self.empty_ns = at_ns;
    }

    fn busy(&self) -> bool {
        self.pace.busy()
    }
}
