//! Guarded apply and revert: lockout protection, a guardian process that outlives
//! the command, and confirm-within.

use std::{
    fmt, io,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::plan::{JournalState, Plan};

use super::{Danger, Guard, guardian::Guardian, report::Kind};
use crate::{
    Applied, Begun, Options, Permitted, PlanError, Reverted, apply, await_confirmation,
    confirm::{self, Deadline},
    expire, folder, plan_back, plan_of,
    restore::gone,
    revert, unconfirmed,
};

/// Maximum wait for a guardian that restores what a process that died left; a busy host
/// may need seconds.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Carries out plans and reverts journals under a guard.
pub struct Guarded {
    pub(super) guard: Box<dyn Guard>,
    guardian: Box<dyn Fn() -> io::Result<Command>>,
    force: bool,
    within: Option<Duration>,
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { force, within, .. } = self;
        f.debug_struct("Guarded").field("force", force).field("within", within).finish_non_exhaustive()
    }
}

impl Guarded {
    /// `guardian` is the command of the guardian process, which does its
    /// [duty](super::Duty) with what it reads from its standard input.
    pub fn new(guard: impl Guard + 'static, guardian: impl Fn() -> io::Result<Command> + 'static) -> Self {
        Self { guard: Box::new(guard), guardian: Box::new(guardian), force: false, within: None }
    }

    /// Proceeds also where a guarded path is cut or changed, or, for a revert, where the
    /// live value is neither ours nor the old one.
    #[must_use]
    pub fn forcing(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// Reverts the change unless it is [confirmed](crate::confirm()) within this time.
    #[must_use]
    pub fn confirmed_within(self, within: Option<Duration>) -> Self {
        Self { within, ..self }
    }

    /// Predicted effects of a plan on the guarded paths.
    pub fn dangers(&self, plan: &Plan) -> Result<Vec<Danger>, PlanError> {
        if !self.guard.is_touched_by(plan) {
            return Ok(Vec::new());
        }
        self.guard.dangers(plan)
    }

    /// Rejects a plan that cuts a path, unless forced; one that changes a path is also
    /// accepted with confirm-within.
    pub fn refuse(&self, found: Vec<Danger>) -> Result<(), PlanError> {
        let remedy = if found.iter().any(|danger| danger.is_cut) {
            "--force does it all the same"
        } else {
            "add --confirm-within 60s, which reverts the change unless you confirm, or --force"
        };
        self.refuse_with(found, remedy)
    }

    /// The same, with a remedy for the error message.
    pub(crate) fn refuse_with(&self, mut found: Vec<Danger>, remedy: &'static str) -> Result<(), PlanError> {
        found.retain(|danger| !self.force && (danger.is_cut || self.within.is_none()));
        if found.is_empty() { Ok(()) } else { Err(PlanError::Dangerous { dangers: found, remedy }) }
    }

    /// Applies a plan. One that concerns guarded paths, or has to be confirmed, gets a
    /// guardian, and is reverted when a path is lost afterwards.
    pub fn apply(&self, plan: &Plan, options: &Options) -> Result<Applied, PlanError> {
        if !self.guard.is_touched_by(plan) && self.within.is_none() {
            return retry_while_locked(|| apply(plan, options));
        }
        settle(options)?;
        let within = self.within;
        let guardian = self.guardian()?;
        let (reporter, outer) = (guardian.reporter(), options.clone());
        // If this process dies from here on, the change is reverted in any case.
        let options = options.clone().before_changes(move |begun| {
            let kind = match within {
                Some(within) => {
                    await_confirmation(begun.journal, within, &outer)?;
                    Kind::Confirmed(Deadline::within(within))
                }
                None => Kind::Applied,
            };
            reporter.begin(begun, kind)
        });
        let before = self.guard.snapshot();
        let applied = retry_while_locked(|| apply(plan, &options))?;
        let Some(journal) = &applied.journal else {
            guardian.done();
            return Ok(applied);
        };
        let lost = if self.force { None } else { before.lost(within.is_some()) };
        // The time counts from here.
        let begun = within.map_or(Ok(()), |within| {
            guardian.reporter().waits(Deadline::within(within));
            await_confirmation(journal, within, &options)
        });
        if lost.is_none() && begun.is_ok() {
            guardian.done();
            if within.is_some() {
                refuse_superseded(journal, &options)?;
            }
            return Ok(applied);
        }
        let done = revert(journal, true, &options);
        guardian.done();
        done?;
        begun?;
        Err(PlanError::Lost { lost: lost.unwrap_or_default() })
    }

    /// Restores the settings saved in a journal; `over_others` also where the live value
    /// is neither ours nor the old one. `remedy` is for the error message.
    pub(crate) fn restore_journal(
        &self,
        journal: &str,
        over_others: bool,
        remedy: &'static str,
        options: &Options,
    ) -> Result<Reverted, PlanError> {
        let back = inverse(plan_of(journal, options)?);
        if !self.guard.is_touched_by(&back) {
            return revert(journal, over_others, options);
        }
        // An unconfirmed plan is reverted in any case.
        if !unconfirmed(options)?.iter().any(|change| change.journal == journal) {
            self.refuse_with(self.dangers(&back)?, remedy)?;
        }
        let before = self.guard.snapshot();
        // Without one the next start finishes what this process may leave: no reason to
        // leave all of it.
        let head = folder::open(&options.journals, journal)?.head;
        let guardian = self.guardian().and_then(|guardian| {
            guardian
                .reporter()
                .begin(&Begun { journal, head: &head }, Kind::Reverted { force: over_others })?;
            Ok(guardian)
        });
        let done = revert(journal, over_others, options);
        if let Ok(guardian) = guardian {
            guardian.done();
        }
        let done = done?;
        match before.lost(true) {
            Some(lost) => Err(PlanError::LostByRevert { lost }),
            None => Ok(done),
        }
    }

    /// Restores the settings saved in a journal. With confirm-within the plan is
    /// reapplied unless the revert is confirmed.
    pub fn revert(&self, journal: &str, options: &Options) -> Result<Reverted, PlanError> {
        let at_once = || self.restore_journal(journal, self.force, "--force does it all the same", options);
        // What is half-way is no state to go back to.
        let opened = folder::open(&options.journals, journal)?;
        if self.within.is_none() || opened.is_interrupted() {
            return at_once();
        }
        let back = plan_back(journal, self.force, options)?;
        let (_, gone) = gone(&opened, options)?;
        if back.steps.is_empty() {
            return at_once();
        }
        self.refuse(self.dangers(&back)?)?;
        // The journal is this host's own, whatever the operator allowed it to name.
        let options = options.clone().permitting(Permitted::Any).reverting(journal);
        let applied = self.apply(&back, &options)?;
        let restored_count = applied.changed.len() as u64;
        let is_unconfirmed = applied.journal.is_some();
        Ok(Reverted { restored_count, gone, is_unconfirmed, ..Reverted::already(journal) })
    }

    pub(super) fn guardian(&self) -> Result<Guardian, PlanError> {
        let started = (self.guardian)().and_then(Guardian::start);
        started.map_err(|source| PlanError::Guardian { source })
    }
}

/// Fails for a change that its guardian has restored already, because it was told to end
/// long before the deadline: nobody may be told that it is applied.
pub(super) fn refuse_superseded(journal: &str, options: &Options) -> Result<(), PlanError> {
    if folder::open(&options.journals, journal)?.state() != JournalState::Reverted {
        return Ok(());
    }
    // The guardian did not know of a deadline that was set afterwards.
    confirm::forget(journal, options)?;
    Err(PlanError::Superseded { journal: journal.to_owned() })
}

/// Retries while a guardian that restores holds the lock.
pub(super) fn retry_while_locked<T>(mut work: impl FnMut() -> Result<T, PlanError>) -> Result<T, PlanError> {
    let until = Instant::now() + RECOVERY_TIMEOUT;
    loop {
        match work() {
            Err(PlanError::Busy { .. }) if Instant::now() < until => {
                thread::sleep(POLL_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Reverts an overdue plan of an earlier command; fails for one that still waits for
/// confirmation.
pub fn settle(options: &Options) -> Result<(), PlanError> {
    for change in unconfirmed(options)? {
        if !change.left.is_zero() {
            return Err(PlanError::Unconfirmed { journal: change.journal, left: change.left });
        }
        expire(&change.journal, options)?;
    }
    Ok(())
}

/// The inverse plan, the last step first.
fn inverse(mut plan: Plan) -> Plan {
    plan.steps.reverse();
    for step in &mut plan.steps {
        std::mem::swap(&mut step.current, &mut step.desired);
    }
    plan
}
