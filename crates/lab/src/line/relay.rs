//! The delay line at work: a thread that takes packets from one host's TUN
//! device, keeps them, and hands them to the other host when it is time.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clearstream_sys::{
    priority::{make_real_time, make_timers_exact},
    tun::{PACKET_HEADER_BYTES, PACKET_MAX_BYTES, Tun},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    model::{Direction, LinkModel, Verdict},
    segment::Shape,
    store::Store,
    tally::Tally,
};

/// The thread waits actively for this long before a packet leaves: a core that
/// slept needs tens of microseconds to wake up, and a kernel that does not
/// preempt itself may finish something else first.
const SPIN_NS: u64 = 300_000;
/// Packets taken or handed over before the other task is looked at again: one
/// of 64 KiB takes several microseconds to copy.
const BATCH: usize = 8;
/// With this many packets handed over in the last millisecond the line is
/// busy: it then sleeps between batches and leaves the core to the hosts.
const BUSY_COUNT: u64 = 4;
/// The longest sleep of a busy line.
const BUSY_SLEEP_NS: u64 = 40_000;
/// Without a pause for this long, the thread takes one. A real-time thread that
/// takes all of a core is stopped by the kernel for 50 ms of each second
/// (`kernel.sched_rt_runtime_us`, and the fair server since Linux 6.12); many
/// short pauses that add up to as much are better.
const WORK_NS: u64 = 1_000_000;
const PAUSE_NS: u64 = 60_000;
/// How often an idle thread looks whether it is to stop.
const STOP_CHECK_NS: u64 = 100_000_000;

/// Memory for packets on their way: this many times what the link can hold.
const ROOM_FACTOR: u64 = 2;
/// An unlimited link is given room for this rate.
const UNLIMITED_RATE_BPS: u64 = 100_000_000_000;
const LEAST_ROOM_BYTES: u64 = 16 << 20;
const MOST_ROOM_BYTES: u64 = 2 << 30;

/// Both directions of a link at work. Dropping it stops them.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    tallies: [Arc<Mutex<Tally>>; 2],
}

impl Relay {
    /// Starts to carry packets between two devices, both ways alike. The
    /// directions have random sequences of their own.
    pub fn start(ends: [Tun; 2], model: LinkModel, seed: u64) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let tallies = [(); 2].map(|()| Arc::new(Mutex::new(Tally::new())));
        let directions = [0, 1].map(|way| Direction::new(model, seed.wrapping_mul(2).wrapping_add(way)));
        let [forth, back] = directions;
        let mut ways = [
            Way::new(forth, &model, Arc::clone(&tallies[0]))?,
            Way::new(back, &model, Arc::clone(&tallies[1]))?,
        ];
        let stopping = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("delay-line".to_owned()).spawn(move || {
            favour_this_thread();
            let [one, two] = &ends;
            let clock = Instant::now();
            let mut rested_ns = 0;
            while !stopping.load(Ordering::Relaxed) {
                let [forth, back] = &mut ways;
                let more = forth.step(one, two, &clock) | back.step(two, one, &clock);
                let rested = !more && wait([one, two], [forth, back], &clock);
                if !rested && nanoseconds(&clock) - rested_ns > WORK_NS {
                    std::thread::sleep(Duration::from_nanos(PAUSE_NS));
                    rested_ns = nanoseconds(&clock);
                } else if rested {
                    rested_ns = nanoseconds(&clock);
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread), tallies })
    }

    /// What has happened from the first end to the second, and back.
    pub fn tallies(&self) -> [Tally; 2] {
        [0, 1].map(|way: usize| lock(&self.tallies[way]).clone())
    }

    /// Starts counting anew.
    pub fn reset(&self) {
        for tally in &self.tallies {
            *lock(tally) = Tally::new();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed; there is nothing left to undo.
            let _ = thread.join();
        }
    }
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanoseconds(clock: &Instant) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Wakes up on the nanosecond, and before others. A keeper is root and may;
/// where it may not, the line is later, and its tally says so.
fn favour_this_thread() {
    let _ = make_timers_exact();
    if make_real_time().is_err() {
        // A session is a scheduling group of its own (sched(7), autogroup):
        // without its share raised, niceness counts among our threads only.
        let _ = rustix::process::setpriority_process(None, -20);
        let _ = std::fs::write("/proc/self/autogroup", "-20");
    }
}

/// Sleeps until something arrives or a packet is about to leave; false when it
/// is about to, and the thread goes on at once.
fn wait(tuns: [&Tun; 2], mut ways: [&mut Way; 2], clock: &Instant) -> bool {
    let now_ns = nanoseconds(clock);
    let next_ns = ways.iter().filter_map(|way| way.store.next_leaves_ns()).min();
    let left_ns = next_ns.map_or(STOP_CHECK_NS, |next| next.saturating_sub(now_ns));
    let busy = ways.iter().any(|way| way.busy());
    if busy {
        // What arrives meanwhile waits in the device; it is read in one go.
        let sleep_ns = left_ns.clamp(1, BUSY_SLEEP_NS);
        std::thread::sleep(Duration::from_nanos(sleep_ns));
        return true;
    }
    let sleep_ns = left_ns.saturating_sub(SPIN_NS).min(STOP_CHECK_NS);
    if sleep_ns == 0 {
        std::hint::spin_loop();
        return false;
    }
    let mut polled = tuns.map(|tun| PollFd::new(tun, PollFlags::IN));
    let timeout = Timespec { tv_sec: 0, tv_nsec: sleep_ns.min(999_999_999) as i64 };
    // Interrupted or not: the loop looks again. An arrival ends the sleep, so
    // nothing had come before.
    let _ = poll(&mut polled, Some(&timeout));
    let now_ns = nanoseconds(clock);
    for way in &mut ways {
        way.empty_ns = now_ns;
    }
    true
}

/// One direction.
#[derive(Debug)]
struct Way {
    direction: Direction,
    store: Store,
    /// A packet that finds no room, and parts of one that lost segments.
    aside: Vec<u8>,
    part: Vec<u8>,
    tally: Arc<Mutex<Tally>>,
    /// When the device was last seen empty: what is read now came later.
    empty_ns: u64,
    window_start_ns: u64,
    window_count: u64,
    last_window_count: u64,
}

impl Way {
    fn new(direction: Direction, model: &LinkModel, tally: Arc<Mutex<Tally>>) -> io::Result<Self> {
        let rate = u128::from(model.rate_bps.unwrap_or(UNLIMITED_RATE_BPS));
        let queue_ns = if model.rate_bps.is_some() { model.queue_ns } else { 0 };
        let time = u128::from(model.delay_ns) + u128::from(model.jitter_ns) + u128::from(queue_ns);
        let holds = u64::try_from(rate * time / 8_000_000_000).unwrap_or(MOST_ROOM_BYTES);
        let room = holds.saturating_mul(ROOM_FACTOR).clamp(LEAST_ROOM_BYTES, MOST_ROOM_BYTES);
        Ok(Self {
            direction,
            store: Store::with_room_for(room)?,
            aside: vec![0; PACKET_MAX_BYTES],
            part: Vec::with_capacity(PACKET_MAX_BYTES),
            tally,
            empty_ns: 0,
            window_start_ns: 0,
            window_count: 0,
            last_window_count: 0,
        })
    }

    /// Takes what has arrived and hands over what is due; true when there may
    /// be more to do at once.
    fn step(&mut self, from: &Tun, to: &Tun, clock: &Instant) -> bool {
        let took = self.take(from, clock);
        let gave = self.hand_over(to, clock);
        took | gave
    }

    fn take(&mut self, from: &Tun, clock: &Instant) -> bool {
        for _ in 0..BATCH {
            let now_ns = nanoseconds(clock);
            let (room, kept) = match self.store.room() {
                Some(room) => (room, true),
                None => (self.aside.as_mut_slice(), false),
            };
            let Ok(bytes) = from.receive(room) else {
                // Empty, or the device is going: either way nothing to take.
                self.empty_ns = now_ns;
                return false;
            };
            let shape = Shape::of(&room[..bytes]);
            let mut tally = lock(&self.tally);
            tally.arrived(now_ns - self.empty_ns);
            if self.direction.swallows(shape.longest_bytes()) {
                tally.lost(shape.segment_count);
            } else if !kept {
                tally.overflowed(shape.segment_count);
            } else if self.direction.passes(shape.segment_count) {
                self.direction.pass(shape.segment_count);
                match self.direction.accept(now_ns, shape.wire_bytes) {
                    Verdict::Leaves { at_ns } => {
                        tally.accepted(shape.segment_count);
                        self.store.keep(bytes, at_ns);
                    }
                    Verdict::Overflow => tally.overflowed(shape.segment_count),
                }
            } else {
                drop(tally);
                // The same room as before: nothing was kept since.
                if let Some(room) = self.store.room() {
                    self.aside[..bytes].copy_from_slice(&room[..bytes]);
                }
                self.take_with_losses(now_ns, bytes, &shape);
            }
        }
        true
    }

    /// A packet of which at least one segment is lost: the runs between lost
    /// segments go on as packets of their own.
    fn take_with_losses(&mut self, now_ns: u64, bytes: usize, shape: &Shape) {
        let mut run_start = 0;
        for segment in 0..=shape.segment_count {
            let ends = segment == shape.segment_count;
            let lost = !ends && self.direction.loses_next();
            if lost {
                lock(&self.tally).lost(1);
            }
            if lost || ends {
                if run_start < segment {
                    self.take_part(now_ns, bytes, shape, run_start, segment);
                }
                run_start = segment + 1;
            }
        }
    }

    fn take_part(&mut self, now_ns: u64, bytes: usize, shape: &Shape, first: u32, end: u32) {
        if shape.cut(&self.aside[..bytes], first, end, &mut self.part).is_none() {
            return;
        }
        let wire_bytes = Shape::of(&self.part).wire_bytes;
        let verdict = self.direction.accept(now_ns, wire_bytes);
        let mut tally = lock(&self.tally);
        match (verdict, self.store.room()) {
            (Verdict::Leaves { at_ns }, Some(room)) => {
                room[..self.part.len()].copy_from_slice(&self.part);
                tally.accepted(end - first);
                self.store.keep(self.part.len(), at_ns);
            }
            _ => tally.overflowed(end - first),
        }
    }

    fn hand_over(&mut self, to: &Tun, clock: &Instant) -> bool {
        for _ in 0..BATCH {
            let now_ns = nanoseconds(clock);
            let due = self.store.next_leaves_ns().filter(|&leaves_ns| leaves_ns <= now_ns);
            let (Some(leaves_ns), Some(packet)) = (due, self.store.oldest()) else { return false };
            let sent = to.send(packet);
            let bytes = (packet.len() - PACKET_HEADER_BYTES) as u64;
            let mut tally = lock(&self.tally);
            match sent {
                Ok(()) => tally.passed(bytes, now_ns - leaves_ns),
                Err(_) => tally.refused(),
            }
            drop(tally);
            self.store.remove_oldest();
            self.count(now_ns);
        }
        true
    }

    fn count(&mut self, now_ns: u64) {
        const WINDOW_NS: u64 = 1_000_000;
        let passed_ns = now_ns - self.window_start_ns;
        if passed_ns >= WINDOW_NS {
            self.last_window_count = if passed_ns < 2 * WINDOW_NS { self.window_count } else { 0 };
            self.window_count = 0;
            self.window_start_ns = now_ns;
        }
        self.window_count += 1;
    }

    fn busy(&self) -> bool {
        self.last_window_count.max(self.window_count) > BUSY_COUNT
    }
}
