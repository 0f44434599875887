//! What ranks do now (`--live`): a counter of each, which one thread of the process looks at once per second.
//!
//! A rank stores one number per operation, relaxed, in a cache line of its own: which phase it is in, and its operations
//! in that. Of ranks that are processes each tells it to rank 0 ([`ranks::watched`]).

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use clearstream_ranks::{self as ranks, World};
use clearstream_schema::storage::StorageLive;

use crate::{Ran, StorageError};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bits of a counter that are operations; those above are the number of the phase.
const COUNT_BITS: u32 = 48;

/// What this process' ranks do now.
#[derive(Debug)]
pub struct Live {
    counters: Box<[Counter]>,
    current: Mutex<Option<Current>>,
}

/// Who looks on: gets what all ranks do, or nothing between phases.
pub type OnLive<'a> = &'a (dyn Fn(Option<&StorageLive>) + Sync);

/// Alone in its cache line, and the one that is fetched with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// A phase that is about to begin.
#[derive(Debug, Clone)]
pub(crate) struct LivePhase {
    /// As in the document: `write`, `file create`.
    pub(crate) name: String,
    pub(crate) iteration: u32,
    /// Operations of all ranks, if nothing ends it early.
    pub(crate) expected: u64,
    /// Bytes of one of them.
    pub(crate) bytes_each: u64,
    pub(crate) stonewall: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Current {
    /// All ranks number phases alike.
    number: u64,
    phase: LivePhase,
    begun: Instant,
}

/// Where a rank counts the operations of a phase.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count<'a> {
    counter: &'a AtomicU64,
    base: u64,
}

impl Count<'_> {
    /// So many operations are done.
    pub(crate) fn set(&self, done: u64) {
        self.counter.store(self.base + done, Relaxed);
    }
}

impl Live {
    /// For so many ranks of this process.
    pub(crate) fn new(ranks: usize) -> Self {
        let counters = (0..ranks.max(1)).map(|_| Counter::default()).collect();
        Self { counters, current: Mutex::default() }
    }

    /// A rank enters its phase of this number, from 1. Rank 0 says what it is.
    pub(crate) fn begin(&self, rank: usize, number: u64, phase: impl FnOnce() -> LivePhase) -> Count<'_> {
        if rank == 0 {
            *self.current() = Some(Current { number, phase: phase(), begun: Instant::now() });
        }
        let first = &self.counters[0];
        let Counter(counter) = self.counters.get(rank).unwrap_or(first);
        let count = Count { counter, base: number << COUNT_BITS };
        count.set(0);
        count
    }

    /// Rank 0 has the phase behind it.
    pub(crate) fn end(&self) {
        *self.current() = None;
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        // It is whole after each change.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> Vec<u64> {
        self.counters.iter().map(|Counter(counter)| counter.load(Relaxed)).collect()
    }

    /// Runs `work` of ranks that are threads, and looks once per second meanwhile: `see` gets what all ranks do, or nothing
    /// between phases.
    pub(crate) fn watched<T>(&self, see: OnLive<'_>, work: impl FnOnce() -> T) -> T {
        let mut watch = Watch::new(self);
        let look = || {
            see(watch.sample(self.counts(), Instant::now()).as_ref());
            true
        };
        ranks::beside(INTERVAL, look, work)
    }
}

/// Runs a rank of an MPI job, and looks at all of them from rank 0 meanwhile: `see` gets once per second what they do, or
/// nothing between phases. Where one is lost, rank 0 at the others, `stop` is raised, and what waits for it fails.
///
/// # Errors
/// Of the ranks. What was measured before one was lost is kept.
pub fn watched_rank<T>(
    world: &mut dyn World,
    stop: &AtomicBool,
    see: OnLive<'_>,
    run: impl FnOnce(&mut dyn World, &Live) -> Result<Option<Ran<T>>, StorageError>,
) -> Result<Option<Ran<T>>, StorageError> {
    let live = Live::new(1);
    let own = || live.counts().first().copied().unwrap_or(0);
    let mut watch = Watch::new(&live);
    let mut seen = |counts: &[u64]| see(watch.sample(counts.to_vec(), Instant::now()).as_ref());
    let on_lost = || stop.store(true, Relaxed);
    ranks::watched(world, &own, &mut seen, &on_lost, |world| {
        let found = run(world, &live);
        // Every other error is the same one at all ranks. They are watched until all are done.
        let together = if has_lost_ranks(&found) { Ok(()) } else { world.barrier() };
        match (together, found) {
            (Ok(()), found) => found,
            (Err(error), Ok(Some(ran))) => Ok(Some(Ran { error: Some(error.into()), ..ran })),
            (Err(error), _) => Err(error.into()),
        }
    })?
}

/// Whether a rank lost others, and cannot leave the job with them.
pub fn has_lost_ranks<T>(found: &Result<Option<Ran<T>>, StorageError>) -> bool {
    let error = match found {
        Ok(ran) => ran.as_ref().and_then(|ran| ran.error.as_ref()),
        Err(error) => Some(error),
    };
    matches!(error.map(StorageError::root), Some(StorageError::Ranks(_)))
}

/// What was seen.
struct Watch<'l> {
    live: &'l Live,
    /// The phase of the look before, its operations then, and when that was.
    before: (u64, u64, Instant),
}

impl<'l> Watch<'l> {
    fn new(live: &'l Live) -> Self {
        Self { live, before: (0, 0, Instant::now()) }
    }

    /// What all ranks do.
    fn sample(&mut self, counts: Vec<u64>, now: Instant) -> Option<StorageLive> {
        let Current { number, phase, begun } = self.live.current().clone()?;
        let in_phase = counts.into_iter().filter(|count| count >> COUNT_BITS == number);
        let (ranks, done) = in_phase
            .fold((0, 0), |(ranks, done), count| (ranks + 1, done + (count & ((1 << COUNT_BITS) - 1))));
        let (of, before, since) = if self.before.0 == number { self.before } else { (number, 0, begun) };
        self.before = (of, done, now);
        let seconds = now.saturating_duration_since(since).as_secs_f64().max(1e-3);
        let rate = done.saturating_sub(before) as f64 / seconds;
        let elapsed = now.saturating_duration_since(begun);
        Some(StorageLive {
            iteration: phase.iteration,
            elapsed_ns: nanoseconds(elapsed),
            operation_count: done,
            bytes: done.saturating_mul(phase.bytes_each),
            operations_per_second: rate,
            bandwidth_bps: rate * phase.bytes_each as f64 * 8.0,
            expected_count: phase.expected,
            left_ns: left(&phase, done, elapsed).map(nanoseconds),
            rank_count: ranks,
            phase: phase.name,
        })
    }
}

/// By the mean rate of the phase, or until the stonewall; what comes behind that is not known.
fn left(phase: &LivePhase, done: u64, elapsed: Duration) -> Option<Duration> {
    let more = phase.expected.saturating_sub(done) as f64;
    let by_rate = Duration::try_from_secs_f64(elapsed.as_secs_f64() * more / done as f64).ok();
    match phase.stonewall {
        Some(wall) => {
            let to_wall = wall.checked_sub(elapsed)?;
            Some(by_rate.map_or(to_wall, |by_rate| by_rate.min(to_wall)))
        }
        None => by_rate,
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(stonewall: Option<Duration>) -> LivePhase {
        LivePhase { name: "write".to_owned(), iteration: 1, expected: 1000, bytes_each: 4096, stonewall }
    }

    #[test]
    fn a_second_has_what_was_done_in_it_by_the_ranks_of_the_phase() {
        let live = Live::new(3);
        let mut watch = Watch::new(&live);
        assert_eq!(watch.sample(live.counts(), Instant::now()), None, "between phases");
        let count = live.begin(1, 6, || phase(None));
        count.set(500);
        let first = live.begin(0, 7, || phase(None));
        let begun = Instant::now();
        first.set(100);
        let count = live.begin(1, 7, || phase(None));
        count.set(100);
        let one = watch.sample(live.counts(), begun + Duration::from_secs(1)).unwrap();
        assert_eq!((one.operation_count, one.bytes, one.rank_count, one.iteration), (200, 819_200, 2, 1));
        assert!((one.operations_per_second / 200.0 - 1.0).abs() < 0.01, "{one:?}");
        let left = one.left_ns.unwrap() as f64 / 1e9;
        assert!((left / 4.0 - 1.0).abs() < 0.01, "800 at 200 each second: {left}");
        live.begin(2, 7, || phase(None)).set(50);
        let two = watch.sample(live.counts(), begun + Duration::from_secs(2)).unwrap();
        assert!((two.operations_per_second / 50.0 - 1.0).abs() < 0.01, "{two:?}");
        assert!((two.bandwidth_bps / (50.0 * 4096.0 * 8.0) - 1.0).abs() < 0.01, "{two:?}");
        live.end();
        assert_eq!(watch.sample(live.counts(), Instant::now()), None);
    }

    #[test]
    fn the_time_left_ends_at_the_stonewall_and_is_unknown_behind_it() {
        let second = Duration::from_secs;
        let wall = phase(Some(second(10)));
        assert_eq!(left(&wall, 1, second(4)), Some(second(6)));
        assert_eq!(left(&wall, 900, second(9)), Some(second(1)));
        assert_eq!(left(&wall, 900, second(11)), None);
        assert_eq!(left(&phase(None), 0, second(1)), None);
    }
}
