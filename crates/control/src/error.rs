//! What can go wrong between a controller and an agent.

use clearstream_schema::control::Failure;

use crate::{child::LastWords, session::SessionEnd};

/// Why a peer could not be had or did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The agent could not be reached or started.
    #[error("{name}: {message}")]
    Start {
        /// The peer as the user named it.
        name: String,
        /// What kind of trouble, for programs.
        cause: StartCause,
        /// What happened and what to do.
        message: String,
    },
    /// The pairing was refused, by one side or the other.
    #[error("{name}: {message}")]
    Pairing {
        /// The peer.
        name: String,
        /// What does not fit and what to do.
        message: String,
    },
    /// The agent died, was killed or went silent.
    #[error("{name}: the connection to its agent was lost: {reason}")]
    Lost {
        /// The peer.
        name: String,
        /// How it was noticed, with the last words of a child.
        reason: String,
    },
    /// The agent is there and said no.
    #[error("{name}: {failure}")]
    Refused {
        /// The peer.
        name: String,
        /// Its reason.
        failure: Failure,
    },
    /// The two programs cannot talk.
    #[error("{name}: {message}")]
    Version {
        /// The peer.
        name: String,
        /// Both versions and what to install.
        message: String,
    },
    /// The two programs agree on the protocol, but not on the form of what one sent.
    #[error("{name}: {message}")]
    Skew {
        /// The peer.
        name: String,
        /// Which reply or event, both versions and what does not fit.
        message: String,
    },
    /// The other end does not keep to the protocol.
    #[error("{name}: the other end is not a clearstream agent or is faulty: {reason}")]
    Protocol {
        /// The peer.
        name: String,
        /// What was seen.
        reason: String,
    },
    /// Waiting (for a busy daemon, for an answer) was given up.
    #[error("{name}: stopped waiting: {reason}")]
    Stopped {
        /// The peer.
        name: String,
        /// What it was waiting for.
        reason: String,
    },
}

/// What kept an agent from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartCause {
    /// The program is missing here or there.
    Program,
    /// The host's name means nothing.
    UnknownHost,
    /// The host or port does not answer.
    Connection,
    /// The connection was accepted and closed before the agent admitted us.
    Dropped,
    /// The host does not let us in.
    Authentication,
    /// The host is not the one that it was (ssh's known hosts).
    HostKey,
    /// Descriptors, threads or memory of this host have run out.
    Limit,
    /// Something answers, and it is no agent: a login banner, another service.
    NotAnAgent,
    /// Anything else.
    Other,
}

impl PeerError {
    /// The failure, when the agent itself refused.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Refused { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// What does not keep to the protocol was no agent, or, once it was one, is
    /// faulty.
    fn protocol(name: String, reason: String, opened: bool) -> Self {
        if opened {
            return Self::Protocol { name, reason };
        }
        let message = format!("the other end is not a clearstream agent: {reason}");
        Self::Start { name, cause: StartCause::NotAnAgent, message }
    }

    /// From the end of a session. `opened`: the agent had said `Hello`.
    /// `text` is what came before it.
    pub(crate) fn from_end(
        name: &str,
        end: SessionEnd,
        opened: bool,
        words: Option<LastWords>,
        text: Option<&str>,
    ) -> Self {
        let name = name.to_owned();
        match end {
            SessionEnd::Goodbye { reason, kind: Some(kind) } => {
                Self::Refused { name, failure: Failure { kind, message: reason } }
            }
            SessionEnd::Version(mismatch) => {
                let older = mismatch.theirs.major < mismatch.ours.major;
                let offer = match words {
                    Some(words) if older && words.is_ssh() => format!(" (`clearstream deploy {name}` does)"),
                    _ => String::new(),
                };
                Self::Version { name, message: format!("{mismatch}{offer}") }
            }
            SessionEnd::Frame(error) => Self::protocol(name, error.to_string(), opened),
            SessionEnd::Protocol(reason) => Self::protocol(name, reason, opened),
            SessionEnd::Closed
            | SessionEnd::Goodbye { .. }
            | SessionEnd::EndOfStream { .. }
            | SessionEnd::Silence
            | SessionEnd::NoHello
            | SessionEnd::Transport(_) => match words {
                Some(words) if !opened => {
                    let (cause, message) = words.explain(&name, &end, text);
                    Self::Start { name, cause, message }
                }
                Some(words) => Self::Lost { name, reason: words.append_to(&end.to_string()) },
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
