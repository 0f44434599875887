//! Revert of a journal, list of journals, and recovery of interrupted ones.

use clearstream_schema::plan::{
    JournalEntry, JournalState, PLAN_SCHEMA, Plan, PlanHost, Recovered, Setting, Step,
};

use crate::{
    Identity, Options, PlanError,
    apply::PLAN_VERSION,
    confirm,
    folder::{self, Locked},
    journal::{Change, Head, Journal},
    pending,
    qdisc::is_default,
    restore::{check_restorable, restore},
};

/// Result of a revert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverted {
    /// The journal.
    pub journal: String,
    /// Settings that were restored; those that held the old value already are not
    /// counted.
    pub restored_count: u64,
}

/// Restores the settings saved in a journal, all or nothing. Refuses if a live
/// value is neither ours nor the old one, unless forced; forced, it omits settings
/// that no longer exist. An interrupted journal is completed as [`recover`] does.
pub fn revert(journal: &str, force: bool, options: &Options) -> Result<Reverted, PlanError> {
    let here = options.target.identity()?;
    // An invalid name is an error of its own, before a folder is created for the
    // lock.
    folder::open(&options.journals, journal)?;
    let locked = Locked::lock(&options.journals)?;
    locked.sweep()?;
    // Read under the lock: its previous holder may have added marks.
    let mut journal = revertible(journal, &here, options)?;
    let (reason, forced) = how_to_end(&journal);
    let restored_count = restore(&mut journal, reason, force || forced, options)?;
    Ok(Reverted { journal: journal.name, restored_count })
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
/// for [`crate::apply_back`]. Refuses as [`revert`] does, and an interrupted
/// journal.
pub fn plan_back(journal: &str, force: bool, options: &Options) -> Result<Plan, PlanError> {
    let here = options.target.identity()?;
    let opened = revertible(journal, &here, options)?;
    if opened.is_interrupted() {
        return Err(PlanError::Interrupted { journal: opened.name });
    }
    let left_alone = check_restorable(&opened, force, options)?;
    let mut plan = plan_of(journal, options)?;
    plan.purpose = format!("revert journal {journal}: {}", plan.purpose);
    plan.host = PlanHost { name: here.name, kernel: here.kernel };
    let steps = std::mem::take(&mut plan.steps).into_iter().enumerate();
    plan.steps = steps.filter(|(index, _)| !left_alone.contains(index)).map(|(_, step)| step).rev().collect();
    for step in &mut plan.steps {
        std::mem::swap(&mut step.current, &mut step.desired);
    }
    // As a revert does: the kernel creates its default from the settings at that
    // time.
    plan.steps.sort_by_key(|step| {
        matches!(step.setting, Setting::Qdisc { .. }) && step.desired.as_deref().is_some_and(is_default)
    });
    Ok(plan)
}

/// The plan that a journal applied, with the saved texts as current ones: to verify
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
fn state(journal: &Journal, here: &Identity, options: &Options) -> JournalState {
    match journal.state() {
        JournalState::Reverted => JournalState::Reverted,
        _ if journal.head.identity.boot != here.boot => JournalState::Gone,
        JournalState::Applied if pending::is_under_test(&journal.name, options) => JournalState::Pending,
        JournalState::Applied if confirm::is_unconfirmed(&journal.name, options) => JournalState::Pending,
        state => state,
    }
}

/// Recovers every interrupted journal of this host and namespace: reverts an
/// unfinished apply, finishes an unfinished revert, and reverts what was not
/// confirmed in time and a change whose tester is gone. Journals of other
/// namespaces and of earlier boots are left alone. `problem` has the reason for one
/// that cannot be recovered; the others are recovered all the same. The newest is
/// first.
pub fn recover(options: &Options) -> Result<Vec<Recovered>, PlanError> {
    let here = options.target.identity()?;
    let mut done = overdue(options)?;
    let locked = Locked::lock(&options.journals)?;
    locked.sweep()?;
    let names = folder::names(&options.journals)?;
    for name in names.into_iter().rev() {
        match folder::open(&options.journals, &name) {
            Ok(mut journal) if is_here(&journal.head.identity, &here) && journal.is_interrupted() => {
                done.push(end(&mut journal, options));
            }
            Ok(mut journal)
                if is_here(&journal.head.identity, &here) && journal.state() == JournalState::Applied =>
            {
                // Held until everything is restored.
                if let Some(_lock) = pending::orphan(&journal.name, options)? {
                    done.push(end(&mut journal, options));
                }
            }
            Ok(_) => {}
            Err(error) => done.push(Recovered {
                journal: name,
                found: JournalState::Unreadable,
                now: JournalState::Unreadable,
                restored_count: 0,
                problem: Some(error.to_string()),
            }),
        }
    }
    Ok(done)
}

/// Restores what was not confirmed in time.
fn overdue(options: &Options) -> Result<Vec<Recovered>, PlanError> {
    let mut done = Vec::new();
    for change in confirm::unconfirmed(options)?.into_iter().filter(|change| change.left.is_zero()) {
        let result = confirm::expire(&change.journal, options);
        let now = if result.is_ok() { JournalState::Reverted } else { JournalState::Pending };
        let (restored_count, problem) = match result {
            // Confirmed or restored by another process meanwhile.
            Ok(None) => continue,
            Ok(Some(reverted)) => (reverted.restored_count, None),
            Err(error) => (0, Some(error.to_string())),
        };
        done.push(Recovered {
            journal: change.journal,
            found: JournalState::Pending,
            now,
            restored_count,
            problem,
        });
    }
    Ok(done)
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

fn end(journal: &mut Journal, options: &Options) -> Recovered {
    let (found, (reason, force)) = match journal.state() {
        // Under test, by a process that is gone.
        JournalState::Applied => (JournalState::Pending, (Some(pending::REASON.to_owned()), false)),
        state => (state, how_to_end(journal)),
    };
    let result = restore(journal, reason, force, options);
    Recovered {
        journal: journal.name.clone(),
        found,
        now: if journal.state() == JournalState::Applied { found } else { journal.state() },
        restored_count: *result.as_ref().unwrap_or(&0),
        problem: result.err().map(|error| error.to_string()),
    }
}

/// Whether the journal belongs to this boot of this host and to this network
/// namespace: what a lab changed is never restored on the host around it.
pub(crate) fn is_here(written: &Identity, here: &Identity) -> bool {
    // A boot id is one host's; the name may have been changed meanwhile.
    written.boot == here.boot && written.namespace == here.namespace
}
