//! What became of the settings of one kind on this host, for a program that keeps them as they were applied.

use std::fs::File;

use clearstream_schema::plan::{JournalState, Setting};
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

/// Whether a command or a guardian changes or restores something now. Does not wait.
pub fn is_changing(options: &Options) -> bool {
    File::open(&options.journals)
        .is_ok_and(|folder| flock(&folder, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}
