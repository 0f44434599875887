//! Changes that an earlier process should have ended: overdue, half-way, or of a tester
//! that is gone. Every start of a verb that changes or serves ends them, so that nobody
//! has to know of `plan recover`.

use clearstream_plan::{Options, PlanError, recover};
use clearstream_schema::{human::count, plan::JournalState};

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
    for journal in found {
        let name = &journal.journal;
        let what = match journal.found {
            // It is nothing that could be ended, and `plan history` lists it.
            JournalState::Unreadable => continue,
            JournalState::Pending => "was not kept",
            _ => "was interrupted",
        };
        let result = match (journal.now, &journal.problem) {
            (JournalState::Reverted, None) => {
                format!("{} restored", count(journal.restored_count, "setting"))
            }
            (JournalState::Reverted, Some(problem)) => problem.clone(),
            (_, problem) => {
                let problem = problem.as_deref().unwrap_or("unknown reason");
                format!("NOT restored: {problem}; then run clearstream plan recover")
            }
        };
        output::log(&format!("clearstream: journal {name} {what}: {result}"));
    }
}
