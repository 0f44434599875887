//! Changes that an earlier process should have ended: overdue, half-way, or of a tester
//! that is gone. Every start of a verb that changes or serves ends them, so that nobody
//! has to know of `plan recover`.

use clearstream_plan::{Options, PlanError, recover};
use clearstream_schema::{
    human::count,
    plan::{JournalState, Recovered},
};

use crate::output;

/// Ends what is unfinished on this host and says so on standard error.
pub(in crate::verbs) fn finish() {
    let found = match Options::live().and_then(|options| recover(&options)) {
        Ok(found) => found,
        // Another process is about it; and whoever has no folder has changed nothing.
        Err(PlanError::Busy { .. } | PlanError::NoFolder) => return,
        Err(error) => {
            return output::log(&format!("clearstream: unfinished changes were not looked for: {error}"));
        }
    };
    found.iter().for_each(say);
}

/// Ends a change that was interrupted, so that an older one can be reverted. Fails where that
/// is not possible.
pub(super) fn finish_one(name: &str, options: &Options) -> Result<(), PlanError> {
    let found = recover(options)?;
    found.iter().for_each(say);
    match found.into_iter().find(|journal| journal.journal == name) {
        Some(Recovered { now, problem, .. }) if now != JournalState::Reverted => {
            Err(PlanError::NotRecovered { journal: name.to_owned(), problem: problem.unwrap_or_default() })
        }
        _ => Ok(()),
    }
}

fn say(journal: &Recovered) {
    let Recovered { journal: name, found, now, restored_count, gone, problem } = journal;
    let what = match found {
        // It is nothing that could be ended, and `plan history` lists it.
        JournalState::Unreadable => return,
        JournalState::Pending => "was not kept",
        _ => "was interrupted",
    };
    let mut result = match (now, problem) {
        (JournalState::Reverted, None) => format!("{} restored", count(*restored_count, "setting")),
        (JournalState::Reverted, Some(problem)) => problem.clone(),
        (_, problem) => {
            let problem = problem.as_deref().unwrap_or("unknown reason");
            format!("NOT restored: {problem}; each further start of clearstream tries again")
        }
    };
    for gone in gone {
        result.push_str(&format!("; {gone}"));
    }
    output::log(&format!("clearstream: journal {name} {what}: {result}"));
}
