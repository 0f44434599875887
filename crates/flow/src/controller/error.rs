//! Errors of a flow test.

use clearstream_control::PeerError;
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
    flow::FlowSummary,
};

/// Why a flow test did not complete.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The configuration is invalid on any host; nothing was changed.
    #[error("{0}")]
    Invalid(Failure),
    /// An agent refused the request, or was lost before data flowed.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// An agent was lost while data flowed.
    #[error("{source}; results cover the time up to the interruption")]
    PeerLost {
        /// How the agent was lost.
        source: PeerError,
        /// Results up to the interruption, with `complete` false.
        partial: Box<FlowSummary>,
    },
    /// An agent is reachable but its part of the test failed.
    #[error("{name}: {failure}")]
    Failed {
        /// The agent.
        name: String,
        /// Cause.
        failure: Failure,
        /// Results up to the failure, if data flowed at all.
        partial: Option<Box<FlowSummary>>,
    },
}

impl Classified for FlowError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Invalid(failure) | Self::Failed { failure, .. } => failure.kind,
            Self::Peer(error) | Self::PeerLost { source: error, .. } => error.failure_kind(),
        }
    }
}

impl FlowError {
    /// Results up to the interruption.
    pub fn partial(&self) -> Option<&FlowSummary> {
        match self {
            Self::PeerLost { partial, .. } => Some(partial),
            Self::Failed { partial, .. } => partial.as_deref(),
            Self::Invalid(_) | Self::Peer(_) => None,
        }
    }

    /// The failure reported by a host, for the exit code.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Invalid(failure) | Self::Failed { failure, .. } => Some(failure),
            Self::Peer(error) | Self::PeerLost { source: error, .. } => error.failure(),
        }
    }
}
