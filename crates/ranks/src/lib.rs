//! Ranks: processes or threads that work on one thing and exchange messages, as those of MPI.
//!
//! [`World`] is what a rank sees of all of them. [`threads`] has the ranks as threads of this
//! process, [`TcpPair`] is one of two that a connection joins, [`Mpi`] has them as processes that the
//! site's `mpirun` or `srun` started. Collective operations are built from messages here, so that a back end has four operations of its own.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod inbox;
mod mpi;
mod tcp;
mod threads;
mod watch;

use std::{io, time::Duration};

use clearstream_schema::{control::FailureKind, failure::Classified};

pub use mpi::{MPI_LIBRARY, Mpi, load};
pub use tcp::TcpPair;
pub use threads::{TRANSPORT as THREADS_TRANSPORT, threads};
pub use watch::{OnNumbers, beside, unwatch, watched};

/// Kind of a message. Those of one tag and sender arrive in the order sent (MPI 3.1, section 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub u8);

/// Tag of collective operations; programs use others.
const COLLECTIVE: Tag = Tag(u8::MAX);

/// A message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// Rank that sent it.
    pub from: usize,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// Why ranks cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// A rank ended before the others were done with it.
    #[error("rank {rank} ended early")]
    Lost {
        /// Its number.
        rank: usize,
    },
    /// Ranks of another host are not heard of any more.
    #[error(
        "{host} is lost: nothing was heard of {ranks} for {seconds} s; see whether it is up, reachable and not stopped, or \
         run without it"
    )]
    Silent {
        /// Its name, or the names of all.
        host: String,
        /// Their numbers, for people.
        ranks: String,
        /// Time without a word.
        seconds: u64,
    },
    /// The MPI library reports an error.
    #[error("rank {rank} on {host}: {message}")]
    Library {
        /// This rank.
        rank: usize,
        /// Its host.
        host: String,
        /// In the library's words.
        message: String,
    },
    /// A thread of a rank cannot be started.
    #[error("cannot start a thread for rank {rank}: {error}")]
    Thread {
        /// Its number.
        rank: usize,
        /// Of pthread_create(3).
        error: io::Error,
    },
    /// No MPI can be loaded.
    #[error("{0}")]
    Load(String),
}

impl Classified for RankError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Thread { error, .. } => FailureKind::of_system(error),
            Self::Load(_) => FailureKind::Unsupported,
            Self::Lost { .. } | Self::Silent { .. } | Self::Library { .. } => FailureKind::Connection,
        }
    }
}

/// A second hand of a rank: another thread of it may exchange messages of tags of its own meanwhile, also while the rank
/// waits for something else.
pub trait Aside: Send {
    /// Number of this rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// As [`World::send`].
    ///
    /// # Errors
    /// As there.
    fn send(&mut self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), RankError>;

    /// As [`World::receive`].
    ///
    /// # Errors
    /// As there.
    fn receive(&mut self, tag: Tag) -> Result<Option<Message>, RankError>;

    /// From here on this rank takes some for lost, after so long without a word: whatever it does with others fails
    /// with [`RankError::Silent`].
    fn lose(&mut self, host: &str, ranks: &str, silence: Duration);
}

/// All ranks, seen by one of them.
pub trait World {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Name of this rank's host.
    fn host(&self) -> &str;

    /// What carries the messages: an MPI library with its version, TCP, or threads.
    fn transport(&self) -> &str;

    /// Sends a message; returns without waiting for its delivery.
    ///
    /// # Errors
    /// [`RankError`] when the receiver has ended, or the library fails.
    fn send(&mut self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), RankError>;

    /// The next message of this kind, if one has arrived.
    ///
    /// # Errors
    /// [`RankError`] when a rank was lost or the library fails.
    fn receive(&mut self, tag: Tag) -> Result<Option<Message>, RankError>;

    /// Sleeps or spins until a message may have arrived, at most this long.
    fn wait(&mut self, limit: Duration);

    /// A second hand of this rank, where ranks are processes.
    fn aside(&self) -> Option<Box<dyn Aside>> {
        None
    }

    /// An empty buffer, one that a message was sent from where there is one.
    fn buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// The next message of this kind, however long it takes.
    ///
    /// # Errors
    /// As [`Self::receive`].
    fn receive_next(&mut self, tag: Tag) -> Result<Message, RankError> {
        loop {
            if let Some(message) = self.receive(tag)? {
                return Ok(message);
            }
            self.wait(Duration::from_millis(10));
        }
    }

    /// Every rank's bytes at rank 0, in the order of ranks; nothing at the others.
    ///
    /// # Errors
    /// [`RankError`] when a rank was lost or the library fails.
    fn gather(&mut self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RankError> {
        let all = collect(self, own)?;
        // Nobody begins the next collective operation before rank 0 is done with this one.
        self.broadcast(Vec::new())?;
        Ok(all)
    }

    /// The bytes of rank 0, at every rank.
    ///
    /// # Errors
    /// [`RankError`] when a rank was lost or the library fails.
    fn broadcast(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, RankError> {
        if self.rank() != 0 {
            return Ok(self.receive_next(COLLECTIVE)?.bytes);
        }
        for to in 1..self.size() {
            self.send(to, COLLECTIVE, bytes.clone())?;
        }
        Ok(bytes)
    }

    /// Combines the numbers of all ranks, place by place; the result is at every rank.
    ///
    /// # Errors
    /// [`RankError`] when a rank was lost or the library fails.
    fn reduce(&mut self, own: &[u64], combine: fn(u64, u64) -> u64) -> Result<Vec<u64>, RankError> {
        let bytes = own.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut all = collect(self, bytes)?.into_iter().map(|bytes| numbers(&bytes));
        let mut combined = all.next().unwrap_or_default();
        for others in all {
            combined.iter_mut().zip(others).for_each(|(value, other)| *value = combine(*value, other));
        }
        let bytes = combined.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(numbers(&self.broadcast(bytes)?))
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// [`RankError`] when a rank was lost or the library fails.
    fn barrier(&mut self) -> Result<(), RankError> {
        self.reduce(&[], u64::max).map(|_| ())
    }
}

/// Every rank's bytes at rank 0; the others go on at once.
fn collect(world: &mut (impl World + ?Sized), own: Vec<u8>) -> Result<Vec<Vec<u8>>, RankError> {
    if world.rank() != 0 {
        world.send(0, COLLECTIVE, own)?;
        return Ok(Vec::new());
    }
    let mut all = vec![Vec::new(); world.size()];
    all[0] = own;
    for _ in 1..world.size() {
        let message = world.receive_next(COLLECTIVE)?;
        all[message.from] = message.bytes;
    }
    Ok(all)
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok()).map(u64::from_le_bytes).collect()
}
