//! All states that a model can reach: each rank expands those that it owns.

use std::{hash::BuildHasher as _, time::Instant};

use clearstream_ranks::{Message, RankError};

use super::{
    ExploreError, Limits,
    network::{Ending, Network},
};
use crate::{
    program::{Fault, Program},
    store::{Parent, Store, hasher, owner},
};

/// States expanded between two looks at messages.
const BATCH: usize = 64;

/// What a rank found out.
pub(crate) struct Reach<'p> {
    program: &'p Program,
    pub(crate) store: Store,
    pub(crate) transitions: u64,
    pub(crate) deadlock_count: u64,
    pub(crate) first_deadlock: Option<u32>,
    /// Places of states that the model calls accepting.
    pub(crate) accepting: Vec<u32>,
    /// Expanded so far, in the order in which they arrived.
    expanded: usize,
}

/// Buffers that expanding a state needs.
#[derive(Default)]
pub(crate) struct Scratch {
    state: Vec<i32>,
    successor: Vec<i32>,
    packed: Vec<u8>,
}

impl<'p> Reach<'p> {
    pub(crate) fn new(program: &'p Program) -> Self {
        Self {
            program,
            store: Store::new(program.state_bytes),
            transitions: 0,
            deadlock_count: 0,
            first_deadlock: None,
            accepting: Vec::new(),
            expanded: 0,
        }
    }

    /// Runs until no rank has a state to expand, or one of them stops.
    pub(crate) fn run(
        &mut self,
        network: &mut Network<'_>,
        limits: &Limits<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Ending, ExploreError> {
        let mut scratch = Scratch::default();
        self.begin(network);
        let mut reported = Instant::now();
        loop {
            if let Some(ending) = network.is_ended()? {
                return Ok(ending);
            }
            while let Some(message) = network.receive()? {
                self.take(&message);
            }
            if self.expanded == self.store.len() {
                network.idle()?;
                continue;
            }
            let end = (self.expanded + BATCH).min(self.store.len());
            while self.expanded < end {
                self.expand(network, &mut scratch)?;
            }
            if limits.is_stopped() {
                network.stop()?;
                return Ok(Ending::Stopped);
            }
            if let Some(problem) = limits.exceeded(&self.store) {
                return Err(problem);
            }
            if reported.elapsed() >= limits.progress_interval {
                reported = Instant::now();
                progress(self.store.len() as u64);
            }
        }
    }

    fn begin(&mut self, network: &Network<'_>) {
        let mut packed = Vec::new();
        self.program.pack(&self.program.initial(), &mut packed);
        let hash = hasher().hash_one(&packed[..]);
        if owner(hash, network.sent.messages.len()) == network.rank() {
            self.store.insert(&packed, hash, Parent::NONE);
        }
    }

    fn take(&mut self, message: &Message) {
        let rank = message.from as u32;
        let hasher = hasher();
        for record in message.bytes.chunks_exact(self.program.state_bytes + size_of::<u32>()) {
            let (state, place) = record.split_at(self.program.state_bytes);
            let place = place.try_into().map_or(0, u32::from_le_bytes);
            self.store.insert(state, hasher.hash_one(state), Parent { rank, place });
        }
    }

    fn expand(&mut self, network: &mut Network<'_>, scratch: &mut Scratch) -> Result<(), ExploreError> {
        let (place, rank) = (self.expanded, network.rank());
        self.expanded += 1;
        let Scratch { state, successor, packed } = scratch;
        self.program.unpack(self.store.state(place), state);
        if self.program.has_accepting()
            && self.program.is_accepting(state).map_err(|fault| self.fault(place, fault))?
        {
            self.accepting.push(place as u32);
        }
        let (hasher, ranks) = (hasher(), network.sent.messages.len());
        let mut sent = Ok(());
        let store = &mut self.store;
        let found = self.program.successors(state, successor, |next| {
            packed.clear();
            self.program.pack(next, packed);
            let hash = hasher.hash_one(&packed[..]);
            let to = owner(hash, ranks);
            if to == rank {
                store.insert(packed, hash, Parent { rank: rank as u32, place: place as u32 });
            } else if sent.is_ok() {
                sent = network.add(to, &[packed, &(place as u32).to_le_bytes()]);
            }
        });
        sent?;
        let found = found.map_err(|fault| self.fault(place, fault))?;
        self.transitions += found as u64;
        if found == 0 {
            self.deadlock_count += 1;
            self.first_deadlock.get_or_insert(place as u32);
        }
        Ok(())
    }

    fn fault(&self, place: usize, fault: Fault) -> ExploreError {
        let mut state = Vec::new();
        self.program.unpack(self.store.state(place), &mut state);
        ExploreError::Fault { fault, state: self.program.shown(&state) }
    }
}

/// Goes from the states of `queue` to their successors, on whichever ranks these are: `visit` gets the
/// place of each successor and returns whether to go on from there.
pub(crate) fn propagate(
    program: &Program,
    store: &Store,
    network: &mut Network<'_>,
    mut queue: Vec<u32>,
    mut visit: impl FnMut(usize) -> bool,
) -> Result<(), ExploreError> {
    let (mut scratch, hasher) = (Scratch::default(), hasher());
    let (rank, ranks) = (network.rank(), network.sent.messages.len());
    network.begin()?;
    loop {
        if network.is_ended()?.is_some() {
            return Ok(());
        }
        while let Some(message) = network.receive()? {
            for state in message.bytes.chunks_exact(program.state_bytes) {
                if let Some(place) = store.find(state).filter(|place| visit(*place)) {
                    queue.push(place as u32);
                }
            }
        }
        if queue.is_empty() {
            network.idle()?;
            continue;
        }
        for _ in 0..BATCH {
            let Some(place) = queue.pop() else { break };
            let Scratch { state, successor, packed } = &mut scratch;
            program.unpack(store.state(place as usize), state);
            let mut sent: Result<(), RankError> = Ok(());
            let found = program.successors(state, successor, |next| {
                packed.clear();
                program.pack(next, packed);
                let to = owner(hasher.hash_one(&packed[..]), ranks);
                if to != rank {
                    if sent.is_ok() {
                        sent = network.add(to, &[packed]);
                    }
                } else if let Some(place) = store.find(packed).filter(|place| visit(*place)) {
                    queue.push(place as u32);
                }
            });
            sent?;
            // Every state was expanded before, without a fault.
            found.map_err(|fault| ExploreError::Fault { fault, state: program.shown(state) })?;
        }
    }
}
