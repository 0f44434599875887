//! What can go wrong with a run folder.

use std::{io, path::PathBuf};

/// A run folder could not be written or read. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The disk or quota is used up. What was written before is kept.
    #[error("no space left while writing {}: what was recorded so far is kept; free some space and resume the run", path.display())]
    Full {
        /// File being written.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The disk or quota is used up and there is no run yet.
    #[error("no space left while writing {}: nothing was recorded; free some space and start the run anew", path.display())]
    FullAtStart {
        /// File being written.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// File being written.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// File being read.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The folder holds no run.
    #[error("{} is no run folder: it has no run.json; name the folder that `study run` printed", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run already.
    #[error("{} holds a run already: resume it, or choose another folder", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A document is not what its name says.
    #[error("{} line {line}: {message}", path.display())]
    Malformed {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        message: String,
    },
    /// A document of another format or of a later version.
    #[error("{} is {schema} version {version}, this program reads {expected} version {newest}: use a newer program", path.display())]
    Version {
        /// File.
        path: PathBuf,
        /// Format found.
        schema: String,
        /// Version found.
        version: u64,
        /// Format expected.
        expected: &'static str,
        /// Newest version understood.
        newest: u32,
    },
    /// A trial names a samples file outside its run folder.
    #[error("trial {trial} names the samples file \"{name}\", which is outside the run folder")]
    Outside {
        /// Trial number.
        trial: u32,
        /// Name as stored.
        name: String,
    },
}

impl RecordError {
    /// Writing failed: a full disk or quota is told apart from the rest.
    pub(crate) fn write(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, source },
            _ => Self::Write { path, source },
        }
    }

    /// The same error where there is no run that could be resumed.
    pub(crate) fn before_the_run(self) -> Self {
        match self {
            Self::Full { path, source } => Self::FullAtStart { path, source },
            other => other,
        }
    }

    pub(crate) fn read(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Read { path: path.into(), source }
    }
}
