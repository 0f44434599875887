//! Changes that an agent's controller tests: pending as long as the session
//! lives, restored when it ends, by the agent or, where that one died too, by its
//! guardian.

use std::sync::{Arc, Mutex, PoisonError};

use clearstream_plan::{Applied, Event, Options, PlanError, Test, begin_test, revert};
use clearstream_schema::plan::Plan;

use super::{Guard, guardian::Guardian, ways::Ways};
use crate::exit::CommandError;

/// A change under test, with the process that restores it when this one dies.
#[derive(Debug)]
pub(super) struct Tested {
    test: Test,
    guardian: Guardian,
}

impl Tested {
    pub(super) fn journal(&self) -> &str {
        self.test.journal()
    }

    /// The change stays.
    pub(super) fn keep(self) -> Result<(), PlanError> {
        self.test.keep()?;
        self.guardian.done();
        Ok(())
    }

    /// The change was reverted by its controller.
    pub(super) fn reverted(self) {
        drop(self.test);
        self.guardian.done();
    }

    /// The session has ended: what was there before is restored. Where that fails
    /// here, the guardian tries it too.
    pub(super) fn restore(self, options: &Options) {
        if self.test.restore(options).is_ok() {
            self.guardian.done();
        }
    }
}

impl Guard {
    /// Applies a plan that is restored unless it is kept.
    pub(super) fn apply_pending(
        &self,
        plan: &Plan,
        options: &Options,
    ) -> Result<(Applied, Option<Tested>), CommandError> {
        super::settle(options)?;
        let guardian = Guardian::start()?;
        let begun: Arc<Mutex<Option<Result<Test, PlanError>>>> = Arc::default();
        let (slot, folder, told) = (Arc::clone(&begun), options.clone(), guardian.teller());
        let telling = options.clone().telling(move |event| {
            if let Event::Journaled { journal } = event {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin_test(journal, &folder));
                told.journal(journal);
            }
        });
        let before = Ways::of(&self.sessions);
        let applied = super::once_recovered(|| clearstream_plan::apply(plan, &telling))?;
        let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(journal), Some(begun)) = (&applied.journal, begun) else {
            guardian.done();
            return Ok((applied, None));
        };
        let lost = before.lost(&Ways::of(&self.sessions), false);
        match (begun, lost) {
            (Ok(test), None) => Ok((applied, Some(Tested { test, guardian }))),
            (begun, lost) => {
                let done = revert(journal, true, options);
                guardian.done();
                done?;
                begun?;
                Err(CommandError::Guarded(format!("everything was restored: {}", lost.unwrap_or_default())))
            }
        }
    }
}
