//! What can go wrong in an RDMA test, in a measurement or a ping.

use std::{io, net::SocketAddr};

use clearstream_iwarp::{
    memory::MemoryError,
    verbs::{ConnectError, VerbsError},
};

/// Why an RDMA test did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// An option that makes no sense, here or at the far end.
    #[error("{0}")]
    Option(String),
    /// No connection.
    #[error("{source}; is `clearstream rdma serve` (or rping) listening there?")]
    Connect {
        /// Why.
        #[source]
        source: ConnectError,
    },
    /// A connection that the far end refused.
    #[error("{peer} refused: {reason}")]
    Refused {
        /// The far end.
        peer: SocketAddr,
        /// In its words.
        reason: String,
    },
    /// Something else than what is needed answers there.
    #[error("{peer} speaks iWARP and not as {expected} does: {seen}")]
    OtherPeer {
        /// The far end.
        peer: SocketAddr,
        /// What was wanted there.
        expected: &'static str,
        /// What it did.
        seen: String,
    },
    /// The connection broke.
    #[error("connection to {peer} lost: {reason}")]
    Lost {
        /// The far end.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
    /// No address to listen on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: VerbsError,
    },
    /// A verb.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// Memory that could not be registered.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A fault of this program.
    #[error("{0}: please report it")]
    Fault(String),
    /// What came back is not what was sent.
    #[error("{0}")]
    Mismatch(String),
    /// Asked to stop.
    #[error("interrupted; the figures are of the time until then")]
    Stopped,
    /// Asked to stop before there was a connection.
    #[error("interrupted; {peer} had not answered until then")]
    StoppedConnecting {
        /// The far end.
        peer: SocketAddr,
    },
}

impl RdmaError {
    /// Options that this host cannot carry out: other options would do.
    #[must_use]
    pub fn is_option(&self) -> bool {
        matches!(self, Self::Option(_) | Self::Verbs(VerbsError::Core { .. } | VerbsError::Range { .. }))
    }
}

impl From<ConnectError> for RdmaError {
    fn from(source: ConnectError) -> Self {
        match source {
            ConnectError::Rejected { peer, private_data } => {
                Self::Refused { peer, reason: words(&private_data) }
            }
            source => Self::Connect { source },
        }
    }
}

/// What a peer had to say, as far as it is text.
fn words(private_data: &[u8]) -> String {
    match std::str::from_utf8(private_data) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.to_owned(),
        Ok("") => "it gave no reason".to_owned(),
        _ => format!("its reason is {} bytes that are no text", private_data.len()),
    }
}
