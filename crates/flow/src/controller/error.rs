//! Why a flow test did not end as asked.

use clearstream_control::PeerError;
use clearstream_schema::{control::Failure, flow::FlowSummary};

/// Why a flow test did not end as asked.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The configuration makes no sense on any host; nothing was done.
    #[error("{0}")]
    Invalid(Failure),
    /// An agent refused, or was lost before data flowed.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// An agent was lost while data flowed.
    #[error("{source}; the figures are of the time until then")]
    PeerLost {
        /// How it was lost.
        source: PeerError,
        /// What was measured until then, with `complete` false.
        partial: Box<FlowSummary>,
    },
    /// An agent is there but its part of the test failed.
    #[error("{name}: {failure}")]
    Failed {
        /// The agent.
        name: String,
        /// Why.
        failure: Failure,
        /// What was measured until then, if data flowed at all.
        partial: Option<Box<FlowSummary>>,
    },
}

impl FlowError {
    /// What was measured before the test broke off.
    pub fn partial(&self) -> Option<&FlowSummary> {
        match self {
            Self::PeerLost { partial, .. } => Some(partial),
            Self::Failed { partial, .. } => partial.as_deref(),
            Self::Invalid(_) | Self::Peer(_) => None,
        }
    }

    /// The failure that a host gave as the reason, for the exit code.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Invalid(failure) | Self::Failed { failure, .. } => Some(failure),
            Self::Peer(error) | Self::PeerLost { source: error, .. } => error.failure(),
        }
    }
}
