//! How a session can end.

use std::fmt;

use clearstream_schema::control::FailureKind;

use crate::{frame::FrameError, message::Hello};

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// We said `Goodbye`.
    #[error("the session was closed here")]
    Closed,
    /// The other side said `Goodbye`.
    #[error("{reason}")]
    Goodbye {
        /// Its words.
        reason: String,
        /// Set when it refused the session.
        kind: Option<FailureKind>,
    },
    /// The other side's stream ended without a `Goodbye`.
    #[error("the connection ended{}", if *.inside_frame { " in the middle of a message" } else { "" })]
    EndOfStream {
        /// Part of a frame had arrived.
        inside_frame: bool,
    },
    /// Nothing came for [`super::SILENCE`].
    #[error("nothing was heard for {} seconds", super::SILENCE.as_secs())]
    Silence,
    /// No `Hello` came in time.
    #[error("no agent answered in time")]
    NoHello,
    /// The two programs speak different major versions.
    #[error("{0}")]
    Version(Box<VersionMismatch>),
    /// A frame that is none.
    #[error("{0}")]
    Frame(FrameError),
    /// The other side broke the rules.
    #[error("{0}")]
    Protocol(String),
    /// Reading or writing failed.
    #[error("{0}")]
    Transport(String),
}

/// Two programs that cannot talk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionMismatch {
    /// This side.
    pub ours: Hello,
    /// The other side.
    pub theirs: Hello,
}

impl fmt::Display for VersionMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (older, newer) = if self.ours.major < self.theirs.major {
            (&self.ours, &self.theirs)
        } else {
            (&self.theirs, &self.ours)
        };
        write!(
            f,
            "clearstream {} on {} speaks protocol {}.{} and clearstream {} on {} speaks {}.{}: \
             install clearstream {} on {}",
            self.ours.version,
            self.ours.host,
            self.ours.major,
            self.ours.minor,
            self.theirs.version,
            self.theirs.host,
            self.theirs.major,
            self.theirs.minor,
            newer.version,
            older.host,
        )
    }
}
