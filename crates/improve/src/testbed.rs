//! Interface of the loop to two hosts and the path between them.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use clearstream_control::PeerError;
use clearstream_diagnose::GatherError;
use clearstream_flow::FlowError;
use clearstream_schema::{
    control::FailureKind,
    diagnosis::{Diagnosis, End},
    failure::Classified,
    flow::{FlowConfig, FlowSummary},
    plan::{Setting, Step, Value},
};
use clearstream_workload::TrialError;

/// Two hosts that can be measured and changed.
pub trait Testbed {
    /// Names of the client's and the server's host.
    fn names(&self) -> (String, String);

    /// The present: a clock that only goes forward.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Expected time of one run of the flow, starting and ending included.
    fn run_time(&self, config: &FlowConfig) -> Duration;

    /// Limit of the path for this flow, diagnosed within a budget; `on_step` is
    /// called with what is done and the time that the rest takes at most.
    ///
    /// # Errors
    /// When the diagnosis fails.
    fn diagnose(
        &mut self,
        config: &FlowConfig,
        budget: Duration,
        stop: &AtomicBool,
        on_step: &mut dyn FnMut(&str, Duration),
    ) -> Result<Diagnosis, ImproveError>;

    /// One run of the flow.
    ///
    /// # Errors
    /// When there is no result.
    fn flow(&mut self, config: &FlowConfig, stop: &AtomicBool) -> Result<FlowSummary, ImproveError>;

    /// Current value of a setting of one host; nothing where it does not exist.
    ///
    /// # Errors
    /// When the host is lost.
    fn read(&mut self, end: End, setting: &Setting) -> Result<Option<Value>, ImproveError>;

    /// Changes settings of one host, all or none, pending: they are restored when
    /// this testbed is dropped, unless they are kept. Returns the journal that reverts
    /// them, or nothing when all was so already.
    ///
    /// # Errors
    /// When nothing was changed.
    fn apply(&mut self, end: End, steps: &[Step]) -> Result<Option<String>, ImproveError>;

    /// Keeps changes for good.
    ///
    /// # Errors
    /// When they are still pending.
    fn keep(&mut self, end: End, journal: &str) -> Result<(), ImproveError>;

    /// Reverts changes.
    ///
    /// # Errors
    /// When they are still effective.
    fn revert(&mut self, end: End, journal: &str) -> Result<(), ImproveError>;
}

/// Reason for aborting the loop.
#[derive(Debug, thiserror::Error)]
pub enum ImproveError {
    /// An agent refused or is gone.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A flow failed.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The diagnosis failed.
    #[error(transparent)]
    Diagnose(#[from] GatherError),
    /// The hosts have no client or no server.
    #[error(transparent)]
    Hosts(#[from] TrialError),
    /// An option of a candidate is none of a flow.
    #[error("a change of the flow: {0}")]
    Option(#[from] clearstream_schema::flow::FlowOptionError),
    /// Changes could not be reverted.
    #[error(
        "{host}: changes are still effective: {source}; there, `clearstream plan revert {journal}` reverts them"
    )]
    StillEffective {
        /// Host.
        host: String,
        /// Its journal.
        journal: String,
        /// Cause.
        source: Box<ImproveError>,
    },
    /// Too few pairs to prove anything.
    #[error("{pairs} pairs are too few to analyse: write at least {least}")]
    TooFewPairs {
        /// As requested.
        pairs: u32,
        /// The least.
        least: u32,
    },
}

impl Classified for ImproveError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Peer(error) => error.failure_kind(),
            Self::Flow(error) => error.failure_kind(),
            Self::Diagnose(error) => error.failure_kind(),
            Self::Hosts(error) => error.failure_kind(),
            Self::StillEffective { .. } => FailureKind::Partial,
            Self::Option(_) | Self::TooFewPairs { .. } => FailureKind::Invalid,
        }
    }
}

impl ImproveError {
    /// True when this candidate cannot be tried but others can: the host or
    /// the flow refused it.
    pub(crate) fn is_of_the_candidate(&self) -> bool {
        match self {
            Self::Peer(error) => matches!(error, PeerError::Refused { .. }),
            Self::Flow(FlowError::Peer(error)) => matches!(error, PeerError::Refused { .. }),
            Self::Option(_) => true,
            _ => false,
        }
    }
}
