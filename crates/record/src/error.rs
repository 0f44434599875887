//! Errors of run folders.

use std::{io, path::PathBuf};

use clearstream_schema::{control::FailureKind, failure::Classified};

/// A run folder could not be written or read. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The disk or quota is full. What was written before is kept.
    #[error("no space left while writing {}: trials recorded so far are kept; free some space and resume the run", path.display())]
    Full {
        /// File being written.
        path: PathBuf,
        /// System error.
        #[source]
        source: io::Error,
    },
    /// The disk or quota is full and there is no run yet.
    #[error("no space left while writing {}: nothing was recorded; free some space and restart the run", path.display())]
    FullAtStart {
        /// File being written.
        path: PathBuf,
        /// System error.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// File being written.
        path: PathBuf,
        /// System error.
        #[source]
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// File being read.
        path: PathBuf,
        /// System error.
        #[source]
        source: io::Error,
    },
    /// There is no such folder.
    #[error("there is no folder {}", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The folder does not contain a run.
    #[error("{} is not a run folder: it has no run.json; use the folder printed by `study run`", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder already contains a run.
    #[error("{} already contains a run: resume it, or choose another folder", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes the run.
    #[error(
        "{} is being written by {}: wait for it or stop it; nothing of the run was changed",
        path.display(), clearstream_sys::writer_lock::name_of(*process)
    )]
    Busy {
        /// The folder.
        path: PathBuf,
        /// Process id of the writer.
        process: Option<u32>,
    },
    /// A document does not have the format of its file name.
    #[error("{} line {line}: {message}", path.display())]
    Malformed {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        message: String,
    },
    /// A document of another format or version.
    #[error("{} is {schema} version {version}, this program reads {expected} version {known}: use the program that wrote it", path.display())]
    Version {
        /// File.
        path: PathBuf,
        /// Format found.
        schema: String,
        /// Version found.
        version: u64,
        /// Format expected.
        expected: &'static str,
        /// Version expected.
        known: u32,
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

impl Classified for RecordError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::NoFolder { .. } | Self::NoRun { .. } | Self::Exists { .. } => FailureKind::Name,
            Self::Busy { .. } => FailureKind::Busy,
            Self::Full { .. }
            | Self::FullAtStart { .. }
            | Self::Write { .. }
            | Self::Read { .. }
            | Self::Malformed { .. }
            | Self::Version { .. }
            | Self::Outside { .. } => FailureKind::File,
        }
    }
}

impl RecordError {
    /// A write error: a full disk or quota has its own variant.
    pub(crate) fn write(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, source },
            _ => Self::Write { path, source },
        }
    }

    /// The same error before a run exists that could be resumed.
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
