//! What an agent answers to a controller.

use clearstream_schema::{
    control::{Failure, FailureKind},
    plan::{PlanReply, PlanRequest},
};

use crate::{Options, PlanError, apply, history, read, recover, revert, verify};

/// Answers a controller's request on this host, in the namespaces of the
/// calling thread.
pub fn handle(request: PlanRequest) -> Result<PlanReply, Failure> {
    answer(request).map_err(|error| failure(&error))
}

/// An error as a controller is told of it.
pub fn failure(error: &PlanError) -> Failure {
    Failure { kind: kind(error), message: error.to_string() }
}

fn answer(request: PlanRequest) -> Result<PlanReply, PlanError> {
    let options = Options::live()?;
    Ok(match request {
        PlanRequest::Read(settings) => PlanReply::Values(read(&settings, &options)?.into_iter().collect()),
        PlanRequest::Apply(plan) => {
            let applied = apply(&plan, &options)?;
            PlanReply::Applied { journal: applied.journal, changed_count: applied.changed.len() as u64 }
        }
        PlanRequest::Verify(plan) => PlanReply::Verified(verify(&plan, &options)?),
        PlanRequest::Revert { journal, force } => {
            PlanReply::Reverted { restored_count: revert(&journal, force, &options)?.restored_count }
        }
        PlanRequest::History => PlanReply::History(history(&options)?),
        PlanRequest::Recover => PlanReply::Recovered(recover(&options)?),
    })
}

fn kind(error: &PlanError) -> FailureKind {
    match error {
        PlanError::Busy { .. } => FailureKind::Busy,
        PlanError::Unfit(error) if error.is_forbidden() => FailureKind::Unsupported,
        PlanError::NoFolder => FailureKind::Unsupported,
        PlanError::NotRestored { .. }
        | PlanError::Storage { .. }
        | PlanError::JournalFailed { .. }
        | PlanError::Identity { .. }
        | PlanError::Connection { .. } => FailureKind::Internal,
        _ => FailureKind::Invalid,
    }
}
