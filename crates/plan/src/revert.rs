//! Revert of a journal, list of journals, and recovery of interrupted ones.

use clearstream_schema::plan::{
    Gone, JournalEntry, JournalState, PLAN_SCHEMA, Plan, PlanHost, Recovered, Step,
};

use crate::{
    Identity, Options, PlanError,
    apply::PLAN_VERSION,
    confirm,
    folder::{self, Locked},
    journal::{Change, Head, Journal},
    pending,
    restore::{Restored, Written, check_restorable, gone, is_last, restore},
};

/// Result of a revert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverted {
    /// The journal.
    pub journal: String,
    /// Settings that were restored; those that held the old value already are not
    /// counted.
    pub restored_count: u64,
    /// What is no more, so that nothing had to be restored on it.
    pub gone: Vec<Gone>,
    /// It is reapplied unless it is confirmed.
    pub is_unconfirmed: bool,
    /// Why the journal could not be marked so; everything is restored all the same.
    pub unmarked: Option<String>,
}

impl Reverted {
    pub(crate) fn of(journal: &str, restored: Restored) -> Self {
        let Restored { written: Written { count, gone }, unmarked } = restored;
        let unmarked = unmarked.map(|error| error.to_string());
        Self { restored_count: count, gone, unmarked, ..Self::already(journal) }
    }

    /// Nothing was left to do.
    pub(crate) fn already(journal: &str) -> Self {
        let journal = journal.to_owned();
        Self { journal, restored_count: 0, gone: Vec::new(), is_unconfirmed: false, unmarked: None }
    }
}

/// Restores the settings saved in a journal, all or nothing. Refuses if a live
/// value is neither ours nor the old one, unless forced; it omits what is gone. An
/// interrupted journal is completed as [`recover`] does.
pub fn revert(journal: &str, force: bool, options: &Options) -> Result<Reverted, PlanError> {
    let here = options.target.identity()?;
    // Also where there is no folder this is the error.
    folder::open(&options.journals, journal)?;
    let _locked = Locked::existing(&options.journals)?;
    // Read under the lock: its previous holder may have added marks.
    let mut journal = revertible(journal, &here, options)?;
    let (reason, forced) = how_to_end(&journal);
    let restored = restore(&mut journal, reason, force || forced, options)?;
    Ok(Reverted::of(&journal.name, restored))
}

/// The journal, if it belongs to this host and is not reverted.
fn revertible(journal: &str, here: &Identity, options: &Options) -> Result<Journal, PlanError> {
    let journal = folder::open(&options.journals, journal)?;
    let name = journal.name.clone();
    if journal.head.identity.boot != here.boot && journal.head.identity.name == here.name {
        return Err(PlanError::Booted { journal: name });
    }
    if !is_here(&journal.head.identity, here) {
        return Err(PlanError::Elsewhere { journal: name, host: journal.head.identity.name });
    }
    match journal.state() {
        JournalState::Reverted => Err(PlanError::RevertedAlready { journal: name }),
        _ => Ok(journal),
    }
}

/// The plan that restores the settings saved in a journal, the last change first:
/// to be applied with [`Options::reverting`]. Refuses as [`revert`] does, and an interrupted
/// journal.
pub fn plan_back(journal: &str, force: bool, options: &Options) -> Result<Plan, PlanError> {
    let here = options.target.identity()?;
    let opened = revertible(journal, &here, options)?;
    if opened.is_interrupted() {
        return Err(PlanError::Interrupted { journal: opened.name });
    }
    let mut left_out = check_restorable(&opened, force, options)?;
    left_out.extend(gone(&opened, options)?.0);
    let mut plan = plan_of(journal, options)?;
    plan.purpose = format!("revert journal {journal}: {}", plan.purpose);
    plan.host = PlanHost { name: here.name, kernel: here.kernel };
    let steps = std::mem::take(&mut plan.steps).into_iter().enumerate();
    plan.steps = steps.filter(|(index, _)| !left_out.contains(index)).map(|(_, step)| step).rev().collect();
    for step in &mut plan.steps {
        std::mem::swap(&mut step.current, &mut step.desired);
    }
    // As a revert does.
    plan.steps.sort_by_key(|step| is_last(&step.setting, step.desired.as_ref()));
    Ok(plan)
}

/// The plan that a journal applied, with the saved values as current ones: to verify
/// whether it is still effective.
pub fn plan_of(journal: &str, options: &Options) -> Result<Plan, PlanError> {
    let Head { purpose, identity, changes, .. } = folder::open(&options.journals, journal)?.head;
    let step = |change: Change| Step {
        setting: change.setting,
        current: change.old,
        desired: change.new,
        reason: format!("journal {journal}"),
        effect: change.effect,
    };
    Ok(Plan {
        schema: PLAN_SCHEMA.to_owned(),
        version: PLAN_VERSION,
        purpose,
        host: PlanHost { name: identity.name, kernel: identity.kernel },
        steps: changes.into_iter().map(step).collect(),
        advice: Vec::new(),
    })
}

/// All journals, oldest first, with the state of each.
pub fn history(options: &Options) -> Result<Vec<JournalEntry>, PlanError> {
    let here = options.target.identity()?;
    let names = folder::names(&options.journals)?;
    Ok(names.into_iter().map(|name| entry(name, &here, options)).collect())
}

fn entry(name: String, here: &Identity, options: &Options) -> JournalEntry {
    match folder::open(&options.journals, &name) {
        Ok(journal) => JournalEntry {
            state: state(&journal, here, options),
            here: is_here(&journal.head.identity, here),
            note: journal.reason().map(str::to_owned),
            changed_count: journal.head.changes.iter().filter(|change| !change.was_right()).count() as u64,
            time: Some(journal.head.time),
            purpose: Some(journal.head.purpose),
            host: Some(journal.head.identity.name),
            journal: name,
        },
        Err(error) => JournalEntry {
            journal: name,
            time: None,
            purpose: None,
            host: None,
            state: JournalState::Unreadable,
            here: false,
            changed_count: 0,
            note: Some(error.to_string()),
        },
    }
}

/// State of a journal, and whether its kernel is still running.
pub(crate) fn state(journal: &Journal, here: &Identity, options: &Options) -> JournalState {
    match journal.state() {
        JournalState::Reverted => JournalState::Reverted,
        _ if journal.head.identity.boot != here.boot => JournalState::Gone,
        JournalState::Applied if pending::is_under_test(&journal.name, options) => JournalState::Pending,
        JournalState::Applied if confirm::is_unconfirmed(&journal.name, options) => JournalState::Pending,
        state => state,
    }
}

/// Recovers every unfinished journal of this host and namespace: reverts an
/// unfinished apply, finishes an unfinished revert, and reverts what was not
/// confirmed in time and a change whose tester is gone. Journals of other
/// namespaces and of earlier boots are left alone. `problem` has the reason for one
/// that cannot be recovered or marked; the others are recovered all the same. The
/// newest is first.
pub fn recover(options: &Options) -> Result<Vec<Recovered>, PlanError> {
    let here = options.target.identity()?;
    if folder::unsettled(&options.journals)?.is_empty() {
        return Ok(Vec::new());
    }
    let locked = Locked::existing(&options.journals)?;
    // What cannot be removed now is removed by the next apply.
    let _ = locked.sweep();
    let names = folder::unsettled(&options.journals)?;
    Ok(names.into_iter().rev().filter_map(|name| recover_one(&name, &here, options)).collect())
}

/// Ends what an earlier process left half-way, under the lock, before anything is built
/// upon it: after a half-made change the old values could not be determined.
pub(crate) fn end_unfinished(here: &Identity, options: &Options) -> Result<(), PlanError> {
    for name in folder::unsettled(&options.journals)?.into_iter().rev() {
        match recover_one(&name, here, options) {
            // A damaged journal of another time does not stop this host from being changed.
            None | Some(Recovered { now: JournalState::Reverted | JournalState::Unreadable, .. }) => {}
            Some(Recovered { journal, problem, .. }) => {
                return Err(PlanError::NotRecovered { journal, problem: problem.unwrap_or_default() });
            }
        }
    }
    Ok(())
}

/// `None` where there is nothing to do.
fn recover_one(name: &str, here: &Identity, options: &Options) -> Option<Recovered> {
    let problem = |found, error: PlanError| Recovered {
        journal: name.to_owned(),
        found,
        now: found,
        restored_count: 0,
        gone: Vec::new(),
        problem: Some(error.to_string()),
    };
    let mut journal = match folder::open(&options.journals, name) {
        Ok(journal) => journal,
        Err(error) => return Some(problem(JournalState::Unreadable, error)),
    };
    if !is_here(&journal.head.identity, here) {
        return None;
    }
    match journal.state() {
        JournalState::Applied => {}
        // A crash came between its last mark and the removal of what is beside it.
        JournalState::Reverted => {
            let _ = confirm::forget(name, options).and_then(|()| pending::forget(name, options));
            return None;
        }
        found => {
            let (reason, force) = how_to_end(&journal);
            return Some(end(&mut journal, found, reason, force, options));
        }
    }
    match confirm::deadline(name, options) {
        Err(error) => return Some(problem(JournalState::Pending, error)),
        Ok(Some(deadline)) if deadline.left().is_zero() => {
            return Some(end(&mut journal, JournalState::Pending, Some(deadline.reason()), true, options));
        }
        Ok(_) => {}
    }
    match pending::orphan(name, options) {
        Err(error) => Some(problem(JournalState::Pending, error)),
        Ok(None) => None,
        // The lock is held until everything is restored.
        Ok(Some(_lock)) => {
            let reason = Some(pending::REASON.to_owned());
            Some(end(&mut journal, JournalState::Pending, reason, false, options))
        }
    }
}

/// The reason to write, and whether the revert is a forced one: a revert resumes as
/// it began, an interrupted apply is reverted unforced.
fn how_to_end(journal: &Journal) -> (Option<String>, bool) {
    match journal.state() {
        JournalState::Applying => (Some("applying was interrupted".to_owned()), false),
        JournalState::Reverting => (journal.reason().map(str::to_owned), journal.is_forced()),
        _ => (None, false),
    }
}

fn end(
    journal: &mut Journal,
    found: JournalState,
    reason: Option<String>,
    force: bool,
    options: &Options,
) -> Recovered {
    let (now, Written { count, gone }, problem) = match restore(journal, reason, force, options) {
        Ok(Restored { written, unmarked }) => {
            let problem =
                unmarked.map(|error| format!("restored, but its journal is not marked so: {error}"));
            (JournalState::Reverted, written, problem)
        }
        Err(error) => {
            let now = if journal.state() == JournalState::Applied { found } else { journal.state() };
            (now, Written::default(), Some(error.to_string()))
        }
    };
    Recovered { journal: journal.name.clone(), found, now, restored_count: count, gone, problem }
}

/// Whether the journal belongs to this boot of this host and to this network
/// namespace: what a lab changed is never restored on the host around it.
pub(crate) fn is_here(written: &Identity, here: &Identity) -> bool {
    // A boot id is one host's; the name may have been changed meanwhile.
    written.boot == here.boot && written.namespace == here.namespace
}
