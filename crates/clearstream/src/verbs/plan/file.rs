//! Plans that a command line names: by a file, by a journal, or by none.

use std::path::Path;

use clearstream_plan::{Options, history, plan_of};
use clearstream_schema::plan::{JournalEntry, JournalState, PLAN_SCHEMA, Plan};

use super::unfinished::finish_one;
use crate::{exit::CommandError, files};

/// Reads a plan from a file.
pub(in crate::verbs) fn read_plan(path: &Path) -> Result<Plan, CommandError> {
    let text = files::read_text(path)?;
    let read = clearstream_schema::json::from_str::<serde_json::Value>(&text).and_then(|mut document| {
        // A plan that was printed with --json carries where it comes from, which is none of its settings.
        if let Some(keys) = document.as_object_mut() {
            keys.remove("provenance");
        }
        clearstream_schema::json::from_value(document)
    });
    read.map_err(|error| {
        CommandError::Usage(format!(
            "{} is no {PLAN_SCHEMA}: {error}: make one with clearstream tune plan --out FILE",
            path.display()
        ))
    })
}

/// The plan of a file, of the journal that is called so, or of the newest journal
/// that is applied here, to be `verified` or `shown`.
pub(super) fn chosen(path: Option<&Path>, options: &Options, what: &str) -> Result<Plan, CommandError> {
    match path {
        Some(path) if path.exists() => read_plan(path),
        // Not the name of a journal: the error is that of a missing file.
        Some(path) if path.components().count() > 1 || path.extension().is_some() => read_plan(path),
        Some(name) => Ok(plan_of(&name.to_string_lossy(), options)?),
        None => Ok(plan_of(&newest(options, "nothing is", what, |_| true)?, options)?),
    }
}

/// The newest journal that can be reverted here, of those that are wanted;
/// the error for none of them is made of `none`, "nothing is", and `what`, "reverted".
pub(in crate::verbs) fn newest(
    options: &Options,
    none: &str,
    what: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<String, CommandError> {
    for JournalEntry { journal, state, .. } in history(options)?.into_iter().rev().filter(|entry| entry.here)
    {
        match state {
            JournalState::Applied | JournalState::Pending if wanted(&journal) => return Ok(journal),
            // Finished where it is what is wanted; an older one is never taken before it.
            JournalState::Applying | JournalState::Reverting if wanted(&journal) => return Ok(journal),
            JournalState::Applying | JournalState::Reverting => finish_one(&journal, options)?,
            _ => {}
        }
    }
    Err(CommandError::Usage(format!(
        "{none} applied here that could be {what}: clearstream plan history lists all journals"
    )))
}
