//! What an agent does with plans on its host for a controller. Nobody there can
//! force or confirm: what would cut or move the connection, an ssh session or the
//! default route is refused, and restored where the kernel's lookup says so
//! afterwards. Whoever the controller is, no setting outside of the families is
//! read, changed or restored for it.

use clearstream_control::{Call, CallContext, Done, Registration, Service};
use clearstream_plan::{
    Options, Permitted, PlanError,
    calls::{
        Applied, Apply, ApplyPending, History, Journals, Keep, Read, Recover, Recoveries, Revert, Reverted,
        Values, Verify,
    },
    check_settings, failure, history, read, recover, verify,
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    plan::{Plan, Verification},
};

use super::{Guard, tested::Tested};
use crate::exit::CommandError;

/// Plans that one session carries out: dropped, what it has under test is restored.
#[derive(Debug, Default)]
pub struct Plans {
    /// The oldest first.
    tested: Vec<Tested>,
}

impl Service for Plans {
    fn register(calls: &mut Registration<Self>) {
        on(calls, Self::read);
        on(calls, Self::apply);
        on(calls, Self::apply_pending);
        on(calls, Self::keep);
        on(calls, Self::verify);
        on(calls, Self::revert);
        on(calls, Self::history);
        on(calls, Self::recover);
    }
}

/// Registers what serves a call on this host, in the namespaces of the calling
/// thread.
fn on<C: Call + 'static>(
    calls: &mut Registration<Plans>,
    serve: impl Fn(&mut Plans, C, Options) -> Result<C::Reply, CommandError> + Send + 'static,
) {
    calls.on(move |plans: &mut Plans, call: C, _: &CallContext<'_>| {
        let served = options().map_err(CommandError::from).and_then(|options| serve(plans, call, options));
        served.map_err(|error| match error {
            CommandError::Plan(error) => failure(&error),
            CommandError::Guarded(message) => Failure { kind: FailureKind::Invalid, message },
            error => Failure { kind: FailureKind::Internal, message: error.to_string() },
        })
    });
}

impl Plans {
    fn read(&mut self, call: Read, options: Options) -> Result<Values, CommandError> {
        Ok(Values { values: read(&call.settings, &options)?.into_iter().collect() })
    }

    fn apply(&mut self, Apply { plan }: Apply, options: Options) -> Result<Applied, CommandError> {
        Ok(applied(&guard_for(&plan, &options)?.apply(&plan, options, |_| {})?))
    }

    fn apply_pending(&mut self, call: ApplyPending, options: Options) -> Result<Applied, CommandError> {
        let (done, tested) = guard_for(&call.plan, &options)?.apply_pending(&call.plan, &options)?;
        self.tested.extend(tested);
        Ok(applied(&done))
    }

    fn keep(&mut self, Keep { journal }: Keep, _: Options) -> Result<Done, CommandError> {
        let Some(tested) = self.take(&journal) else {
            let message = format!("journal {journal} is not under test in this session");
            return Err(CommandError::Guarded(message));
        };
        tested.keep()?;
        Ok(Done {})
    }

    fn verify(&mut self, Verify { plan }: Verify, options: Options) -> Result<Verification, CommandError> {
        Ok(verify(&plan, &options)?)
    }

    /// Forced are values that somebody else changed, not connections.
    fn revert(&mut self, call: Revert, options: Options) -> Result<Reverted, CommandError> {
        let Revert { journal, force } = call;
        let way_out = "run clearstream route revert --force on that host";
        let done = Guard::of_agent().put_back(&journal, force, way_out, &options)?;
        if let Some(tested) = self.take(&journal) {
            tested.reverted();
        }
        Ok(Reverted { restored_count: done.restored_count })
    }

    fn history(&mut self, _: History, options: Options) -> Result<Journals, CommandError> {
        Ok(Journals { journals: history(&options)? })
    }

    fn recover(&mut self, _: Recover, options: Options) -> Result<Recoveries, CommandError> {
        Ok(Recoveries { journals: recover(&options)? })
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

fn applied(done: &clearstream_plan::Applied) -> Applied {
    Applied { journal: done.journal.clone(), changed_count: done.changed.len() as u64 }
}
