//! One direction of a delay line: packets are taken from the sending host, and
//! released to the receiving host when they are due.

use std::{
    fs::File,
    os::{fd::BorrowedFd, unix::fs::FileExt},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use clearstream_sys::document;

use super::model::LinkModel;

/// One direction of a delay line, driven by the line's thread.
pub(super) trait Forwarder: Send {
    /// Maximum number of packets taken per turn.
    const TAKE_COUNT: usize;
    /// Maximum number of packets released per turn.
    const RELEASE_COUNT: usize;

    /// Takes packets that have arrived; returns their number.
    fn take(&mut self, clock: &Instant) -> usize;

    /// Releases packets that are due; returns their number.
    fn release(&mut self, clock: &Instant) -> usize;

    /// Returns the time at which the next packet is due.
    fn next_leaves_ns(&self) -> Option<u64>;

    /// Returns the descriptor that becomes readable when a packet arrives.
    fn arrivals(&self) -> BorrowedFd<'_>;

    /// No packet had arrived at `at_ns`: what is taken next arrived later.
    fn seen_empty(&mut self, at_ns: u64);

    /// From now on packets get this model; those that are held keep their time.
    fn change(&mut self, model: LinkModel);

    /// Whether the packet rate is so high that the thread should sleep between
    /// turns.
    fn busy(&self) -> bool;
}

/// Packet rate of releases, in windows of a millisecond.
#[derive(Debug, Default)]
pub(super) struct Pace {
    window_start_ns: u64,
    window_count: u64,
    last_window_count: u64,
}

impl Pace {
    /// Number of packets in the last window from which on the line is busy: it
    /// then sleeps between turns and leaves the core to the hosts.
    const BUSY_COUNT: u64 = 4;

    pub(super) fn count(&mut self, now_ns: u64) {
        const WINDOW_NS: u64 = 1_000_000;
        let passed_ns = now_ns - self.window_start_ns;
        if passed_ns >= WINDOW_NS {
            self.last_window_count = if passed_ns < 2 * WINDOW_NS { self.window_count } else { 0 };
            self.window_count = 0;
            self.window_start_ns = now_ns;
        }
        self.window_count += 1;
    }

    pub(super) fn busy(&self) -> bool {
        self.last_window_count.max(self.window_count) > Self::BUSY_COUNT
    }
}

/// Standing lateness: the minimum of the last 5 to 10 ms. The backlog found by
/// a preempted thread is a burst, which drains; a backlog that a line cannot
/// drain is standing (RFC 8289, section 3.1, on queues).
#[derive(Debug, Default)]
pub(super) struct Lateness {
    window_start_ns: u64,
    window_least_ns: Option<u64>,
    last_least_ns: Option<u64>,
}

impl Lateness {
    const WINDOW_NS: u64 = 5_000_000;

    /// The oldest packet is overdue by `late_ns`; 0 where none is.
    pub(super) fn observe(&mut self, now_ns: u64, late_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.window_start_ns);
        if passed_ns >= Self::WINDOW_NS {
            // After a period without turns the lateness is unknown.
            self.last_least_ns =
                if passed_ns < 2 * Self::WINDOW_NS { self.window_least_ns.take() } else { None };
            self.window_least_ns = None;
            self.window_start_ns = now_ns;
        }
        self.window_least_ns = Some(self.window_least_ns.map_or(late_ns, |least| least.min(late_ns)));
    }

    pub(super) fn lasting_ns(&self) -> u64 {
        self.last_least_ns.zip(self.window_least_ns).map_or(0, |(last, now)| last.min(now))
    }
}

/// Run delay: time for which the calling thread was runnable without a core
/// (Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`, second
/// field). It bounds its wake-up latency.
#[derive(Debug)]
pub(super) struct RunDelay(Option<File>);

impl RunDelay {
    /// Opens that of the calling thread. A kernel without scheduler statistics
    /// gives 0.
    pub(super) fn of_this_thread() -> Self {
        Self(document::open(Path::new("/proc/thread-self/schedstat")).ok())
    }

    /// Returns the total so far, in nanoseconds.
    pub(super) fn total_ns(&self) -> u64 {
        let mut text = [0; 64];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let text = read.and_then(|bytes| std::str::from_utf8(text.get(..bytes)?).ok());
        text.and_then(|text| text.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
    }
}

/// Packets that waited longer than this in front of a line are dropped: the
/// line was stalled.
pub(super) const MIN_STALL_NS: u64 = 50_000_000;

pub(super) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn nanoseconds(clock: &Instant) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_lasts_when_it_does_not_go_away() {
        const MS: u64 = 1_000_000;
        let mut lateness = Lateness::default();
        // Preempted for 60 ms, then caught up within three: a burst.
        for (at, late) in [(100 * MS, 0), (160 * MS, 50 * MS), (161 * MS, 30 * MS), (163 * MS, 0)] {
            lateness.observe(at, late);
            assert_eq!(lateness.lasting_ns(), 0, "{at}");
        }
        // Behind by 40 ms and more, turn after turn.
        for at in 164..200 {
            lateness.observe(at * MS, (at - 124) * MS);
        }
        assert!((40 * MS..80 * MS).contains(&lateness.lasting_ns()), "{lateness:?}");
        lateness.observe(200 * MS, 0);
        assert_eq!(lateness.lasting_ns(), 0);
    }

    #[test]
    fn run_delay_never_goes_back() {
        let delay = RunDelay::of_this_thread();
        let before = delay.total_ns();
        (0..100).for_each(|_| std::thread::yield_now());
        assert!(delay.total_ns() >= before);
    }
}
