//! Relay thread of a delay line: takes packets from one host, holds them, and
//! releases them to the other host when they are due.

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
    copying::CopyingForwarder,
    counters::{Counters, Load},
    forwarder::{Forwarder, RunDelay, lock, nanoseconds},
    held::QueueForwarder,
    model::{Direction, LinkModel},
};

/// Time before a departure for which the thread busy-waits: an idle core needs
/// tens of microseconds to wake up, and a kernel without preemption may finish
/// other work first.
const SPIN_NS: u64 = 300_000;
/// Maximum sleep of a busy line.
const BUSY_SLEEP_NS: u64 = 40_000;
/// Maximum work without a pause. A real-time thread that uses all of a core is
/// throttled by the kernel for 50 ms of each second
/// (`kernel.sched_rt_runtime_us`, and the fair server since Linux 6.12); many
/// short pauses of the same total are better.
const WORK_NS: u64 = 1_000_000;
const PAUSE_NS: u64 = 60_000;
/// Interval at which an idle thread polls the stop flag.
const STOP_CHECK_NS: u64 = 100_000_000;

/// Relay of both directions of a link. Dropping it stops them.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    counters: [Arc<Mutex<Counters>>; 2],
    load: Arc<Mutex<Load>>,
    /// Model that the thread has not taken over yet.
    changed: Arc<Mutex<Option<LinkModel>>>,
}

impl Relay {
    /// Starts to relay packets between two devices, with the same model in both
    /// directions. The directions have separate random sequences.
    pub fn start([one, two]: [Tun; 2], model: LinkModel, seed: u64) -> io::Result<Self> {
        let (one, two) = (Arc::new(one), Arc::new(two));
        Self::start_with(model, seed, |index, direction, counters| {
            let (one, two) = (Arc::clone(&one), Arc::clone(&two));
            let ends = if index == 0 { [one, two] } else { [two, one] };
            CopyingForwarder::new(ends, direction, &model, counters)
        })
    }

    /// Starts to release packets of two netfilter queues, one for each
    /// direction. Losses within GSO packets are not possible with it: the model
    /// must have none.
    pub fn start_held(queues: [PacketQueue; 2], model: LinkModel, seed: u64) -> io::Result<Self> {
        let mut queues = queues.map(Some);
        Self::start_with(model, seed, |index, direction, counters| {
            let queue = queues[index].take().ok_or(io::ErrorKind::NotFound)?;
            Ok(QueueForwarder::new(queue, direction, &model, counters))
        })
    }

    fn start_with<L: Forwarder + 'static>(
        model: LinkModel,
        seed: u64,
        mut make: impl FnMut(usize, Direction, Arc<Mutex<Counters>>) -> io::Result<L>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let load = Arc::new(Mutex::new(Load::default()));
        let counters = [(); 2].map(|()| Arc::new(Mutex::new(Counters::new())));
        let mut forwarder = |index: usize| {
            let direction = Direction::new(model, seed.wrapping_mul(2).wrapping_add(index as u64));
            make(index, direction, Arc::clone(&counters[index]))
        };
        let mut forwarders = [forwarder(0)?, forwarder(1)?];
        let (stopping, working) = (Arc::clone(&stop), Arc::clone(&load));
        let changed = Arc::new(Mutex::new(None));
        let changing = Arc::clone(&changed);
        let thread = std::thread::Builder::new()
            .name("delay-line".to_owned())
            .spawn(move || run(&mut forwarders, &stopping, &working, &changing))?;
        Ok(Self { stop, thread: Some(thread), counters, load, changed })
    }

    /// Returns the counters from the first end to the second, and back.
    pub fn counters(&self) -> [Counters; 2] {
        [0, 1].map(|index: usize| lock(&self.counters[index]).clone())
    }

    /// Returns the load of the thread, which serves both directions.
    pub fn load(&self) -> Load {
        *lock(&self.load)
    }

    /// Packets that arrive from now on get this model in both directions.
    pub fn change(&self, model: LinkModel) {
        *lock(&self.changed) = Some(model);
    }

    /// Resets the counters.
    pub fn reset(&self) {
        for counters in &self.counters {
            *lock(counters) = Counters::new();
        }
        lock(&self.load).reset();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic; there is nothing left to
            // clean up.
            let _ = thread.join();
        }
    }
}

/// Runs the thread: turns of taking and releasing until it is stopped.
fn run<L: Forwarder>(
    forwarders: &mut [L; 2],
    stop: &AtomicBool,
    load: &Mutex<Load>,
    changed: &Mutex<Option<LinkModel>>,
) {
    raise_priority();
    let run_delay = RunDelay::of_this_thread();
    let clock = Instant::now();
    let mut rested_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Some(model) = lock(changed).take() {
            forwarders.iter_mut().for_each(|forwarder| forwarder.change(model));
        }
        let start_ns = nanoseconds(&clock);
        let turn = turn(forwarders, &clock);
        let now_ns = nanoseconds(&clock);
        let busy_ns = if turn.count > 0 { now_ns - start_ns } else { 0 };
        lock(load).worked(now_ns, busy_ns);
        let rested = !turn.more && wait(forwarders, &clock, &run_delay);
        if rested {
            rested_ns = nanoseconds(&clock);
        } else if now_ns - rested_ns > WORK_NS {
            std::thread::sleep(Duration::from_nanos(PAUSE_NS));
            rested_ns = nanoseconds(&clock);
        }
    }
}

/// Result of one turn.
#[derive(Debug, Default)]
struct Turn {
    /// Packets taken and released.
    count: usize,
    /// Whether there may be more to do at once.
    more: bool,
}

fn turn<L: Forwarder>(forwarders: &mut [L; 2], clock: &Instant) -> Turn {
    let mut turn = Turn::default();
    for forwarder in forwarders.iter_mut() {
        let taken = forwarder.take(clock);
        turn.count += taken;
        turn.more |= taken >= L::TAKE_COUNT;
    }
    for forwarder in forwarders {
        let released = forwarder.release(clock);
        turn.count += released;
        turn.more |= released >= L::RELEASE_COUNT;
    }
    turn
}

/// Sets timer slack and priority of the thread. A keeper is root and permitted;
/// otherwise the line is later, and its counters show it.
fn raise_priority() {
    let _ = make_timers_exact();
    if make_real_time().is_err() {
        // A session is a scheduling group of its own (sched(7), autogroup):
        // without raising its weight, niceness counts among our threads only.
        let _ = rustix::process::setpriority_process(None, -20);
        let _ = std::fs::write("/proc/self/autogroup", "-20");
    }
}

/// Sleeps until a packet arrives or is about to leave; false without sleep when
/// one is about to leave.
fn wait<L: Forwarder>(forwarders: &mut [L; 2], clock: &Instant, run_delay: &RunDelay) -> bool {
    let now_ns = nanoseconds(clock);
    let next_ns = forwarders.iter().filter_map(Forwarder::next_leaves_ns).min();
    let left_ns = next_ns.map_or(STOP_CHECK_NS, |next| next.saturating_sub(now_ns));
    if forwarders.iter().any(Forwarder::busy) {
        // Packets that arrive meanwhile wait in the device; they are read
        // together.
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
    let [one, two] = &*forwarders;
    let mut polled =
        [one, two].map(|forwarder| PollFd::from_borrowed_fd(forwarder.arrivals(), PollFlags::IN));
    let timeout = Timespec { tv_sec: 0, tv_nsec: sleep_ns.min(999_999_999) as i64 };
    // Interrupted or not: the loop polls again. An arrival ends the sleep, so
    // none had arrived before; but the thread may have waited for a core since.
    let _ = poll(&mut polled, Some(&timeout));
    let delayed_ns = run_delay.total_ns().saturating_sub(delayed_ns);
    let empty_ns = nanoseconds(clock).saturating_sub(delayed_ns);
    for forwarder in forwarders {
        forwarder.seen_empty(empty_ns);
    }
    true
}
