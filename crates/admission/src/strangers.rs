//! Connections that have shown no right yet: a bounded number for a bounded time, in which a flood displaces its
//! own connections rather than others'. No I/O and no clock.
//!
//! A proof takes some round trips, so over a long path displacing the oldest would lock everybody out under a
//! flood of some hundred connections a second. Here the victim is chosen at random (as sshd's MaxStartups does,
//! sshd_config(5)), among those of the source that has the most: a flood from few addresses displaces its own, one
//! from many displaces each connection with a probability of one in [`Limits::strangers`] per newcomer.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::RandomState},
    hash::BuildHasher as _,
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use rustix::process::{Resource, getrlimit};

use crate::{AcceptFault, Source, fault::PAUSE};

/// Share of the process's descriptors that strangers at one listener may have: one in so many.
const DESCRIPTOR_SHARE: u64 = 4;

/// How many, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections without a proof of right, in all.
    pub strangers: usize,
    /// Of these, connections of one source.
    pub per_source: usize,
    /// Connections that have shown their right.
    pub known: usize,
    /// Time until the proof, however its bytes trickle in.
    pub time: Duration,
}

impl Limits {
    /// Limits of a service for many: one source has no more than half of the places. Fewer where the process may
    /// not have four times as many descriptors (RLIMIT_NOFILE, getrlimit(2)).
    pub fn of_service(strangers: usize, known: usize, time: Duration) -> Self {
        let limits = Self::of_test(strangers, known, time);
        Self { per_source: (limits.strangers / 2).max(1), ..limits }
    }

    /// Limits of the port of one test, whose connections come from one source.
    pub fn of_test(strangers: usize, known: usize, time: Duration) -> Self {
        let share = usize::try_from(descriptors() / DESCRIPTOR_SHARE).unwrap_or(usize::MAX);
        let strangers = strangers.min(share).max(2);
        Self { strangers, per_source: strangers, known, time }
    }
}

/// Descriptors that this process may have.
pub(crate) fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Result of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// From now on it is known: it is not displaced, and has no deadline here.
    Known,
    /// It was displaced or its time was over.
    TooLate,
    /// As many are known as may be; it stays a stranger.
    Full,
}

/// What to do after accept(2) failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepting {
    /// Go on with something else: nothing waits.
    Later,
    /// Accept the next one.
    Again,
    /// Close the connection of this number, then accept the next one.
    Close(u64),
    /// Nothing could be closed: do not accept or wait for connections until [`Strangers::is_accepting`].
    Pause,
}

#[derive(Debug)]
struct Stranger {
    source: Source,
    until: Instant,
}

/// Table of connections, by numbers that their listener gives.
#[derive(Debug)]
pub struct Strangers {
    limits: Limits,
    strangers: BTreeMap<u64, Stranger>,
    counts: HashMap<Source, usize>,
    known: HashSet<u64>,
    paused_until: Option<Instant>,
    random: RandomState,
    drawn: u64,
}

impl Strangers {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            strangers: BTreeMap::new(),
            counts: HashMap::new(),
            known: HashSet::new(),
            paused_until: None,
            random: RandomState::new(),
            drawn: 0,
        }
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Connections without a proof.
    pub fn len(&self) -> usize {
        self.strangers.len()
    }

    /// Whether nobody is without a proof.
    pub fn is_empty(&self) -> bool {
        self.strangers.is_empty()
    }

    /// A connection was accepted. Returns the number of the one that it displaces, which is to be closed: one of its
    /// own source where that has its share, else one of the source that has the most.
    pub fn enter(&mut self, number: u64, address: IpAddr, now: Instant) -> Option<u64> {
        let source = Source::from(address);
        let own = self.counts.get(&source).copied().unwrap_or(0);
        let displaced = if own >= self.limits.per_source {
            self.displace_of(&[source])
        } else if self.strangers.len() >= self.limits.strangers {
            self.displace()
        } else {
            None
        };
        let stranger = Stranger { source, until: now + self.limits.time };
        if self.strangers.insert(number, stranger).is_none() {
            *self.counts.entry(source).or_default() += 1;
        }
        displaced
    }

    /// A connection has shown its right.
    pub fn prove(&mut self, number: u64) -> Proof {
        if !self.strangers.contains_key(&number) {
            return if self.known.contains(&number) { Proof::Known } else { Proof::TooLate };
        }
        if self.known.len() >= self.limits.known {
            return Proof::Full;
        }
        self.remove(number);
        self.known.insert(number);
        Proof::Known
    }

    /// A connection is closed, or is somebody else's from now on.
    pub fn leave(&mut self, number: u64) {
        self.remove(number);
        self.known.remove(&number);
    }

    /// A connection whose time is over: it is to be closed. Call it until there is none.
    pub fn overdue(&mut self, now: Instant) -> Option<u64> {
        let number =
            self.strangers.iter().find(|(_, stranger)| stranger.until <= now).map(|(number, _)| *number)?;
        self.remove(number);
        Some(number)
    }

    /// When somebody's time is over, or a pause.
    pub fn deadline(&self) -> Option<Instant> {
        // Nearly always the first, which is the oldest; numbers need not be in the order of time.
        let strangers = self.strangers.values().map(|stranger| stranger.until).min();
        strangers.into_iter().chain(self.paused_until).min()
    }

    /// accept(2) failed.
    pub fn refused(&mut self, error: &io::Error, now: Instant) -> Accepting {
        match AcceptFault::of(error) {
            AcceptFault::Empty => Accepting::Later,
            AcceptFault::Gone => Accepting::Again,
            AcceptFault::Exhausted => match self.displace() {
                Some(number) => Accepting::Close(number),
                None => {
                    self.paused_until = Some(now + PAUSE);
                    Accepting::Pause
                }
            },
        }
    }

    /// Whether connections are to be waited for, and accepted.
    pub fn is_accepting(&mut self, now: Instant) -> bool {
        self.paused_until = self.paused_until.filter(|until| now < *until);
        self.paused_until.is_none()
    }

    /// Removes one at random of the source, or the sources, with the most.
    fn displace(&mut self) -> Option<u64> {
        let most = self.counts.values().max().copied()?;
        let sources: Vec<Source> =
            self.counts.iter().filter(|(_, count)| **count == most).map(|(source, _)| *source).collect();
        self.displace_of(&sources)
    }

    fn displace_of(&mut self, sources: &[Source]) -> Option<u64> {
        let candidates: Vec<u64> = self
            .strangers
            .iter()
            .filter(|(_, stranger)| sources.contains(&stranger.source))
            .map(|(number, _)| *number)
            .collect();
        self.drawn += 1;
        let random = self.random.hash_one(self.drawn);
        let chosen = *candidates.get((random % candidates.len().max(1) as u64) as usize)?;
        self.remove(chosen);
        Some(chosen)
    }

    fn remove(&mut self, number: u64) {
        let Some(Stranger { source, .. }) = self.strangers.remove(&number) else { return };
        if let Some(count) = self.counts.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&source);
            }
        }
    }
}
