//! What an agent does with plans on its host for a controller. Nobody there can
//! force or confirm: what would cut or move the connection, an ssh session or the
//! default route is refused, and put back where the kernel's lookup says so
//! afterwards.

use clearstream_plan::{Options, failure, history, read, recover, verify};
use clearstream_schema::{
    control::{Failure, FailureKind},
    plan::{PlanReply, PlanRequest},
};

use super::Guard;
use crate::exit::CommandError;

/// Answers a controller's request on this host, in the namespaces of the
/// calling thread.
pub fn handle(request: PlanRequest) -> Result<PlanReply, Failure> {
    answer(request).map_err(|error| match error {
        CommandError::Plan(error) => failure(&error),
        CommandError::Guarded(message) => Failure { kind: FailureKind::Invalid, message },
        error => Failure { kind: FailureKind::Internal, message: error.to_string() },
    })
}

fn answer(request: PlanRequest) -> Result<PlanReply, CommandError> {
    let options = Options::live()?;
    Ok(match request {
        PlanRequest::Read(settings) => PlanReply::Values(read(&settings, &options)?.into_iter().collect()),
        PlanRequest::Apply(plan) => {
            let guard = Guard::of_agent();
            let way_out = "run clearstream route apply with --confirm-within 60s on that host";
            guard.refuse_with(&guard.dangers(&plan)?, way_out)?;
            let applied = guard.apply(&plan, options, |_| {})?;
            PlanReply::Applied { journal: applied.journal, changed_count: applied.changed.len() as u64 }
        }
        PlanRequest::Verify(plan) => PlanReply::Verified(verify(&plan, &options)?),
        // Forced are values that somebody else changed, not connections.
        PlanRequest::Revert { journal, force } => {
            let way_out = "run clearstream route revert --force on that host";
            let done = Guard::of_agent().put_back(&journal, force, way_out, &options)?;
            PlanReply::Reverted { restored_count: done.restored_count }
        }
        PlanRequest::History => PlanReply::History(history(&options)?),
        PlanRequest::Recover => PlanReply::Recovered(recover(&options)?),
    })
}
