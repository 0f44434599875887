//! `clearstream plan history` and `recover`: the journals of this host.

use clearstream_plan::{Options, history, recover};
use clearstream_schema::{human::count, plan::JournalState};

use super::{documents, guard::shed_limits};
use crate::{
    exit::CommandError,
    output::{Output, tune},
};

/// List the journals of this host.
#[derive(Debug, clap::Args)]
pub struct HistoryArgs {}

impl HistoryArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let document = documents::Journals { journals: history(&Options::live()?)? };
        Ok(out.result(&document, || tune::history(&document.journals))?)
    }
}

/// Roll back an interrupted apply, or complete an interrupted revert.
#[derive(Debug, clap::Args)]
pub struct RecoverArgs {}

impl RecoverArgs {
    /// Runs it. Exits with code 8 when a journal could not be recovered.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        shed_limits();
        let document = documents::RecoveredJournals { journals: recover(&Options::live()?)? };
        out.result(&document, || tune::recovered(&document.journals))?;
        match document.journals.iter().filter(|journal| journal.now != JournalState::Reverted).count() {
            0 => Ok(()),
            failed => {
                Err(CommandError::Partial(format!("{} could not be recovered", count(failed, "journal"))))
            }
        }
    }
}
