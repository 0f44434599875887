//! Whether the ranks of a job are there, while they work: each process has a thread for it, which tells rank 0 a number and
//! hears from it ([`Aside`]). Where one is not heard of, rank 0 ends and all others learn it by that; that rank 0 is silent
//! each finds out itself.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use crate::{Aside, RankError, Tag, World};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between what the others tell rank 0: what that sees is that old.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// Looks after which a rank is taken for lost. They are counted, not timed: a job that is suspended as a whole counts
/// nothing.
const SILENT_TICKS: u32 = 20;
/// The same of rank 0, at the others: later, since it ends when another one is lost.
const SILENT_REPORTS: u32 = 25 * 4;
/// Tag of numbers on their way to rank 0, and of its word to the others.
const COUNT: Tag = Tag(u8::MAX - 3);

/// Looks on once per second while a rank works: at every rank's number where rank 0 is, at the own one where ranks are no
/// processes, and else not.
pub type OnNumbers<'a> = &'a mut (dyn FnMut(&[u64]) + Send);

/// Runs `work` of a rank, and a thread beside it that looks after the other ranks: `own` is the number that this rank
/// tells, `see` looks on. Where a rank is lost, all that `work` does with others fails ([`RankError::Silent`]), and
/// `on_lost` is called.
///
/// # Errors
/// [`RankError`] when a rank was lost before.
pub fn watched<T>(
    world: &mut dyn World,
    own: &(dyn Fn() -> u64 + Sync),
    see: OnNumbers<'_>,
    on_lost: &(dyn Fn() + Sync),
    work: impl FnOnce(&mut dyn World) -> T,
) -> Result<T, RankError> {
    let host = world.host().as_bytes().to_vec();
    let all = world.gather(host.clone())?;
    let first = world.broadcast(host)?;
    let hosts = if all.is_empty() { vec![first] } else { all };
    let hosts = hosts.iter().map(|host| String::from_utf8_lossy(host).into_owned()).collect();
    let mut watch = world.aside().map(|aside| Watch::new(aside, hosts));
    let interval = watch.as_ref().map_or(INTERVAL, Watch::interval);
    let look = || match &mut watch {
        Some(watch) => {
            let is_whole = watch.look(own(), see);
            if !is_whole {
                on_lost();
            }
            is_whole
        }
        None => {
            see(&[own()]);
            true
        }
    };
    Ok(beside(interval, look, || work(world)))
}

/// Receives what others have told meanwhile, before a rank leaves: every rank calls it.
///
/// # Errors
/// [`RankError`] when a rank was lost.
pub fn unwatch(world: &mut dyn World) -> Result<(), RankError> {
    // Nobody tells any more.
    world.barrier()?;
    while world.receive(COUNT)?.is_some() {}
    Ok(())
}

/// Runs `work`, and `look` in a thread beside it after each interval, until it says that there is nothing more to see.
pub fn beside<T>(interval: Duration, mut look: impl FnMut() -> bool + Send, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looks = || while wait(&is_over, interval) && look() {};
        // Without it there are no figures, and a lost rank is found by its connection.
        let started = thread::Builder::new().name("live".to_owned()).spawn_scoped(scope, looks);
        let _over = Over(&is_over, started.ok().map(|started| started.thread().clone()));
        work()
    })
}

/// Ends the thread also where the work panics.
struct Over<'a>(&'a AtomicBool, Option<Thread>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        self.1.iter().for_each(Thread::unpark);
    }
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

/// What a rank knows of the others.
struct Watch {
    aside: Box<dyn Aside>,
    /// Of every rank at rank 0, of that at the others.
    hosts: Vec<String>,
    /// At rank 0 every rank's number.
    numbers: Vec<u64>,
    /// And the looks since each was heard of.
    silent: Vec<u32>,
    /// Looks since rank 0 was heard of, at another one.
    unheard: u32,
}

impl Watch {
    fn new(aside: Box<dyn Aside>, hosts: Vec<String>) -> Self {
        let size = aside.size();
        Self { aside, hosts, numbers: vec![0; size], silent: vec![0; size], unheard: 0 }
    }

    fn interval(&self) -> Duration {
        if self.aside.rank() == 0 { INTERVAL } else { REPORT_INTERVAL }
    }

    /// Tells and hears; false where a rank is lost, and what waits for it learns that. What cannot be sent is told by what
    /// is received.
    fn look(&mut self, own: u64, see: OnNumbers<'_>) -> bool {
        if self.aside.rank() != 0 {
            let _ = self.aside.send(0, COUNT, own.to_le_bytes().to_vec());
            return self.first_is_there();
        }
        for rank in 1..self.aside.size() {
            let _ = self.aside.send(rank, COUNT, Vec::new());
        }
        self.hear(own);
        let are_there = self.others_are_there();
        if are_there {
            see(&self.numbers);
        }
        are_there
    }

    /// At another rank.
    fn first_is_there(&mut self) -> bool {
        self.unheard += 1;
        while let Ok(Some(_)) = self.aside.receive(COUNT) {
            self.unheard = 0;
        }
        if self.unheard < SILENT_REPORTS {
            return true;
        }
        let host = self.hosts.first().map_or("", String::as_str);
        self.aside.lose(host, &listed(&[0]), REPORT_INTERVAL * SILENT_REPORTS);
        false
    }

    /// At rank 0.
    fn hear(&mut self, own: u64) {
        self.silent.iter_mut().for_each(|looks| *looks += 1);
        let mut told = |from: usize, number: u64| {
            if let (Some(place), Some(looks)) = (self.numbers.get_mut(from), self.silent.get_mut(from)) {
                (*place, *looks) = (number, 0);
            }
        };
        told(0, own);
        while let Ok(Some(message)) = self.aside.receive(COUNT) {
            if let Ok(bytes) = message.bytes.try_into() {
                told(message.from, u64::from_le_bytes(bytes));
            }
        }
    }

    /// At rank 0.
    fn others_are_there(&mut self) -> bool {
        let silent = |(rank, looks): (usize, &u32)| (*looks >= SILENT_TICKS).then_some(rank);
        let ranks: Vec<usize> = self.silent.iter().enumerate().filter_map(silent).collect();
        if ranks.is_empty() {
            return true;
        }
        let mut names: Vec<&str> =
            ranks.iter().filter_map(|rank| Some(self.hosts.get(*rank)?.as_str())).collect();
        names.dedup();
        self.aside.lose(&names.join(", "), &listed(&ranks), INTERVAL * SILENT_TICKS);
        false
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

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{Arc, Mutex, PoisonError},
    };

    use super::*;
    use crate::Message;

    /// Messages that wait, who was lost, and how many were sent.
    type Wired = (VecDeque<Message>, Vec<String>, usize);

    #[derive(Clone, Default)]
    struct Wire(Arc<Mutex<Wired>>);

    impl Wire {
        fn arrives(&self, from: usize, bytes: Vec<u8>) {
            self.with(|(waiting, _, _)| waiting.push_back(Message { from, bytes }));
        }

        fn with<T>(&self, act: impl FnOnce(&mut Wired) -> T) -> T {
            act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    struct Fake(usize, Wire);

    impl Aside for Fake {
        fn rank(&self) -> usize {
            self.0
        }
        fn size(&self) -> usize {
            4
        }
        fn send(&mut self, _: usize, _: Tag, _: Vec<u8>) -> Result<(), RankError> {
            self.1.with(|(_, _, sent)| *sent += 1);
            Ok(())
        }
        fn receive(&mut self, _: Tag) -> Result<Option<Message>, RankError> {
            Ok(self.1.with(|(waiting, _, _)| waiting.pop_front()))
        }
        fn lose(&mut self, host: &str, ranks: &str, silence: Duration) {
            self.1.with(|(_, lost, _)| lost.push(format!("{host} {ranks} {silence:?}")));
        }
    }

    fn watch(rank: usize, hosts: &[&str]) -> (Watch, Wire) {
        let wire = Wire::default();
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        (Watch::new(Box::new(Fake(rank, wire.clone())), hosts), wire)
    }

    #[test]
    fn rank_0_is_lost_to_the_others_when_it_says_nothing() {
        let (mut watch, wire) = watch(3, &["a"]);
        for look in 1..=10 + SILENT_REPORTS {
            if look <= 10 {
                wire.arrives(0, Vec::new());
            }
            let is_whole = watch.look(1, &mut |_| panic!("the others see nothing"));
            assert_eq!(!is_whole, look == 10 + SILENT_REPORTS, "{look}");
        }
        wire.with(|(_, lost, sent)| {
            assert_eq!(*lost, ["a rank 0 25s"]);
            assert_eq!(*sent, 10 + SILENT_REPORTS as usize, "each look is told");
        });
    }

    #[test]
    fn ranks_that_are_not_heard_of_are_lost_and_others_are_not() {
        let (mut watch, wire) = watch(0, &["a", "a", "b", "b"]);
        for tick in 1..=SILENT_TICKS {
            for from in [1, 3] {
                if from == 1 || tick < 5 {
                    wire.arrives(from, 10_u64.to_le_bytes().to_vec());
                }
            }
            let mut seen = Vec::new();
            let is_whole = watch.look(5, &mut |numbers| seen = numbers.to_vec());
            assert_eq!(!is_whole, tick == SILENT_TICKS, "{tick}");
            assert!(!is_whole || seen == [5, 10, 0, 10], "{tick}: {seen:?}");
        }
        wire.with(|(_, lost, sent)| {
            assert_eq!(*lost, ["b rank 2 20s"]);
            assert_eq!(*sent, 3 * SILENT_TICKS as usize, "all but itself");
        });
        assert_eq!(listed(&[2, 3, 4, 7]), "ranks 2 to 4, 7");
    }
}
