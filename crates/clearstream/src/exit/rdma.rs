//! Exit codes of RDMA.

use std::io;

use clearstream_iwarp::verbs::{ConnectError, VerbsError};
use clearstream_rdma::RdmaError;
use clearstream_schema::ExitCode;

use crate::verbs::rdma::run::RunError;

/// A program that is not run over iWARP.
pub(super) fn rdma_run(error: &RunError) -> ExitCode {
    match error {
        RunError::NoProgram { .. } => ExitCode::Name,
        RunError::NoLibrary { .. }
        | RunError::NoSockets
        | RunError::Static { .. }
        | RunError::SetId { .. }
        | RunError::Bits { .. }
        | RunError::Breaks { .. } => ExitCode::Unsupported,
        RunError::Start { .. } => ExitCode::File,
    }
}

pub(super) fn rdma(error: &RdmaError) -> ExitCode {
    match error {
        RdmaError::Option(_) => ExitCode::Usage,
        RdmaError::Connect { source } => rdma_connect(source),
        RdmaError::Refused { .. } | RdmaError::OtherPeer { .. } => ExitCode::Refused,
        RdmaError::Lost { .. } | RdmaError::Silent { .. } => ExitCode::PeerLost,
        RdmaError::Listen { source, .. } | RdmaError::Verbs(source) => rdma_verbs(source),
        RdmaError::Memory(_) | RdmaError::Thread(_) => ExitCode::Unsupported,
        RdmaError::Fault(_) => ExitCode::Internal,
        RdmaError::Mismatch(_) => ExitCode::Partial,
        RdmaError::Stopped | RdmaError::StoppedConnecting { .. } => ExitCode::Interrupted,
    }
}

fn rdma_connect(error: &ConnectError) -> ExitCode {
    match error {
        ConnectError::Tcp { .. } => ExitCode::Unreachable,
        ConnectError::Option(_) | ConnectError::Reads { .. } => ExitCode::Usage,
        ConnectError::State(_) => ExitCode::Internal,
        ConnectError::System { .. } => ExitCode::Unsupported,
        ConnectError::TimedOut { .. }
        | ConnectError::Closed { .. }
        | ConnectError::Rejected { .. }
        | ConnectError::Setup { .. }
        | ConnectError::NeedsRevision2 { .. } => ExitCode::Refused,
    }
}

fn rdma_verbs(error: &VerbsError) -> ExitCode {
    match error {
        VerbsError::Core { .. } | VerbsError::Range { .. } => ExitCode::Usage,
        VerbsError::System { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => ExitCode::Refused,
            _ => ExitCode::Unsupported,
        },
        VerbsError::Foreign { .. } | VerbsError::Transition { .. } => ExitCode::Internal,
    }
}
