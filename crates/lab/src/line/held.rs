//! Forwarder whose packets stay in a netfilter queue of the kernel: only their
//! headers are read here, and due packets are released by number. Nothing is
//! copied, and arrivals have kernel timestamps.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use clearstream_netlink::packet_queue::{MESSAGE_BYTES, PacketQueue};
use clearstream_sys::segment_mark::SEGMENT_SIZE_MASK;

use super::{
    counters::Counters,
    forwarder::{Forwarder, Lateness, MIN_STALL_NS, Pace, lock, nanoseconds},
    model::{Direction, LinkModel, Verdict},
    segment::Shape,
};

/// Limit of bytes of dropped packets in the queue. To drop a packet at once the
/// kernel searches the queue for it from the oldest on (`find_dequeue_entry`,
/// nfnetlink_queue.c); up to this limit, dropped packets stay until they are
/// the oldest.
const DROPPED_BYTES: usize = 32 << 20;

/// One direction over a netfilter queue.
#[derive(Debug)]
pub(super) struct QueueForwarder {
    queue: PacketQueue,
    direction: Direction,
    slots: VecDeque<Slot>,
    /// Bytes of dropped packets still in the queue.
    dropped_bytes: usize,
    counters: Arc<Mutex<Counters>>,
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

impl QueueForwarder {
    pub(super) fn new(
        queue: PacketQueue,
        direction: Direction,
        model: &LinkModel,
        counters: Arc<Mutex<Counters>>,
    ) -> Self {
        Self {
            queue,
            direction,
            slots: VecDeque::with_capacity(4096),
            dropped_bytes: 0,
            counters,
            buffer: vec![0; MESSAGE_BYTES],
            last_arrival_ns: 0,
            last_leaves_ns: 0,
            empty_ns: 0,
            stall_ns: model.queue_ns.max(MIN_STALL_NS),
            lateness: Lateness::default(),
            pace: Pace::default(),
        }
    }

    fn take_one(&mut self, clock: &Instant) -> bool {
        let before_ns = nanoseconds(clock);
        let packet = match self.queue.receive(&mut self.buffer) {
            Ok(Some(packet)) => packet,
            Ok(None) => return true,
            Err(_) => {
                self.empty_ns = before_ns;
                return false;
            }
        };
        // Without a timestamp (the kernel enables them some time after they
        // were requested: net_enable_timestamp) the packet arrived after the
        // queue was last empty. That bounds its waiting time; its delay counts
        // from now, so that it is never released early. The same holds for a
        // timestamp: the line's clock is read after the machine's, so that time
        // lost between the two adds to the delay.
        let since_stamp_ns = packet.arrived_us.map(since);
        let now_ns = nanoseconds(clock);
        let stamped_ns = since_stamp_ns.map(|since_ns| since_ns.min(now_ns));
        let waited_ns = stamped_ns.unwrap_or(now_ns - self.empty_ns);
        // The model's time is monotonic even if the machine's clock is not.
        self.last_arrival_ns = self.last_arrival_ns.max(now_ns - stamped_ns.unwrap_or(0));
        let shape = Shape::of_ip(packet.start, packet.ip_bytes, (packet.mark & SEGMENT_SIZE_MASK) as usize);
        let mut slot = Slot { id: packet.id, bytes: packet.ip_bytes, leaves_ns: 0, dropped: false };
        let mut counters = lock(&self.counters);
        counters.arrived(waited_ns);
        if self.direction.is_black_holed(shape.longest_bytes()) {
            counters.lost(shape.segment_count);
            slot.dropped = true;
        } else {
            let late_ns = self.lateness.lasting_ns();
            let verdict = if waited_ns > self.stall_ns {
                Verdict::Behind
            } else {
                self.direction.accept_behind(self.last_arrival_ns, late_ns, shape.wire_bytes)
            };
            counters.record(verdict, shape.segment_count);
            match verdict {
                Verdict::Leaves { at_ns } => self.last_leaves_ns = at_ns,
                Verdict::Overflow | Verdict::Behind => slot.dropped = true,
            }
        }
        drop(counters);
        slot.leaves_ns = self.last_leaves_ns;
        self.keep(slot);
        true
    }

    fn keep(&mut self, slot: Slot) {
        if slot.dropped {
            if self.slots.is_empty() || self.dropped_bytes + slot.bytes > DROPPED_BYTES {
                // Fails for a packet that has left the queue already.
                let _ = self.queue.drop_one(slot.id);
                return;
            }
            self.dropped_bytes += slot.bytes;
        }
        self.slots.push_back(slot);
    }

    /// Releases all packets up to a number.
    fn release_to(&self, id: Option<u32>) {
        if let Some(id) = id
            && self.queue.release_to(id).is_err()
        {
            lock(&self.counters).refused();
        }
    }
}

/// Returns the time since a timestamp, rounded up to the next nanosecond:
/// nothing is released early.
fn since(stamp_us: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let stamp = (u128::from(stamp_us) + 1) * 1000;
    u64::try_from(now.saturating_sub(stamp)).unwrap_or(u64::MAX)
}

impl Forwarder for QueueForwarder {
    const TAKE_COUNT: usize = 64;
    const RELEASE_COUNT: usize = 32;

    fn take(&mut self, clock: &Instant) -> usize {
        (0..Self::TAKE_COUNT).take_while(|_| self.take_one(clock)).count()
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
                lock(&self.counters).passed(slot.bytes as u64, now_ns - slot.leaves_ns);
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

    fn change(&mut self, model: LinkModel) {
        self.direction.change(model);
        self.stall_ns = model.queue_ns.max(MIN_STALL_NS);
    }

    fn busy(&self) -> bool {
        self.pace.busy()
    }
}
