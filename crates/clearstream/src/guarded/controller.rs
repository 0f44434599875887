//! What an agent does with plans on its host for a controller. Nobody there can
//! force or confirm: what would cut or move the connection, an ssh session or the
//! default route is refused, and restored where the kernel's lookup says so
//! afterwards. Whoever the controller is, no setting outside of the families is
//! read, changed or restored for it.

use clearstream_plan::{
    Applied, Options, Permitted, PlanError, check_settings, failure, history, read, recover, verify,
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    plan::{Plan, PlanReply, PlanRequest},
};

use super::{Guard, tested::Tested};
use crate::exit::CommandError;

/// Plans that one session carries out: dropped, what it has under test is restored.
#[derive(Debug, Default)]
pub struct Plans {
    /// The oldest first.
    tested: Vec<Tested>,
}

impl Plans {
    /// Answers a controller's request on this host, in the namespaces of the
    /// calling thread.
    pub fn handle(&mut self, request: PlanRequest) -> Result<PlanReply, Failure> {
        self.answer(request).map_err(|error| match error {
            CommandError::Plan(error) => failure(&error),
            CommandError::Guarded(message) => Failure { kind: FailureKind::Invalid, message },
            error => Failure { kind: FailureKind::Internal, message: error.to_string() },
        })
    }

    fn answer(&mut self, request: PlanRequest) -> Result<PlanReply, CommandError> {
        let options = options()?;
        Ok(match request {
            PlanRequest::Read(settings) => {
                PlanReply::Values(read(&settings, &options)?.into_iter().collect())
            }
            PlanRequest::Apply(plan) => {
                applied(&guard_for(&plan, &options)?.apply(&plan, options, |_| {})?)
            }
            PlanRequest::ApplyPending(plan) => {
                let (done, tested) = guard_for(&plan, &options)?.apply_pending(&plan, &options)?;
                self.tested.extend(tested);
                applied(&done)
            }
            PlanRequest::Keep { journal } => {
                let Some(tested) = self.take(&journal) else {
                    let message = format!("journal {journal} is not under test in this session");
                    return Err(CommandError::Guarded(message));
                };
                tested.keep()?;
                PlanReply::Kept
            }
            PlanRequest::Verify(plan) => PlanReply::Verified(verify(&plan, &options)?),
            // Forced are values that somebody else changed, not connections.
            PlanRequest::Revert { journal, force } => {
                let way_out = "run clearstream route revert --force on that host";
                let done = Guard::of_agent().put_back(&journal, force, way_out, &options)?;
                if let Some(tested) = self.take(&journal) {
                    tested.reverted();
                }
                PlanReply::Reverted { restored_count: done.restored_count }
            }
            PlanRequest::History => PlanReply::History(history(&options)?),
            PlanRequest::Recover => PlanReply::Recovered(recover(&options)?),
        })
    }

    fn take(&mut self, journal: &str) -> Option<Tested> {
        let at = self.tested.iter().position(|tested| tested.journal() == journal)?;
        Some(self.tested.remove(at))
    }
}

impl Drop for Plans {
    fn drop(&mut self) {
        let Ok(options) = options() else { return };
        while let Some(tested) = self.tested.pop() {
            tested.restore(&options);
        }
    }
}

fn options() -> Result<Options, PlanError> {
    Ok(Options::live()?.permitting(Permitted::FamiliesOnly))
}

/// The guard of a plan whose settings are permitted: what is not is refused before
/// anything is looked at or started for it.
fn guard_for(plan: &Plan, options: &Options) -> Result<Guard, CommandError> {
    check_settings(plan, options)?;
    let guard = Guard::of_agent();
    let way_out = "run clearstream route apply with --confirm-within 60s on that host";
    guard.refuse_with(&guard.dangers(plan)?, way_out)?;
    Ok(guard)
}

fn applied(done: &Applied) -> PlanReply {
    PlanReply::Applied { journal: done.journal.clone(), changed_count: done.changed.len() as u64 }
}
