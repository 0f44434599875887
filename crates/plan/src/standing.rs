//! What became of the settings of one kind on this host, for a program that keeps them as they were applied.

use std::{collections::BTreeMap, fs::File};

use clearstream_schema::plan::{JournalState, Setting, Value};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{Options, PlanError, folder, revert};

/// State of the newest journal of this host with such a setting; absent without one. A plan that takes them all away
/// has reverted them.
///
/// # Errors
/// The folder cannot be read.
pub fn standing(
    is_such: impl Fn(&Setting) -> bool,
    options: &Options,
) -> Result<Option<JournalState>, PlanError> {
    let here = options.target.identity()?;
    for name in folder::names(&options.journals)?.into_iter().rev() {
        let Ok(journal) = folder::open(&options.journals, &name) else { continue };
        let mut such = journal.head.changes.iter().filter(|change| is_such(&change.setting)).peekable();
        if such.peek().is_none() || !revert::is_here(&journal.head.identity, &here) {
            continue;
        }
        return Ok(Some(match revert::state(&journal, &here, options) {
            JournalState::Applied if such.all(|change| change.new.is_none()) => JournalState::Reverted,
            state => state,
        }));
    }
    Ok(None)
}

/// The settings of this kind that plans in effect on this host have added where nothing was, with their values. Of several
/// plans with one setting the newest decides; one that had nothing to change there decides nothing.
///
/// # Errors
/// The folder cannot be read.
pub fn added(
    is_such: impl Fn(&Setting) -> bool,
    options: &Options,
) -> Result<Vec<(Setting, Value)>, PlanError> {
    let here = options.target.identity()?;
    let mut decided: BTreeMap<Setting, Option<Value>> = BTreeMap::new();
    for name in folder::names(&options.journals)?.into_iter().rev() {
        let Ok(journal) = folder::open(&options.journals, &name) else { continue };
        let is_in_effect = || {
            let state = revert::state(&journal, &here, options);
            matches!(state, JournalState::Applied | JournalState::Pending)
        };
        if !revert::is_here(&journal.head.identity, &here) || !is_in_effect() {
            continue;
        }
        for change in
            journal.head.changes.iter().filter(|change| is_such(&change.setting) && !change.was_right())
        {
            let value = change.new.clone().filter(|_| change.old.is_none());
            decided.entry(change.setting.clone()).or_insert(value);
        }
    }
    Ok(decided.into_iter().filter_map(|(setting, value)| Some((setting, value?))).collect())
}

/// Whether a command or a guardian changes or restores something now. Does not wait.
pub fn is_changing(options: &Options) -> bool {
    File::open(&options.journals)
        .is_ok_and(|folder| flock(&folder, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}
