//! Changes that an agent's controller tests: pending during the session, reverted
//! when it ends, by the agent or, if that died too, by its guardian.

use std::sync::{Arc, Mutex, PoisonError};

use clearstream_schema::plan::Plan;

use super::{
    Guarded,
    guarded::{retry_until_recovered, settle},
    guardian::Guardian,
};
use crate::{Applied, Event, Options, PlanError, Test, apply, begin_test, revert};

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
    pub(crate) fn keep(self) -> Result<(), PlanError> {
        self.test.keep()?;
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
        let begun: Arc<Mutex<Option<Result<Test, PlanError>>>> = Arc::default();
        let (slot, outer, reporter) = (Arc::clone(&begun), options.clone(), guardian.reporter());
        let observed = options.clone().on_event(move |event| {
            if let Event::Journaled { journal } = event {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin_test(journal, &outer));
                reporter.journal(journal);
            }
            outer.emit(event);
        });
        let before = self.guard.snapshot();
        let applied = retry_until_recovered(|| apply(plan, &observed))?;
        let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(journal), Some(begun)) = (&applied.journal, begun) else {
            guardian.done();
            return Ok((applied, None));
        };
        match (begun, before.lost(false)) {
            (Ok(test), None) => Ok((applied, Some(Tested { test, guardian }))),
            (begun, lost) => {
                let done = revert(journal, true, options);
                guardian.done();
                done?;
                begun?;
                Err(PlanError::Lost { lost: lost.unwrap_or_default() })
            }
        }
    }
}
