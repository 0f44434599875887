//! Reverting a journal, listing journals, and ending what was interrupted.

use clearstream_schema::plan::{JournalEntry, JournalState, PLAN_SCHEMA, Plan, PlanHost, Recovered, Step};

use crate::{
    Identity, Options, PlanError,
    apply::PLAN_VERSION,
    folder::{self, Locked},
    journal::{Change, Head, Journal},
    restore::restore,
};

/// What reverting did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverted {
    /// The journal.
    pub journal: String,
    /// Settings that were put back; those that held the old value already are not counted.
    pub restored_count: u64,
}

/// Puts back what the journal found, all or nothing. Refuses where a live
/// value is neither ours nor the old one, unless forced; forced, it also ends
/// an interrupted journal and leaves out settings that are gone.
pub fn revert(journal: &str, force: bool, options: &Options) -> Result<Reverted, PlanError> {
    let here = options.target.identity()?;
    let mut journal = folder::open(&options.journals, journal)?;
    let locked = Locked::lock(&options.journals)?;
    locked.sweep()?;
    let name = journal.name.clone();
    if journal.head.identity.boot != here.boot && journal.head.identity.name == here.name {
        return Err(PlanError::Booted { journal: name });
    }
    if !is_here(&journal.head.identity, &here) {
        return Err(PlanError::Elsewhere { journal: name, host: journal.head.identity.name });
    }
    match journal.state() {
        JournalState::Reverted => return Err(PlanError::RevertedAlready { journal: name }),
        JournalState::Applying | JournalState::Reverting if !force => {
            return Err(PlanError::Interrupted { journal: name });
        }
        _ => {}
    }
    let restored_count = restore(&mut journal, None, force, options)?;
    Ok(Reverted { journal: name, restored_count })
}

/// The plan that a journal applied, with the texts that it found as current
/// ones: for looking whether it is still in force.
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

/// All journals, oldest first, with what became of each.
pub fn history(options: &Options) -> Result<Vec<JournalEntry>, PlanError> {
    let here = options.target.identity()?;
    let names = folder::names(&options.journals)?;
    Ok(names.into_iter().map(|name| entry(name, &here, options)).collect())
}

fn entry(name: String, here: &Identity, options: &Options) -> JournalEntry {
    match folder::open(&options.journals, &name) {
        Ok(journal) => JournalEntry {
            state: state(&journal, here),
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

/// What the file says, and whether the kernel that it speaks of still runs.
fn state(journal: &Journal, here: &Identity) -> JournalState {
    match journal.state() {
        JournalState::Reverted => JournalState::Reverted,
        _ if journal.head.identity.boot != here.boot => JournalState::Gone,
        state => state,
    }
}

/// Ends every journal of this host and namespace that was interrupted: an
/// unfinished apply is put back, an unfinished revert is finished. Journals of
/// other namespaces and of earlier boots are left alone. One that cannot be
/// ended says why in `problem`; the others are ended all the same. The newest
/// is taken first.
pub fn recover(options: &Options) -> Result<Vec<Recovered>, PlanError> {
    let here = options.target.identity()?;
    let names = folder::names(&options.journals)?;
    let locked = Locked::lock(&options.journals)?;
    locked.sweep()?;
    let mut done = Vec::new();
    for name in names.into_iter().rev() {
        match folder::open(&options.journals, &name) {
            Ok(mut journal) if is_here(&journal.head.identity, &here) && journal.is_interrupted() => {
                done.push(end(&mut journal, options));
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

fn end(journal: &mut Journal, options: &Options) -> Recovered {
    let found = journal.state();
    let (reason, force) = match found {
        JournalState::Applying => (Some("applying was interrupted".to_owned()), false),
        _ => (journal.reason().map(str::to_owned), journal.is_forced()),
    };
    let result = restore(journal, reason, force, options);
    Recovered {
        journal: journal.name.clone(),
        found,
        now: journal.state(),
        restored_count: *result.as_ref().unwrap_or(&0),
        problem: result.err().map(|error| error.to_string()),
    }
}

/// The journal speaks of this life of this host, seen from this network
/// namespace: what a lab changed is never put back on the host around it.
pub(crate) fn is_here(written: &Identity, here: &Identity) -> bool {
    // A boot id is one host's; the name may have been changed meanwhile.
    written.boot == here.boot && written.namespace == here.namespace
}
