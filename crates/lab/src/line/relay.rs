//! The delay line at work: a thread that takes packets from one host, keeps
//! them, and hands them to the other host when it is time.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clearstream_netlink::packet_queue::PacketQueue;
use clearstream_sys::{
    priority::{make_real_time, make_timers_exact},
    tun::Tun,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    copying::CopyingLane,
    held::HeldLane,
    lane::{Lane, RunDelay, lock, nanoseconds},
    model::{Direction, LinkModel},
    tally::{Load, Tally},
};

/// The thread waits actively for this long before a packet leaves: a core that
/// slept needs tens of microseconds to wake up, and a kernel that does not
/// preempt itself may finish something else first.
const SPIN_NS: u64 = 300_000;
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

/// Both directions of a link at work. Dropping it stops them.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    tallies: [Arc<Mutex<Tally>>; 2],
    load: Arc<Mutex<Load>>,
}

impl Relay {
    /// Starts to carry packets between two devices, both ways alike. The
    /// directions have random sequences of their own.
    pub fn start([one, two]: [Tun; 2], model: LinkModel, seed: u64) -> io::Result<Self> {
        let (one, two) = (Arc::new(one), Arc::new(two));
        Self::start_with(model, seed, |index, direction, tally| {
            let (one, two) = (Arc::clone(&one), Arc::clone(&two));
            let ends = if index == 0 { [one, two] } else { [two, one] };
            CopyingLane::new(ends, direction, &model, tally)
        })
    }

    /// Starts to release what the kernel holds in two queues, one for each
    /// direction. Losses within joined packets cannot be made that way: the
    /// model must have none.
    pub fn start_held(queues: [PacketQueue; 2], model: LinkModel, seed: u64) -> io::Result<Self> {
        let mut queues = queues.map(Some);
        Self::start_with(model, seed, |index, direction, tally| {
            let queue = queues[index].take().ok_or(io::ErrorKind::NotFound)?;
            Ok(HeldLane::new(queue, direction, &model, tally))
        })
    }

    fn start_with<L: Lane + 'static>(
        model: LinkModel,
        seed: u64,
        mut make: impl FnMut(usize, Direction, Arc<Mutex<Tally>>) -> io::Result<L>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let load = Arc::new(Mutex::new(Load::default()));
        let tallies = [(); 2].map(|()| Arc::new(Mutex::new(Tally::new())));
        let mut lane = |index: usize| {
            let direction = Direction::new(model, seed.wrapping_mul(2).wrapping_add(index as u64));
            make(index, direction, Arc::clone(&tallies[index]))
        };
        let mut lanes = [lane(0)?, lane(1)?];
        let (stopping, working) = (Arc::clone(&stop), Arc::clone(&load));
        let thread = std::thread::Builder::new()
            .name("delay-line".to_owned())
            .spawn(move || run(&mut lanes, &stopping, &working))?;
        Ok(Self { stop, thread: Some(thread), tallies, load })
    }

    /// What has happened from the first end to the second, and back.
    pub fn tallies(&self) -> [Tally; 2] {
        [0, 1].map(|index: usize| lock(&self.tallies[index]).clone())
    }

    /// Work of the thread, which both directions share.
    pub fn load(&self) -> Load {
        *lock(&self.load)
    }

    /// Starts counting anew.
    pub fn reset(&self) {
        for tally in &self.tallies {
            *lock(tally) = Tally::new();
        }
        lock(&self.load).reset();
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

/// The thread: turns of taking and releasing until it is stopped.
fn run<L: Lane>(lanes: &mut [L; 2], stop: &AtomicBool, load: &Mutex<Load>) {
    favour_this_thread();
    let run_delay = RunDelay::of_this_thread();
    let clock = Instant::now();
    let mut rested_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        let start_ns = nanoseconds(&clock);
        let turn = turn(lanes, &clock);
        let now_ns = nanoseconds(&clock);
        let busy_ns = if turn.count > 0 { now_ns - start_ns } else { 0 };
        lock(load).worked(now_ns, busy_ns);
        let rested = !turn.more && wait(lanes, &clock, &run_delay);
        if rested {
            rested_ns = nanoseconds(&clock);
        } else if now_ns - rested_ns > WORK_NS {
            std::thread::sleep(Duration::from_nanos(PAUSE_NS));
            rested_ns = nanoseconds(&clock);
        }
    }
}

/// What one turn did.
#[derive(Debug, Default)]
struct Turn {
    /// Packets taken and released.
    count: usize,
    /// There may be more to do at once.
    more: bool,
}

fn turn<L: Lane>(lanes: &mut [L; 2], clock: &Instant) -> Turn {
    let mut turn = Turn::default();
    for lane in lanes.iter_mut() {
        let taken = lane.take(clock);
        turn.count += taken;
        turn.more |= taken >= L::TAKE_COUNT;
    }
    for lane in lanes {
        let released = lane.release(clock);
        turn.count += released;
        turn.more |= released >= L::RELEASE_COUNT;
    }
    turn
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
fn wait<L: Lane>(lanes: &mut [L; 2], clock: &Instant, run_delay: &RunDelay) -> bool {
    let now_ns = nanoseconds(clock);
    let next_ns = lanes.iter().filter_map(Lane::next_leaves_ns).min();
    let left_ns = next_ns.map_or(STOP_CHECK_NS, |next| next.saturating_sub(now_ns));
    if lanes.iter().any(Lane::busy) {
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
    let delayed_ns = run_delay.total_ns();
    let [one, two] = &*lanes;
    let mut polled = [one, two].map(|lane| PollFd::from_borrowed_fd(lane.arrivals(), PollFlags::IN));
    let timeout = Timespec { tv_sec: 0, tv_nsec: sleep_ns.min(999_999_999) as i64 };
    // Interrupted or not: the loop looks again. An arrival ends the sleep, so
    // nothing had come before; but the thread may have waited for a core since.
    let _ = poll(&mut polled, Some(&timeout));
    let delayed_ns = run_delay.total_ns().saturating_sub(delayed_ns);
    let empty_ns = nanoseconds(clock).saturating_sub(delayed_ns);
    for lane in lanes {
        lane.seen_empty(empty_ns);
    }
    true
}
