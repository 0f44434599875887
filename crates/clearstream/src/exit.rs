//! The errors of the command, and the exit code of each.

use std::{io, path::PathBuf};

use clearstream_control::session::SessionEnd;
use clearstream_schema::{
    ExitCode,
    control::{Failure, FailureKind},
    failure::Classified,
};

/// Error of a command, with its exit code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// A name that does not resolve, or an address that does not respond.
    #[error("cannot reach {host}: {reason}")]
    Unreachable {
        /// As typed.
        host: String,
        /// Cause.
        reason: String,
    },
    /// A file of the command itself.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `write`, `read`.
        what: String,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file that goes to the run folder unless another is named.
    #[error("cannot write {}: {source}; --out FILE writes it elsewhere", path.display())]
    RunFolder {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Some trials failed or parts could not be measured.
    #[error("{0}")]
    Partial(String),
    /// A figure is below the threshold of the command line.
    #[error("{0}")]
    Threshold(String),
    /// Something that this host cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// SIGINT.
    #[error("interrupted; {0}")]
    Interrupted(String),
    /// A session, seen from the agent.
    #[error("session with the controller: {0}")]
    Session(SessionEnd),
    /// A study lost an agent.
    #[error("{0}")]
    StudyLost(String),
    /// An error of the part that does the work, which says what happened.
    #[error("{0}")]
    Failed(Box<dyn Classified>),
}

impl<E: Classified> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl CommandError {
    /// Invalid command line.
    pub fn usage(message: &str) -> Self {
        Self::Usage(message.to_owned())
    }

    /// Something of this name is not there.
    pub fn no_name(message: String) -> Self {
        Failure::new(FailureKind::Name, message).into()
    }

    /// The documented exit code (docs/guide/exit-codes.md).
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::Usage,
            Self::Unreachable { .. } => ExitCode::Unreachable,
            Self::File { .. } | Self::RunFolder { .. } => ExitCode::File,
            Self::Partial(_) => ExitCode::Partial,
            Self::Threshold(_) => ExitCode::Threshold,
            Self::Unsupported(_) => ExitCode::Unsupported,
            Self::Interrupted(_) => ExitCode::Interrupted,
            Self::StudyLost(_) | Self::Session(_) => ExitCode::PeerLost,
            Self::Failed(error) => error.failure_kind().into(),
        }
    }
}

/// Error of a step of the command itself that a system call ended.
pub fn cannot(step: &str) -> impl FnOnce(io::Error) -> CommandError {
    move |error| Failure::of_system(step, &error).into()
}
