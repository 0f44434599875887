//! What ranks do now (`--live`): a counter of each, which one thread of the process looks at once per second.
//!
//! A rank stores one number per operation, relaxed, in a cache line of its own: which phase it is in, and its operations
//! in that. Of ranks that are processes each has such a thread, which sends the number to rank 0 ([`Aside`]), and hears from
//! it; where one of them is not heard of for [`SILENT_TICKS`], all others learn it from rank 0's end, and each finds out
//! itself that rank 0 is silent.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use clearstream_ranks::{Aside, Tag, World};
use clearstream_schema::storage::StorageLive;

use crate::{
    Ran, StorageError,
    collective::{gather, share},
};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between what ranks that are processes tell: what rank 0 sees is that old.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// Looks after which a rank is taken for lost. They are counted, not timed: a job that is suspended as a whole counts
/// nothing.
const SILENT_TICKS: u32 = 20;
/// The same of rank 0, at the others: later, since it ends when another one is lost.
const SILENT_REPORTS: u32 = 25 * 4;
/// Tag of counters on their way to rank 0, and of its word to the others.
const COUNT: Tag = Tag(u8::MAX - 3);
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

    /// Runs `work`, and looks once per second meanwhile: `see` gets what all ranks do, or nothing between phases.
    pub(crate) fn watched<T>(
        &self,
        mut aside: Option<(Box<dyn Aside>, Vec<String>)>,
        see: OnLive<'_>,
        on_lost: &(dyn Fn() + Sync),
        work: impl FnOnce() -> T,
    ) -> T {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = || {
                let mut watch = Watch::new(self, aside.as_ref().map_or(0, |(aside, _)| aside.size()));
                let is_told = matches!(&aside, Some((aside, _)) if aside.rank() != 0);
                while wait(&is_over, if is_told { REPORT_INTERVAL } else { INTERVAL }) {
                    match &mut aside {
                        Some((aside, hosts)) if aside.rank() != 0 => {
                            watch.report(aside.as_mut());
                            if watch.find_first_silent(aside.as_mut(), hosts) {
                                on_lost();
                                return;
                            }
                        }
                        Some((aside, hosts)) => {
                            watch.tell(aside.as_mut());
                            watch.hear(aside.as_mut());
                            if watch.find_silent(aside.as_mut(), hosts) {
                                on_lost();
                                return;
                            }
                            see(watch.sample(Instant::now()).as_ref());
                        }
                        None => see(watch.sample(Instant::now()).as_ref()),
                    }
                }
            };
            // Without it there are no figures, and a lost rank is found by its connection.
            let started = thread::Builder::new().name("live".to_owned()).spawn_scoped(scope, watch);
            let _over = Over(&is_over, started.ok().map(|started| started.thread().clone()));
            work()
        })
    }
}

/// Ends the thread also where the work panics.
struct Over<'a>(&'a AtomicBool, Option<Thread>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        self.1.iter().for_each(Thread::unpark);
    }
}

/// Runs a rank of an MPI job, and looks at all of them from rank 0 meanwhile: `see` gets once per second what they do, or
/// nothing between phases. Where one is lost, rank 0 at the others, `stop` is raised, and what waits for it fails.
///
/// # Errors
/// Of the ranks.
pub fn watched_rank<T>(
    world: &mut dyn World,
    stop: &AtomicBool,
    see: OnLive<'_>,
    run: impl FnOnce(&mut dyn World, &Live) -> Result<Option<Ran<T>>, StorageError>,
) -> Result<Option<Ran<T>>, StorageError> {
    let own = world.host().to_owned();
    let mut hosts = gather(world, &own)?;
    let first = (world.rank() == 0).then_some(&own);
    let first = share(world, first)?;
    if hosts.is_empty() {
        hosts.push(first);
    }
    let aside = world.aside().map(|aside| (aside, hosts));
    let live = Live::new(1);
    let found = live.watched(aside, see, &|| stop.store(true, Relaxed), || run(world, &live));
    let error = match &found {
        Ok(ran) => ran.as_ref().and_then(|ran| ran.error.as_ref()),
        Err(error) => Some(error),
    };
    // Every other error is the same one at all ranks.
    if matches!(error.map(StorageError::root), Some(StorageError::Ranks(_))) {
        return found;
    }
    // Nobody sends any more: what has arrived is received before MPI ends.
    world.barrier()?;
    while world.receive(COUNT)?.is_some() {}
    found
}

/// Waits for the next look; false where there is none.
fn wait(is_over: &AtomicBool, time: Duration) -> bool {
    let next = Instant::now() + time;
    while !is_over.load(Relaxed) {
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::park_timeout(left);
    }
    false
}

/// What is known of all ranks.
struct Watch<'l> {
    live: &'l Live,
    /// Counters of ranks that are processes, with the looks since each was heard of.
    heard: Vec<(u64, u32)>,
    /// Looks since rank 0 was heard of, at another one.
    unheard: u32,
    /// The phase of the look before, its operations then, and when that was.
    before: (u64, u64, Instant),
}

impl<'l> Watch<'l> {
    fn new(live: &'l Live, ranks: usize) -> Self {
        Self { live, heard: vec![(0, 0); ranks], unheard: 0, before: (0, 0, Instant::now()) }
    }

    /// Tells rank 0. What cannot be sent is told by what is received.
    fn report(&self, aside: &mut dyn Aside) {
        let count = self.live.counts().first().copied().unwrap_or(0);
        let _ = aside.send(0, COUNT, count.to_le_bytes().to_vec());
    }

    /// Rank 0 tells the others that it is there.
    fn tell(&self, aside: &mut dyn Aside) {
        for rank in 1..aside.size() {
            let _ = aside.send(rank, COUNT, Vec::new());
        }
    }

    /// Whether rank 0 is lost, at another rank; what waits for it learns it.
    fn find_first_silent(&mut self, aside: &mut dyn Aside, hosts: &[String]) -> bool {
        self.unheard += 1;
        while let Ok(Some(_)) = aside.receive(COUNT) {
            self.unheard = 0;
        }
        if self.unheard < SILENT_REPORTS {
            return false;
        }
        let host = hosts.first().map_or("", String::as_str);
        aside.lose(host, &listed(&[0]), REPORT_INTERVAL * SILENT_REPORTS);
        true
    }

    /// At rank 0.
    fn hear(&mut self, aside: &mut dyn Aside) {
        self.heard.iter_mut().for_each(|(_, silent)| *silent += 1);
        let own = self.live.counts().first().copied().unwrap_or(0);
        self.heard.iter_mut().take(1).for_each(|first| *first = (own, 0));
        while let Ok(Some(message)) = aside.receive(COUNT) {
            if let (Some(place), Ok(bytes)) = (self.heard.get_mut(message.from), message.bytes.try_into()) {
                *place = (u64::from_le_bytes(bytes), 0);
            }
        }
    }

    /// Whether ranks are lost; what waits for them learns it.
    fn find_silent(&self, aside: &mut dyn Aside, hosts: &[String]) -> bool {
        let silent = |(rank, (_, ticks)): (usize, &(u64, u32))| (*ticks >= SILENT_TICKS).then_some(rank);
        let ranks: Vec<usize> = self.heard.iter().enumerate().filter_map(silent).collect();
        if ranks.is_empty() {
            return false;
        }
        let mut names: Vec<&str> = ranks.iter().filter_map(|rank| Some(hosts.get(*rank)?.as_str())).collect();
        names.dedup();
        let (names, ranks) = (names.join(", "), listed(&ranks));
        aside.lose(&names, &ranks, INTERVAL * SILENT_TICKS);
        true
    }

    /// What all ranks do.
    fn sample(&mut self, now: Instant) -> Option<StorageLive> {
        let Current { number, phase, begun } = self.live.current().clone()?;
        let counts = match self.heard.is_empty() {
            true => self.live.counts(),
            false => self.heard.iter().map(|(count, _)| *count).collect(),
        };
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

/// Numbers of ranks for people; those that follow each other by their ends.
fn listed(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let run = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    let runs: Vec<String> = runs.iter().map(run).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, runs.join(", "))
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
    use std::{collections::VecDeque, sync::Arc};

    use clearstream_ranks::{Message, RankError};

    use super::*;

    fn phase(stonewall: Option<Duration>) -> LivePhase {
        LivePhase { name: "write".to_owned(), iteration: 1, expected: 1000, bytes_each: 4096, stonewall }
    }

    #[test]
    fn a_second_has_what_was_done_in_it_by_the_ranks_of_the_phase() {
        let live = Live::new(3);
        let mut watch = Watch::new(&live, 0);
        assert_eq!(watch.sample(Instant::now()), None, "between phases");
        let count = live.begin(1, 6, || phase(None));
        count.set(500);
        let first = live.begin(0, 7, || phase(None));
        let begun = Instant::now();
        first.set(100);
        let count = live.begin(1, 7, || phase(None));
        count.set(100);
        let one = watch.sample(begun + Duration::from_secs(1)).unwrap();
        assert_eq!((one.operation_count, one.bytes, one.rank_count, one.iteration), (200, 819_200, 2, 1));
        assert!((one.operations_per_second / 200.0 - 1.0).abs() < 0.01, "{one:?}");
        let left = one.left_ns.unwrap() as f64 / 1e9;
        assert!((left / 4.0 - 1.0).abs() < 0.01, "800 at 200 each second: {left}");
        live.begin(2, 7, || phase(None)).set(50);
        let two = watch.sample(begun + Duration::from_secs(2)).unwrap();
        assert!((two.operations_per_second / 50.0 - 1.0).abs() < 0.01, "{two:?}");
        assert!((two.bandwidth_bps / (50.0 * 4096.0 * 8.0) - 1.0).abs() < 0.01, "{two:?}");
        live.end();
        assert_eq!(watch.sample(Instant::now()), None);
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

    #[test]
    fn rank_0_is_lost_to_the_others_when_it_says_nothing() {
        let live = Live::new(1);
        let lost = Arc::default();
        let mut aside = Fake(VecDeque::new(), Arc::clone(&lost));
        let mut watch = Watch::new(&live, 4);
        // It tells all but itself.
        watch.tell(&mut aside);
        assert_eq!(aside.0.len(), 3);
        for look in 1..=10 + SILENT_REPORTS {
            if look <= 10 {
                aside.send(0, COUNT, Vec::new()).unwrap();
            }
            let is_lost = watch.find_first_silent(&mut aside, &["a".to_owned()]);
            assert_eq!(is_lost, look == 10 + SILENT_REPORTS, "{look}");
        }
        assert_eq!(*lost.lock().unwrap(), ["a rank 0 25s"]);
    }

    /// Messages that wait, and who was lost.
    struct Fake(VecDeque<Message>, Arc<Mutex<Vec<String>>>);

    impl Aside for Fake {
        fn rank(&self) -> usize {
            0
        }
        fn size(&self) -> usize {
            4
        }
        fn send(&mut self, from: usize, _: Tag, bytes: Vec<u8>) -> Result<(), RankError> {
            self.0.push_back(Message { from, bytes });
            Ok(())
        }
        fn receive(&mut self, _: Tag) -> Result<Option<Message>, RankError> {
            Ok(self.0.pop_front())
        }
        fn lose(&mut self, host: &str, ranks: &str, silence: Duration) {
            self.1.lock().unwrap().push(format!("{host} {ranks} {silence:?}"));
        }
    }

    #[test]
    fn ranks_that_are_not_heard_of_are_lost_and_others_are_not() {
        let live = Live::new(1);
        let first = live.begin(0, 1, || phase(None));
        first.set(5);
        let lost = Arc::default();
        let mut aside = Fake(VecDeque::new(), Arc::clone(&lost));
        let hosts = ["a", "a", "b", "b"].map(str::to_owned);
        let mut watch = Watch::new(&live, 4);
        for tick in 1..=SILENT_TICKS {
            for from in [1, 3] {
                let bytes = ((1_u64 << COUNT_BITS) + 10).to_le_bytes().to_vec();
                if from == 1 || tick < 5 {
                    aside.send(from, COUNT, bytes).unwrap();
                }
            }
            watch.hear(&mut aside);
            assert_eq!(watch.find_silent(&mut aside, &hosts), tick == SILENT_TICKS, "{tick}");
            let sample = watch.sample(Instant::now()).unwrap();
            assert_eq!((sample.operation_count, sample.rank_count), (25, 3));
        }
        assert_eq!(*lost.lock().unwrap(), ["b rank 2 20s"]);
        assert_eq!(listed(&[2, 3, 4, 7]), "ranks 2 to 4, 7");
    }
}
