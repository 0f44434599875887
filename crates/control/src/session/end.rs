//! The ways a session can end.

use std::fmt;

use clearstream_schema::{control::FailureKind, failure::Classified};

use crate::{frame::FrameError, message::Hello};

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// This side sent `Goodbye`.
    #[error("the session was closed here")]
    Closed,
    /// The peer sent `Goodbye`.
    #[error("{reason}")]
    Goodbye {
        /// Reason given by the peer.
        reason: String,
        /// Set when it refused the session.
        kind: Option<FailureKind>,
    },
    /// The peer's stream ended without a `Goodbye`.
    #[error("the connection ended{}", if *.inside_frame { " in the middle of a message" } else { "" })]
    EndOfStream {
        /// Part of a frame had arrived.
        inside_frame: bool,
    },
    /// Nothing was received for four seconds.
    #[error("nothing was received for {} seconds", super::PEER_TIMEOUT.as_secs())]
    PeerTimeout,
    /// No `Hello` came in time.
    #[error("no agent responded in time")]
    NoHello,
    /// The two programs speak different major versions.
    #[error("{0}")]
    Version(Box<VersionMismatch>),
    /// An invalid frame.
    #[error("{0}")]
    Frame(FrameError),
    /// The peer violated the protocol.
    #[error("{0}")]
    Protocol(String),
    /// Reading or writing failed.
    #[error("{0}")]
    Transport(String),
}

impl Classified for SessionEnd {
    fn failure_kind(&self) -> FailureKind {
        FailureKind::Connection
    }
}

/// Two programs with incompatible protocol versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionMismatch {
    /// This side.
    pub ours: Hello,
    /// The peer.
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
