//! The service of an agent for plans. A controller can neither force nor confirm: a
//! plan that would cut or change the path of its connection, of an ssh session or
//! of the default route is rejected, and reverted if the guard finds a path lost
//! afterwards. Other changes that cut the session (an MTU, a sysctl, a queueing
//! discipline) are reverted with it: a change is kept only after the controller has
//! received the reply. No setting outside of the families is read, changed or
//! restored for any controller.

use clearstream_control::{Call, CallContext, Done, Registration, Service};
use clearstream_schema::{
    failure::Classified,
    plan::{Plan, Verification},
};

use crate::{
    Guarded, Options, Permitted, PlanError,
    calls::{
        Applied, Apply, ApplyPending, History, Journals, Keep, Read, Recover, Recoveries, Revert, Reverted,
        Values, Verify,
    },
    check_settings,
    guard::Tested,
    history, read, recover, verify,
};

/// Plans that one session applies: dropping it reverts its changes under test.
#[derive(Debug)]
pub struct Plans {
    guarded: fn() -> Guarded,
    /// The oldest first.
    tested: Vec<Tested>,
    /// Applied, and kept with the next request of the controller.
    held: Vec<Tested>,
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
        calls.on_contact(Self::release);
    }
}

/// Registers the handler of a call on this host, in the namespaces of the calling
/// thread.
fn on<C: Call + 'static>(
    calls: &mut Registration<Plans>,
    serve: impl Fn(&mut Plans, C, Options) -> Result<C::Reply, PlanError> + Send + 'static,
) {
    calls.on(move |plans: &mut Plans, call: C, context: &CallContext<'_>| {
        // The account that started the agent can load modules itself.
        let permitted = match context.controller() {
            Some(_) => Permitted::FamiliesLoaded,
            None => Permitted::FamiliesOnly,
        };
        let options = options().map(|options| options.permitting(permitted));
        options.and_then(|options| serve(plans, call, options)).map_err(|error| error.to_failure())
    });
}

impl Plans {
    /// `guarded` makes the guard at the time of a call, with the connections of the
    /// agent at that time.
    pub fn new(guarded: fn() -> Guarded) -> Self {
        Self { guarded, tested: Vec::new(), held: Vec::new() }
    }

    fn read(&mut self, call: Read, options: Options) -> Result<Values, PlanError> {
        let values = read(&call.settings, &options)?.into_iter();
        Ok(Values { values: values.map(|(setting, value)| (setting, value.to_string())).collect() })
    }

    fn apply(&mut self, Apply { plan }: Apply, options: Options) -> Result<Applied, PlanError> {
        let (done, held) = self.guarded_for(&plan, &options)?.apply_pending(&plan, &options)?;
        self.held.extend(held);
        Ok(applied(&done))
    }

    /// Keeps the changes whose reply the controller has received. The guardian
    /// reverts what cannot be kept.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        // Without them what is held stays so, and is restored at the end.
        let Ok(options) = options() else { return };
        for held in self.held.drain(..) {
            if let Err(error) = held.keep(&options) {
                tracing::error!(reason = %error, "a change could not be kept and is restored");
            }
        }
    }

    fn apply_pending(&mut self, call: ApplyPending, options: Options) -> Result<Applied, PlanError> {
        let (done, tested) = self.guarded_for(&call.plan, &options)?.apply_pending(&call.plan, &options)?;
        self.tested.extend(tested);
        Ok(applied(&done))
    }

    fn keep(&mut self, Keep { journal }: Keep, options: Options) -> Result<Done, PlanError> {
        let Some(tested) = self.take(&journal) else {
            return Err(PlanError::NotUnderTest { journal });
        };
        tested.keep(&options)?;
        Ok(Done {})
    }

    fn verify(&mut self, Verify { plan }: Verify, options: Options) -> Result<Verification, PlanError> {
        verify(&plan, &options)
    }

    /// Force applies to values that others changed, not to connections.
    fn revert(&mut self, call: Revert, options: Options) -> Result<Reverted, PlanError> {
        let Revert { journal, force } = call;
        let remedy = "run clearstream plan revert --force on that host";
        let done = (self.guarded)().restore_journal(&journal, force, remedy, &options)?;
        if let Some(tested) = self.take(&journal) {
            tested.reverted();
        }
        Ok(Reverted { restored_count: done.restored_count, gone: done.gone })
    }

    fn history(&mut self, _: History, options: Options) -> Result<Journals, PlanError> {
        Ok(Journals { journals: history(&options)? })
    }

    fn recover(&mut self, _: Recover, options: Options) -> Result<Recoveries, PlanError> {
        Ok(Recoveries { journals: recover(&options)? })
    }

    fn take(&mut self, journal: &str) -> Option<Tested> {
        let at = self.tested.iter().position(|tested| tested.journal() == journal)?;
        Some(self.tested.remove(at))
    }

    /// The guard of a plan whose settings are permitted: others are refused before
    /// anything is read or started for it.
    fn guarded_for(&self, plan: &Plan, options: &Options) -> Result<Guarded, PlanError> {
        check_settings(plan, options)?;
        let guarded = (self.guarded)();
        let remedy = "run clearstream plan apply with --confirm-within 60s on that host";
        guarded.refuse_with(guarded.dangers(plan)?, remedy)?;
        Ok(guarded)
    }
}

impl Drop for Plans {
    fn drop(&mut self) {
        let Ok(options) = options() else { return };
        // The youngest first.
        self.tested.append(&mut self.held);
        while let Some(tested) = self.tested.pop() {
            tested.restore(&options);
        }
    }
}

fn options() -> Result<Options, PlanError> {
    Ok(Options::live()?.permitting(Permitted::FamiliesOnly))
}

fn applied(done: &crate::Applied) -> Applied {
    Applied { journal: done.journal.clone(), changed_count: done.changed.len() as u64 }
}
