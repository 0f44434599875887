//! Changes that an agent's controller tests: pending during the session, reverted
//! when it ends, by the agent or, if that died too, by its guardian.

use std::sync::{Arc, Mutex, PoisonError};

use clearstream_schema::plan::Plan;

use super::{
    Guarded,
    guarded::{refuse_superseded, retry_while_locked, settle},
    guardian::Guardian,
    report::Kind,
};
use crate::{Applied, Options, PlanError, Test, apply, begin_test, revert};

/// A change under test, with the process that reverts it when this one dies.
#[derive(Debug)]
pub(crate) struct Tested {
    test: Test,
    guardian: Guardian,
}

impl Tested {
    pub(crate) fn journal(&self) -> &str {
        self.test.journal()
    }

    /// Keeps the change.
    pub(crate) fn keep(self, options: &Options) -> Result<(), PlanError> {
        self.test.keep(options)?;
        self.guardian.done();
        Ok(())
    }

    /// Ends the test of a change that its controller has reverted.
    pub(crate) fn reverted(self) {
        drop(self.test);
        self.guardian.done();
    }

    /// Reverts the change at the end of the session. If that fails, the guardian
    /// retries.
    pub(crate) fn restore(self, options: &Options) {
        if self.test.restore(options).is_ok() {
            self.guardian.done();
        }
    }
}

impl Guarded {
    /// Applies a plan that is reverted unless it is kept.
    pub(crate) fn apply_pending(
        &self,
        plan: &Plan,
        options: &Options,
    ) -> Result<(Applied, Option<Tested>), PlanError> {
        settle(options)?;
        let guardian = self.guardian()?;
        let test: Arc<Mutex<Option<Test>>> = Arc::default();
        let (slot, outer, reporter) = (Arc::clone(&test), options.clone(), guardian.reporter());
        let tested = options.clone().before_changes(move |begun| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin_test(begun.journal, &outer)?);
            reporter.begin(begun, Kind::Tested)
        });
        let before = self.guard.snapshot();
        let applied = retry_while_locked(|| apply(plan, &tested))?;
        let test = test.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(journal), Some(test)) = (&applied.journal, test) else {
            guardian.done();
            return Ok((applied, None));
        };
        let Some(lost) = before.lost(false) else {
            refuse_superseded(journal, options)?;
            return Ok((applied, Some(Tested { test, guardian })));
        };
        let done = revert(journal, true, options);
        guardian.done();
        done?;
        Err(PlanError::Lost { lost })
    }
}
