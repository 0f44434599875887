//! Ranks as processes of an MPI job.

use std::{path::Path, thread, time::Duration};

use clearstream_sys::mpi::MpiProcess;

use crate::{Message, RankError, Tag, World};

/// Library that `extras/mpi/library` is built into, kept beside the command.
pub const MPI_LIBRARY: &str = "libclearstream_mpi.so";

/// This process as a rank.
pub struct Mpi {
    process: MpiProcess,
    spare: Vec<Vec<u8>>,
}

/// Buffers kept for the next messages.
const SPARE_COUNT: usize = 64;

impl Mpi {
    /// Loads the library and joins the job that `mpirun` or `srun` started.
    ///
    /// # Errors
    /// [`RankError::Load`] says what is missing.
    pub fn join(library: &Path) -> Result<Self, RankError> {
        let process = MpiProcess::start(library)
            .map_err(|message| RankError::Load(format!("{}: {message}", library.display())))?;
        Ok(Self { process, spare: Vec::new() })
    }

    /// Leaves the job; without this, all ranks are ended.
    ///
    /// # Errors
    /// [`RankError::Library`] as MPI reports it.
    pub fn leave(self) -> Result<(), RankError> {
        let (rank, host) = (self.process.rank(), self.process.host().to_owned());
        self.process.finish().map_err(|message| RankError::Library { rank, host, message })
    }

    fn failed(&self, message: String) -> RankError {
        RankError::Library { rank: self.process.rank(), host: self.process.host().to_owned(), message }
    }
}

impl World for Mpi {
    fn rank(&self) -> usize {
        self.process.rank()
    }

    fn size(&self) -> usize {
        self.process.size()
    }

    fn host(&self) -> &str {
        self.process.host()
    }

    fn transport(&self) -> &str {
        self.process.library_name()
    }

    fn send(&mut self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), RankError> {
        let sent = self.process.send(&bytes, to, tag.0);
        if self.spare.len() < SPARE_COUNT {
            self.spare.push(bytes);
        }
        sent.map_err(|message| self.failed(message))
    }

    fn receive(&mut self, tag: Tag) -> Result<Option<Message>, RankError> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        match self.process.receive(tag.0, &mut bytes) {
            Ok(Some(from)) => Ok(Some(Message { from, bytes })),
            Ok(None) => {
                self.spare.push(bytes);
                Ok(None)
            }
            Err(message) => Err(self.failed(message)),
        }
    }

    /// MPI's own waits spin too: probing is what moves its messages.
    fn wait(&mut self, _limit: Duration) {
        thread::yield_now();
    }

    fn buffer(&mut self) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes
    }
}
