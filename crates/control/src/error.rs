//! Errors between a controller and an agent.

use std::time::Duration;

use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
};

use crate::{child::ChildExit, session::SessionEnd};

/// Why a peer could not be started or did not carry out a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The agent could not be reached or started.
    #[error("{name}: {message}")]
    Start {
        /// The peer as the user named it.
        name: String,
        /// Kind of failure, for programs.
        cause: StartCause,
        /// What happened and how to fix it.
        message: String,
    },
    /// The pairing was rejected by one side.
    #[error("{name}: {message}")]
    Pairing {
        /// The peer.
        name: String,
        /// What does not match and how to fix it.
        message: String,
    },
    /// The agent died, was killed or went silent.
    #[error("{name}: the connection to its agent was lost: {reason}")]
    Lost {
        /// The peer.
        name: String,
        /// How it was detected, with the captured standard error of a child.
        reason: String,
    },
    /// The agent refused the request.
    #[error("{name}: {failure}")]
    Refused {
        /// The peer.
        name: String,
        /// Its reason.
        failure: Failure,
    },
    /// The two protocol versions are incompatible.
    #[error("{name}: {message}")]
    Version {
        /// The peer.
        name: String,
        /// Both versions and what to install.
        message: String,
    },
    /// Same protocol version, but the two programs disagree on the format of a call or event.
    #[error("{name}: {message}")]
    Skew {
        /// The peer.
        name: String,
        /// Which reply or event, both versions and what does not fit.
        message: String,
    },
    /// The peer violates the protocol.
    #[error("{name}: the remote program is not a clearstream agent or is faulty: {reason}")]
    Protocol {
        /// The peer.
        name: String,
        /// What was received.
        reason: String,
    },
    /// The agent is connected and did not reply to a call, or did not send an event.
    #[error(
        "{name}: no {awaited} within {} s, although its agent is connected: what serves it there hangs, as in a file \
         system or driver that does not respond",
        .after.as_secs()
    )]
    Unanswered {
        /// The peer.
        name: String,
        /// Which reply or event, with the name of the call or event.
        awaited: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// Waiting (for a busy daemon, for a reply) was abandoned.
    #[error("{name}: stopped waiting: {reason}")]
    Stopped {
        /// The peer.
        name: String,
        /// What it was waiting for.
        reason: String,
    },
}

impl Classified for PeerError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Start { cause, .. } => match cause {
                StartCause::UnknownHost
                | StartCause::Connection
                | StartCause::Dropped
                | StartCause::NotAnAgent
                | StartCause::Other => FailureKind::Unreachable,
                StartCause::Program | StartCause::Limit => FailureKind::Unsupported,
                StartCause::Authentication | StartCause::HostKey => FailureKind::Refused,
            },
            Self::Pairing { .. } | Self::Version { .. } => FailureKind::Refused,
            // One that breaks the protocol is no fault of this program.
            Self::Lost { .. } | Self::Unanswered { .. } | Self::Skew { .. } | Self::Protocol { .. } => {
                FailureKind::Connection
            }
            Self::Refused { failure, .. } => failure.kind,
            Self::Stopped { .. } => FailureKind::Interrupted,
        }
    }
}

/// Cause of a failed agent start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartCause {
    /// The program is missing on this host or on the remote one.
    Program,
    /// The host name does not resolve.
    UnknownHost,
    /// The host or port does not respond.
    Connection,
    /// The connection was accepted and closed before the agent admitted this controller.
    Dropped,
    /// The host rejects the login.
    Authentication,
    /// The host key has changed (ssh's known hosts).
    HostKey,
    /// Descriptors, threads or memory of this host have run out.
    Limit,
    /// Something responds that is not an agent: a login banner, another service.
    NotAnAgent,
    /// Anything else.
    Other,
}

impl PeerError {
    /// The failure, when the agent itself refused the request.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Refused { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// Error for a protocol violation: before the session opened the program was no agent, afterwards it is
    /// faulty.
    fn protocol(name: String, reason: String, opened: bool) -> Self {
        if opened {
            return Self::Protocol { name, reason };
        }
        let message = format!("the remote program is not a clearstream agent: {reason}");
        Self::Start { name, cause: StartCause::NotAnAgent, message }
    }

    /// Converts the end of a session. `opened`: the agent had sent `Hello`. `text` is what preceded it.
    pub(crate) fn from_end(
        name: &str,
        end: SessionEnd,
        opened: bool,
        exit: Option<ChildExit>,
        text: Option<&str>,
    ) -> Self {
        let name = name.to_owned();
        match end {
            SessionEnd::Goodbye { reason, kind: Some(kind) } => {
                Self::Refused { name, failure: Failure { kind, message: reason } }
            }
            SessionEnd::Version(mismatch) => {
                let older = mismatch.theirs.major < mismatch.ours.major;
                let offer = match exit {
                    Some(exit) if older && exit.is_ssh() => format!(" (`clearstream deploy {name}` does)"),
                    _ => String::new(),
                };
                Self::Version { name, message: format!("{mismatch}{offer}") }
            }
            SessionEnd::Frame(error) => Self::protocol(name, error.to_string(), opened),
            SessionEnd::Protocol(reason) => Self::protocol(name, reason, opened),
            SessionEnd::Closed
            | SessionEnd::Goodbye { .. }
            | SessionEnd::EndOfStream { .. }
            | SessionEnd::PeerTimeout
            | SessionEnd::NoHello
            | SessionEnd::Transport(_) => match exit {
                Some(exit) if !opened => {
                    let (cause, message) = exit.explain(&name, &end, text);
                    Self::Start { name, cause, message }
                }
                Some(exit) => Self::Lost { name, reason: exit.append_to(&end.to_string()) },
                None if !opened => {
                    let dropped = matches!(end, SessionEnd::EndOfStream { .. } | SessionEnd::Transport(_));
                    let cause = if dropped { StartCause::Dropped } else { StartCause::Connection };
                    Self::Start { name, cause, message: end.to_string() }
                }
                None => Self::Lost { name, reason: end.to_string() },
            },
        }
    }
}
