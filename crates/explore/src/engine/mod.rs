//! A model's states by all ranks of a world: each owns the states whose hash falls to it, expands them,
//! and sends their successors to the owners.

mod cycles;
mod network;
mod path;
mod reach;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::document::{EXPLORATION_SCHEMA, Exploration, ExplorationRank, ModelParameter};
use clearstream_ranks::{RankError, World};
use clearstream_schema::{control::FailureKind, failure::Classified};

use crate::{
    program::{Fault, Program},
    store::{Parent, Store},
};
use network::{Ending, Network};
use reach::Reach;

/// What an exploration is for, and what bounds it.
#[derive(Debug, Clone)]
pub struct ExploreConfig {
    /// Bytes that a message holds at most.
    pub message_bytes: usize,
    /// Memory of a rank's states.
    pub memory_bytes: usize,
    /// Whether to look for accepting cycles afterwards.
    pub cycles: bool,
}

/// Why an exploration could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum ExploreError {
    /// Between the ranks.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// A mistake of the model that only running it shows.
    #[error("{fault}, in the state {state}")]
    Fault {
        /// What and where.
        fault: Fault,
        /// The state.
        state: String,
    },
    /// The memory is used up.
    #[error(
        "the states of a rank take more than {limit_bytes} bytes after {state_count} of them: give it more memory, or run more ranks"
    )]
    Memory {
        /// Allowed.
        limit_bytes: usize,
        /// Found by this rank.
        state_count: usize,
    },
    /// Another rank had a problem.
    #[error("rank {rank} on {host}: {message}")]
    OfRank {
        /// Its number.
        rank: usize,
        /// Its host.
        host: String,
        /// Its problem.
        message: String,
    },
}

impl Classified for ExploreError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Ranks(error) => error.failure_kind(),
            Self::Fault { .. } | Self::Memory { .. } | Self::OfRank { .. } => FailureKind::Invalid,
        }
    }
}

/// What ends an exploration before its end.
pub(crate) struct Limits<'a> {
    memory_bytes: usize,
    stop: &'a AtomicBool,
    pub(crate) progress_interval: Duration,
}

impl Limits<'_> {
    /// The problem, where the states have become too many.
    pub(crate) fn exceeded(&self, store: &Store) -> Option<ExploreError> {
        let too_many = store.bytes() > self.memory_bytes || store.len() >= u32::MAX as usize - 1;
        too_many.then(|| ExploreError::Memory { limit_bytes: self.memory_bytes, state_count: store.len() })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Explores a model; every rank calls it with the same model and configuration. The result is at rank 0.
/// `progress` gets the number of states that this rank owns so far.
///
/// # Errors
/// [`ExploreError`] of whichever rank had one, at rank 0; at others their own or none.
pub fn explore(
    world: &mut dyn World,
    program: &Program,
    config: &ExploreConfig,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<Exploration>, ExploreError> {
    let limits =
        Limits { memory_bytes: config.memory_bytes, stop, progress_interval: Duration::from_millis(200) };
    let (host, transport) = (world.host().to_owned(), world.transport().to_owned());
    let mut network = Network::new(world, config.message_bytes);
    let mut reach = Reach::new(program);
    network.begin()?;
    let begun = Instant::now();
    let outcome = reach.run(&mut network, &limits, progress);
    let duration = begun.elapsed();
    let (ending, problem) = match outcome {
        Ok(ending) => (ending, None),
        Err(ExploreError::Ranks(error)) => return Err(error.into()),
        Err(error) => {
            network.stop()?;
            (Ending::Stopped, Some(error))
        }
    };
    if ending == Ending::Stopped {
        network.drain()?;
    }
    let report = ExplorationRank {
        host,
        state_count: reach.store.len() as u64,
        transition_count: reach.transitions,
        deadlock_count: reach.deadlock_count,
        accepting_count: reach.accepting.len() as u64,
        memory_bytes: reach.store.bytes() as u64,
        sent_messages: network.sent.messages.clone(),
        sent_bytes: network.sent.bytes.clone(),
    };
    let ranks = reports(network.world(), &report, problem)?;
    let mut example = first(network.world(), reach.first_deadlock)?;
    let mut accepting_cycle = None;
    if config.cycles && ending == Ending::Complete {
        let found = cycles::accepting_cycles(program, &reach, &mut network)?;
        example = first(network.world(), found.first().copied())?;
        accepting_cycle = Some(example.is_some());
    }
    let path = path::path(network.world(), program, &reach.store, example)?;
    if ranks.is_empty() {
        return Ok(None);
    }
    let sum = |of: fn(&ExplorationRank) -> u64| ranks.iter().map(of).sum::<u64>();
    let state_count = sum(|rank| rank.state_count);
    let parameter = |(name, value): &(String, i64)| ModelParameter { name: name.clone(), value: *value };
    Ok(Some(Exploration {
        schema: EXPLORATION_SCHEMA.to_owned(),
        version: 1,
        model: program.name().to_owned(),
        parameters: program.parameters().iter().map(parameter).collect(),
        transport,
        message_bytes: config.message_bytes as u64,
        complete: ending == Ending::Complete,
        state_count,
        transition_count: sum(|rank| rank.transition_count),
        deadlock_count: sum(|rank| rank.deadlock_count),
        accepting_count: sum(|rank| rank.accepting_count),
        accepting_cycle,
        path,
        state_bytes: program.state_bytes() as u64,
        duration_ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        states_per_second: state_count as f64 / duration.as_secs_f64().max(1e-9),
        ranks,
    }))
}

/// Every rank's report at rank 0, or the first problem of any.
fn reports(
    world: &mut dyn World,
    own: &ExplorationRank,
    problem: Option<ExploreError>,
) -> Result<Vec<ExplorationRank>, ExploreError> {
    let message = problem.as_ref().map(ToString::to_string);
    let bytes = clearstream_schema::json::to_vec(&(own, message)).unwrap_or_default();
    let all = world.gather(bytes)?;
    // What is wrong on any rank is known to all, so that none goes on alone.
    let wrong = u64::from(problem.is_some());
    let is_wrong = world.reduce(&[wrong], u64::max)?[0] != 0;
    let all: Vec<(ExplorationRank, Option<String>)> =
        all.iter().filter_map(|bytes| clearstream_schema::json::from_slice(bytes).ok()).collect();
    if let Some(problem) = problem {
        return Err(problem);
    }
    for (rank, (report, message)) in all.iter().enumerate() {
        if let Some(message) = message {
            return Err(ExploreError::OfRank { rank, host: report.host.clone(), message: message.clone() });
        }
    }
    if is_wrong {
        let (host, message) = (own.host.clone(), "another rank could not go on".to_owned());
        return Err(ExploreError::OfRank { rank: world.rank(), host, message });
    }
    Ok(all.into_iter().map(|(report, _)| report).collect())
}

/// The state of the lowest rank that has one; the same at all ranks.
fn first(world: &mut dyn World, own: Option<u32>) -> Result<Option<Parent>, RankError> {
    let key = own.map_or(u64::MAX, |place| ((world.rank() as u64) << 32) | u64::from(place));
    let key = world.reduce(&[key], u64::min)?[0];
    Ok((key != u64::MAX).then_some(Parent { rank: (key >> 32) as u32, place: key as u32 }))
}
