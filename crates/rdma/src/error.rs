//! Errors of RDMA measurements and pings, and their conversion to an agent's
//! failures.

use std::{io, net::SocketAddr, time::Duration};

use clearstream_control::PeerError;
use clearstream_iwarp::{
    memory::MemoryError,
    verbs::{ConnectError, VerbsError},
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::{Classified, firewall_advice},
};

/// Maximum length of a peer's text in an error, in characters.
const PEER_TEXT_LIMIT: usize = 400;

/// Errors of an RDMA measurement or ping.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// Invalid option, local or at the peer.
    #[error("{0}")]
    Option(String),
    /// No connection.
    #[error("{source}; is `clearstream rdma serve` (or rping) listening there?")]
    Connect {
        /// From connection setup.
        #[source]
        source: ConnectError,
    },
    /// The peer rejected the connection or the request.
    #[error("{peer} rejected the request: {reason}")]
    Refused {
        /// Address of the peer.
        peer: SocketAddr,
        /// The peer's message.
        reason: String,
    },
    /// The peer uses another protocol over iWARP.
    #[error("{peer} uses iWARP but not the protocol of {expected}: {seen}")]
    OtherPeer {
        /// Address of the peer.
        peer: SocketAddr,
        /// Expected program.
        expected: &'static str,
        /// Observed behaviour of the peer.
        seen: String,
    },
    /// The connection was lost.
    #[error("connection to {peer} lost: {reason}")]
    Lost {
        /// Address of the peer.
        peer: SocketAddr,
        /// Cause.
        reason: String,
    },
    /// The peer has sent nothing for too long.
    #[error("{peer} sent nothing for {} s", after.as_secs_f32())]
    Silent {
        /// Address of the peer.
        peer: SocketAddr,
        /// Time for which it was silent.
        after: Duration,
    },
    /// The listening socket could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Requested address.
        address: SocketAddr,
        /// Error of the RNIC.
        source: VerbsError,
    },
    /// An RNIC call failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// Memory could not be registered.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A defect of this program.
    #[error("{0}: please report it")]
    Fault(String),
    /// Received data differs from sent data.
    #[error("{0}")]
    Mismatch(String),
    /// Interrupted while measuring.
    #[error("interrupted; results cover the time up to the interruption")]
    Stopped,
    /// Interrupted before the connection was established.
    #[error("interrupted; {peer} had not responded")]
    StoppedConnecting {
        /// Address of the peer.
        peer: SocketAddr,
    },
}

impl RdmaError {
    /// Whether other options would avoid the error: a server reports this to
    /// its client.
    #[must_use]
    pub fn is_option(&self) -> bool {
        matches!(self, Self::Option(_) | Self::Verbs(VerbsError::Core { .. } | VerbsError::Range { .. }))
    }
}

impl From<ConnectError> for RdmaError {
    fn from(source: ConnectError) -> Self {
        match source {
            ConnectError::Rejected { peer, private_data } => {
                Self::Refused { peer, reason: rejection(&private_data) }
            }
            source => Self::Connect { source },
        }
    }
}

/// Errors of a test between two agents.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// An agent was lost, or rejected a call.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The measurement failed at the client.
    #[error("{name}: {failure}")]
    Failed {
        /// Name of the client as given by the user.
        name: String,
        /// Cause.
        failure: Failure,
    },
    /// Interrupted before there were results.
    #[error("interrupted before anything was measured")]
    Stopped,
}

impl Classified for AgentError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Peer(error) => error.failure_kind(),
            Self::Failed { failure, .. } => failure.kind,
            Self::Stopped => FailureKind::Interrupted,
        }
    }
}

impl Classified for RdmaError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Option(_) => FailureKind::Invalid,
            Self::Connect { source } => kind_of_connect(source),
            Self::Refused { .. } | Self::OtherPeer { .. } => FailureKind::Refused,
            Self::Lost { .. } | Self::Silent { .. } => FailureKind::Connection,
            Self::Mismatch(_) => FailureKind::Partial,
            Self::Stopped | Self::StoppedConnecting { .. } => FailureKind::Interrupted,
            Self::Listen { source, .. } | Self::Verbs(source) => kind_of_verbs(source),
            Self::Memory(_) => FailureKind::Unsupported,
            Self::Thread(source) => FailureKind::of_system(source),
            Self::Fault(_) => FailureKind::Internal,
        }
    }

    /// An agent's port may be closed by a firewall between two hosts of one person.
    fn to_failure(&self) -> Failure {
        let advice = match self {
            Self::Connect { source: ConnectError::Tcp { source, .. } }
                if FailureKind::of_connect(source) == FailureKind::Unreachable =>
            {
                format!("; {}", firewall_advice("TCP"))
            }
            _ => String::new(),
        };
        Failure::new(self.failure_kind(), format!("{self}{advice}"))
    }
}

fn kind_of_connect(error: &ConnectError) -> FailureKind {
    match error {
        ConnectError::Tcp { .. } => FailureKind::Unreachable,
        ConnectError::Option(_) | ConnectError::Reads { .. } => FailureKind::Invalid,
        ConnectError::State(_) => FailureKind::Internal,
        ConnectError::System { .. } => FailureKind::Unsupported,
        ConnectError::TimedOut { .. }
        | ConnectError::Closed { .. }
        | ConnectError::Rejected { .. }
        | ConnectError::Setup { .. }
        | ConnectError::NeedsRevision2 { .. } => FailureKind::Refused,
    }
}

fn kind_of_verbs(error: &VerbsError) -> FailureKind {
    match error {
        VerbsError::Core { .. } | VerbsError::Range { .. } => FailureKind::Invalid,
        VerbsError::System { source, .. } => FailureKind::of_listen(source),
        VerbsError::Foreign { .. } | VerbsError::Transition { .. } => FailureKind::Internal,
    }
}

/// Returns the reason of a rejected connection, if its private data is text.
fn rejection(private_data: &[u8]) -> String {
    match std::str::from_utf8(private_data) {
        Ok("") => "it gave no reason".to_owned(),
        Ok(text) if !text.chars().any(char::is_control) => peer_text(text),
        _ => format!("its reason is {} bytes that are not text", private_data.len()),
    }
}

/// Returns a peer's text as one line of bounded length.
pub(crate) fn peer_text(text: &str) -> String {
    let mut line: String = text
        .chars()
        .take(PEER_TEXT_LIMIT)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if text.chars().nth(PEER_TEXT_LIMIT).is_some() {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_is_one_line_of_bounded_length() {
        assert_eq!(peer_text("busy: try again later"), "busy: try again later");
        assert_eq!(peer_text("a\nb\u{1b}[31mc"), "a b [31mc");
        let long = peer_text(&"x".repeat(1 << 20));
        assert_eq!(long.len(), PEER_TEXT_LIMIT + 3);
        assert!(long.ends_with("x..."));
    }

    #[test]
    fn a_rejection_is_repeated_where_it_is_text() {
        assert_eq!(rejection(b"busy"), "busy");
        assert_eq!(rejection(b""), "it gave no reason");
        assert_eq!(rejection(b"\x00\x01"), "its reason is 2 bytes that are not text");
        assert_eq!(rejection(&[0xff; 500]), "its reason is 500 bytes that are not text");
    }
}
