//! Ranks as processes of an MPI job.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use clearstream_sys::mpi::{MpiProcess, MpiResult, Threads};

use crate::{Aside, Message, RankError, Tag, World};

/// Library that `extras/mpi/library` is built into, kept beside the command.
pub const MPI_LIBRARY: &str = "libclearstream_mpi.so";

/// Loads the library and joins the job that `mpirun` or `srun` started, with the functions of MPI alone.
///
/// # Errors
/// [`RankError::Load`] says what is missing.
pub fn load(library: &Path, threads: Threads) -> Result<MpiProcess, RankError> {
    let failed = |message| RankError::Load(format!("MPI library {}: {message}", library.display()));
    MpiProcess::start(library, threads).map_err(failed)
}

/// This process as a rank. Dropped without [`Self::leave`], it ends all ranks.
pub struct Mpi {
    own: Arc<Rank>,
    spare: Vec<Vec<u8>>,
}

/// What the threads of a rank share: MPI is called by one of them at a time (MPI 3.1, section 12.4.3,
/// MPI_THREAD_SERIALIZED).
struct Rank {
    rank: usize,
    size: usize,
    host: String,
    library_name: String,
    /// Nothing once the rank has left.
    process: Mutex<Option<MpiProcess>>,
    lost: OnceLock<Lost>,
}

/// Ranks of which nothing was heard.
struct Lost {
    host: String,
    ranks: String,
    silence: Duration,
}

/// Buffers kept for the next messages.
const SPARE_COUNT: usize = 64;

impl Mpi {
    /// Loads the library and joins the job that `mpirun` or `srun` started.
    ///
    /// # Errors
    /// [`RankError::Load`] says what is missing.
    pub fn join(library: &Path) -> Result<Self, RankError> {
        let process = load(library, Threads::Serialized)?;
        let own = Rank {
            rank: process.rank(),
            size: process.size(),
            host: process.host().to_owned(),
            library_name: process.library_name().to_owned(),
            process: Mutex::new(Some(process)),
            lost: OnceLock::new(),
        };
        Ok(Self { own: Arc::new(own), spare: Vec::new() })
    }

    /// Leaves the job; without this, all ranks are ended.
    ///
    /// # Errors
    /// [`RankError::Library`] as MPI reports it.
    pub fn leave(self) -> Result<(), RankError> {
        let process = self.own.process().take();
        let left = process.map_or(Ok(()), MpiProcess::finish);
        left.map_err(|message| self.own.failed(message))
    }

    /// Ends all ranks; the launcher ends with this exit code, where it passes one on.
    pub fn abandon(self, exit_code: u8) {
        if let Some(process) = self.own.process().take() {
            process.abort(exit_code.into());
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // Its second hand may be there still.
        drop(self.own.process().take());
    }
}

impl Rank {
    fn process(&self) -> MutexGuard<'_, Option<MpiProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, message: String) -> RankError {
        RankError::Library { rank: self.rank, host: self.host.clone(), message }
    }

    fn send(&self, bytes: &[u8], to: usize, tag: Tag) -> Result<(), RankError> {
        self.with(|process| process.send(bytes, to, tag.0)).map(|_| ())
    }

    /// What one call of MPI returns; nothing once the rank has left.
    fn with<T>(&self, call: impl FnOnce(&MpiProcess) -> MpiResult<T>) -> Result<Option<T>, RankError> {
        if let Some(Lost { host, ranks, silence }) = self.lost.get() {
            let (host, ranks, seconds) = (host.clone(), ranks.clone(), silence.as_secs());
            return Err(RankError::Silent { host, ranks, seconds });
        }
        self.process().as_ref().map(call).transpose().map_err(|message| self.failed(message))
    }
}

impl World for Mpi {
    fn rank(&self) -> usize {
        self.own.rank
    }

    fn size(&self) -> usize {
        self.own.size
    }

    fn host(&self) -> &str {
        &self.own.host
    }

    fn transport(&self) -> &str {
        &self.own.library_name
    }

    fn send(&mut self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), RankError> {
        let sent = self.own.send(&bytes, to, tag);
        if self.spare.len() < SPARE_COUNT {
            self.spare.push(bytes);
        }
        sent
    }

    fn receive(&mut self, tag: Tag) -> Result<Option<Message>, RankError> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        match self.own.with(|process| process.receive(tag.0, &mut bytes))?.flatten() {
            Some(from) => Ok(Some(Message { from, bytes })),
            None => {
                self.spare.push(bytes);
                Ok(None)
            }
        }
    }

    /// MPI's own waits spin too: probing is what moves its messages.
    fn wait(&mut self, _limit: Duration) {
        thread::yield_now();
    }

    fn aside(&self) -> Option<Box<dyn Aside>> {
        Some(Box::new(Hand(Arc::clone(&self.own))))
    }

    fn buffer(&mut self) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes
    }
}

/// For another thread.
struct Hand(Arc<Rank>);

impl Aside for Hand {
    fn rank(&self) -> usize {
        self.0.rank
    }

    fn size(&self) -> usize {
        self.0.size
    }

    fn send(&mut self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), RankError> {
        self.0.send(&bytes, to, tag)
    }

    fn receive(&mut self, tag: Tag) -> Result<Option<Message>, RankError> {
        let mut bytes = Vec::new();
        let from = self.0.with(|process| process.receive(tag.0, &mut bytes))?.flatten();
        Ok(from.map(|from| Message { from, bytes }))
    }

    fn lose(&mut self, host: &str, ranks: &str, silence: Duration) {
        // The first loss is the one that is reported.
        let _ = self.0.lost.set(Lost { host: host.to_owned(), ranks: ranks.to_owned(), silence });
    }
}
