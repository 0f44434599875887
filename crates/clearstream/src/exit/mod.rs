//! Everything that can go wrong in the command, and the exit code of each.

mod plan;
mod rdma;
mod storage;

use std::{io, path::PathBuf};

use clearstream_configfile::ConfigError;
use clearstream_control::{
    PeerError, StartCause, pairing::PairingError, session::SessionEnd, tls::ServeError,
};
use clearstream_dashboard::DashboardError;
use clearstream_diagnose::{GatherError, RecordEvidenceError};
use clearstream_flow::FlowError;
use clearstream_host::capture::CaptureError;
use clearstream_improve::ImproveError;
use clearstream_lab::{LabError, LabErrorKind};
use clearstream_netconfig::routes::RenderError;
use clearstream_netlink::NetlinkError;
use clearstream_place::{PlaceError, steering::SteeringError};
use clearstream_plan::PlanError;
use clearstream_prove::ProofError;
use clearstream_ranks::RankError;
use clearstream_rdma::{AgentError, RdmaError};
use clearstream_record::RecordError;
use clearstream_report::ReportError;
use clearstream_route::{difference::DifferenceError, fabric::FabricError};
use clearstream_schema::{
    ExitCode,
    control::{Failure, FailureKind},
};
use clearstream_storage::{StorageError, semantics::SemanticsError};
use clearstream_study::StudyError;
use clearstream_watch::WatchError;
use clearstream_workload::TrialError;

use crate::verbs::{cc::CcError, rdma::run::RunError};
use plan::plan;
use rdma::{rdma, rdma_run};
use storage::{semantics, storage};

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
    /// Standard output or a signal handler.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
    /// Some trials failed or parts could not be measured.
    #[error("{0}")]
    Partial(String),
    /// A figure is below the threshold of the command line.
    #[error("{0}")]
    Threshold(String),
    /// Something that this host cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// A route query of the kernel.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The difference between current and planned routing cannot be applied.
    #[error(transparent)]
    Difference(#[from] DifferenceError),
    /// SIGINT.
    #[error("interrupted; {0}")]
    Interrupted(String),
    /// An agent.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A pairing.
    #[error(transparent)]
    Pairing(#[from] PairingError),
    /// A daemon.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A session, seen from the agent.
    #[error("session with the controller: {0}")]
    Session(#[from] SessionEnd),
    /// A study lost an agent.
    #[error("{0}")]
    StudyLost(String),
    /// The ranks of an MPI job did not come together, or lost each other.
    #[error("{0}")]
    Ranks(RankError),
    /// A flow test.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// Another measurement between hosts.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// File semantics.
    #[error(transparent)]
    Semantics(#[from] SemanticsError),
    /// A storage measurement.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A proof of routes.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// Evidence of a path.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// Evidence out of a record.
    #[error(transparent)]
    RecordEvidence(#[from] RecordEvidenceError),
    /// The loop that improves a path.
    #[error(transparent)]
    Improve(#[from] ImproveError),
    /// A placement.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A run folder.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A study.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A report.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A fabric file.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Files of routes.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The live page.
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
    /// The watch over gateways.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A verbs program.
    #[error(transparent)]
    RdmaRun(#[from] RunError),
    /// A congestion control.
    #[error(transparent)]
    CongestionControl(#[from] CcError),
    /// RDMA.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// RDMA between agents.
    #[error(transparent)]
    RdmaAgents(#[from] AgentError),
}

impl CommandError {
    /// Invalid command line.
    pub fn usage(message: &str) -> Self {
        Self::Usage(message.to_owned())
    }

    /// The documented exit code (docs/guide/exit-codes.md).
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::Usage,
            Self::Unreachable { .. } => ExitCode::Unreachable,
            Self::File { .. } | Self::RunFolder { .. } | Self::Output(_) | Self::Capture(_) => ExitCode::File,
            Self::Partial(_) => ExitCode::Partial,
            Self::Threshold(_) => ExitCode::Threshold,
            Self::Unsupported(_) => ExitCode::Unsupported,
            Self::Netlink(error) => netlink(error),
            Self::Difference(error) => match error {
                DifferenceError::NoInterface { .. } => ExitCode::Name,
                DifferenceError::Held { .. } | DifferenceError::OtherGroup { .. } => ExitCode::Refused,
                DifferenceError::UnknownGateway { .. } => ExitCode::Unreachable,
                DifferenceError::NoPriority(_) => ExitCode::Usage,
            },
            Self::Interrupted(_) => ExitCode::Interrupted,
            Self::StudyLost(_) | Self::Session(_) => ExitCode::PeerLost,
            Self::Ranks(error) => ranks(error),
            Self::Peer(error) => peer(error),
            Self::Pairing(error) => pairing(error),
            Self::Serve(error) => match error {
                ServeError::Listen { source, .. } => listen(source),
                ServeError::Identity(error) => pairing(error),
                ServeError::Panicked => ExitCode::Internal,
            },
            Self::Flow(error) => flow(error),
            Self::Semantics(error) => semantics(error),
            Self::Storage(error) => storage(error),
            Self::Plan(error) => plan(error),
            Self::Proof(error) => match error {
                ProofError::Peer(error) => peer(error),
                ProofError::Flow(error) => flow(error),
                ProofError::Nothing(_) => ExitCode::Usage,
            },
            Self::Gather(error) => gather(error),
            Self::Improve(error) => improve(error),
            Self::RecordEvidence(error) => match error {
                RecordEvidenceError::Record(error) => record(error),
                RecordEvidenceError::NoFlow { .. } | RecordEvidenceError::NoTrial { .. } => ExitCode::Name,
            },
            Self::Place(error) => place(error),
            Self::Lab(error) => lab(error.kind()),
            Self::Trial(error) => trial(error),
            Self::Config(error) => config(error),
            Self::Fabric(error) => match error {
                FabricError::Config(error) => config(error),
                FabricError::NoHost { .. } | FabricError::NoClass { .. } => ExitCode::Name,
            },
            Self::Render(error) => match error {
                RenderError::Unwritable { .. }
                | RenderError::Inconsistent { .. }
                | RenderError::NotByHost
                | RenderError::Twice(_) => ExitCode::Usage,
                RenderError::NotEmpty { .. } => ExitCode::Name,
                RenderError::Write { .. } => ExitCode::File,
            },
            Self::Dashboard(_) => ExitCode::Refused,
            Self::Watch(error) => watch(error),
            Self::RdmaRun(error) => rdma_run(error),
            Self::CongestionControl(error) => congestion_control(error),
            Self::Rdma(error) => rdma(error),
            Self::RdmaAgents(error) => match error {
                AgentError::Peer(error) => peer(error),
                AgentError::Failed { failure: reason, .. } => failure(reason),
                AgentError::Stopped => ExitCode::Interrupted,
            },
            Self::Record(error) => record(error),
            Self::Study(error) => study(error),
            Self::Report(error) => match error {
                ReportError::Record(error) => record(error),
                ReportError::Detail { .. } => ExitCode::File,
                ReportError::Page(_) => ExitCode::Internal,
            },
        }
    }
}

fn netlink(error: &NetlinkError) -> ExitCode {
    match error {
        NetlinkError::NoInterface { .. } => ExitCode::Name,
        // A kernel that replies otherwise than documented.
        NetlinkError::Garbled(_)
        | NetlinkError::Socket { .. }
        | NetlinkError::Diagnostics { .. }
        | NetlinkError::Refused { .. }
        | NetlinkError::Unfit { .. } => ExitCode::Unsupported,
    }
}

fn lab(kind: LabErrorKind) -> ExitCode {
    match kind {
        LabErrorKind::Invalid => ExitCode::Usage,
        LabErrorKind::Name => ExitCode::Name,
        LabErrorKind::HostDead => ExitCode::PeerLost,
        LabErrorKind::Unsupported => ExitCode::Unsupported,
        LabErrorKind::File => ExitCode::File,
        LabErrorKind::Interrupted => ExitCode::Interrupted,
        LabErrorKind::Internal => ExitCode::Internal,
    }
}

fn watch(error: &WatchError) -> ExitCode {
    match error {
        WatchError::NothingToWatch { .. } => ExitCode::Usage,
        WatchError::NotRunning => ExitCode::Unreachable,
        WatchError::NotApplied
        | WatchError::AlreadyRunning { .. }
        | WatchError::Stranger
        | WatchError::Refused { .. } => ExitCode::Refused,
        WatchError::Silent { .. } => ExitCode::PeerLost,
        WatchError::Socket { .. } | WatchError::Netlink(_) => ExitCode::Unsupported,
    }
}

fn congestion_control(error: &CcError) -> ExitCode {
    match error {
        CcError::Unknown { .. } => ExitCode::Name,
        CcError::Read(_) => ExitCode::File,
        CcError::NoLoader { .. } | CcError::Start(_) => ExitCode::Unsupported,
        // The loader's codes are those of this program; a signal leaves none.
        CcError::Loader { code, .. } => {
            let known = ExitCode::ALL.into_iter().find(|known| Some(*known as i32) == *code);
            // Killed, or a code that is none of ours: a program of this host that fails.
            known.filter(|known| *known != ExitCode::Success).unwrap_or(ExitCode::Unsupported)
        }
    }
}

/// An address that cannot be listened on.
fn listen(error: &io::Error) -> ExitCode {
    match error.kind() {
        io::ErrorKind::AddrInUse => ExitCode::Refused,
        io::ErrorKind::AddrNotAvailable => ExitCode::Usage,
        _ => failure_kind(FailureKind::of_system(error)),
    }
}

fn ranks(error: &RankError) -> ExitCode {
    match error {
        RankError::Load(_) => ExitCode::Unsupported,
        _ => ExitCode::PeerLost,
    }
}

fn peer(error: &PeerError) -> ExitCode {
    match error {
        PeerError::Start { cause, .. } => match cause {
            StartCause::UnknownHost
            | StartCause::Connection
            | StartCause::Dropped
            | StartCause::NotAnAgent
            | StartCause::Other => ExitCode::Unreachable,
            StartCause::Program | StartCause::Limit => ExitCode::Unsupported,
            StartCause::Authentication | StartCause::HostKey => ExitCode::Refused,
        },
        PeerError::Pairing { .. } | PeerError::Version { .. } => ExitCode::Refused,
        // One that breaks the protocol is no fault of this program.
        PeerError::Lost { .. }
        | PeerError::Unanswered { .. }
        | PeerError::Skew { .. }
        | PeerError::Protocol { .. } => ExitCode::PeerLost,
        PeerError::Refused { failure: reason, .. } => failure(reason),
        PeerError::Stopped { .. } => ExitCode::Interrupted,
    }
}

fn trial(error: &TrialError) -> ExitCode {
    if error.stopped { ExitCode::Interrupted } else { failure(&error.failure) }
}

fn failure(failure: &Failure) -> ExitCode {
    failure_kind(failure.kind)
}

fn failure_kind(kind: FailureKind) -> ExitCode {
    match kind {
        FailureKind::Invalid => ExitCode::Usage,
        FailureKind::Unsupported => ExitCode::Unsupported,
        FailureKind::Busy | FailureKind::InUse | FailureKind::Forbidden => ExitCode::Refused,
        FailureKind::Connection => ExitCode::PeerLost,
        FailureKind::Unreachable => ExitCode::Unreachable,
        FailureKind::File => ExitCode::File,
        FailureKind::Internal => ExitCode::Internal,
    }
}

fn pairing(error: &PairingError) -> ExitCode {
    match error {
        PairingError::File { .. } | PairingError::Unusable { .. } => ExitCode::File,
        PairingError::Token { .. } | PairingError::NoHome => ExitCode::Usage,
        PairingError::Name { .. } => ExitCode::Name,
        PairingError::Certificate(_) => ExitCode::Internal,
    }
}

fn record(error: &RecordError) -> ExitCode {
    match error {
        RecordError::NoRun { .. } | RecordError::Exists { .. } => ExitCode::Name,
        RecordError::Busy { .. } => ExitCode::Refused,
        RecordError::Full { .. }
        | RecordError::FullAtStart { .. }
        | RecordError::Write { .. }
        | RecordError::Read { .. }
        | RecordError::Malformed { .. }
        | RecordError::Version { .. }
        | RecordError::Outside { .. } => ExitCode::File,
    }
}

fn gather(error: &GatherError) -> ExitCode {
    match error {
        GatherError::Peer(error) => peer(error),
        GatherError::Flow(error) => flow(error),
        GatherError::Hosts(error) => trial(error),
        GatherError::Lab(error) => lab(error.kind()),
    }
}

fn improve(error: &ImproveError) -> ExitCode {
    match error {
        ImproveError::Peer(error) => peer(error),
        ImproveError::Flow(error) => flow(error),
        ImproveError::Diagnose(error) => gather(error),
        ImproveError::Hosts(error) => trial(error),
        ImproveError::StillEffective { .. } => ExitCode::Partial,
        ImproveError::Option(_) | ImproveError::TooFewPairs { .. } => ExitCode::Usage,
    }
}

fn place(error: &PlaceError) -> ExitCode {
    match error {
        PlaceError::NoInterface { .. } => ExitCode::Name,
        PlaceError::WhichInterface { .. } | PlaceError::Core { .. } => ExitCode::Usage,
        PlaceError::NoCores { .. } => ExitCode::Unsupported,
        PlaceError::Steering(error) => match error {
            SteeringError::Queue { .. } | SteeringError::Request(_) | SteeringError::NoPort { .. } => {
                ExitCode::Usage
            }
            SteeringError::NoKey { .. }
            | SteeringError::OneQueue { .. }
            | SteeringError::Function { .. }
            | SteeringError::Transform { .. }
            | SteeringError::Fields { .. }
            | SteeringError::Key { .. } => ExitCode::Unsupported,
        },
    }
}

fn config(error: &ConfigError) -> ExitCode {
    match error {
        ConfigError::Unknown { .. } => ExitCode::Name,
        ConfigError::Read { .. } => ExitCode::File,
        ConfigError::Invalid { .. } => ExitCode::Usage,
    }
}

fn study(error: &StudyError) -> ExitCode {
    match error {
        StudyError::Config(error) => config(error),
        StudyError::Experiment { .. } => ExitCode::Name,
        StudyError::LabOnly { .. }
        | StudyError::LabWorkload { .. }
        | StudyError::Role { .. }
        | StudyError::Workload { .. }
        | StudyError::Level { .. }
        | StudyError::TooLarge { .. }
        | StudyError::TooLong { .. }
        | StudyError::Changed { .. }
        | StudyError::OtherOptions { .. } => ExitCode::Usage,
        StudyError::Describe { failure: reason, .. } | StudyError::Options { failure: reason, .. } => {
            failure(reason)
        }
        StudyError::Lost { .. } => ExitCode::PeerLost,
        StudyError::Record(error) => record(error),
    }
}

fn flow(error: &FlowError) -> ExitCode {
    match error {
        FlowError::Invalid(reason) | FlowError::Failed { failure: reason, .. } => failure(reason),
        FlowError::Peer(error) => peer(error),
        FlowError::PeerLost { source, .. } => peer(source),
    }
}

#[cfg(test)]
mod tests;
