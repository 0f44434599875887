//! `clearstream plan confirm` and `revert`.

use clearstream_plan::{Confirmed, Options, Reverted, confirm_newest};
use clearstream_schema::{TimeSpan, human::count};

use super::{
    apply::duration,
    documents,
    file::newest,
    guard::{guarded, shed_limits},
};
use crate::{
    exit::CommandError,
    output::{self, Output},
};

/// Keep what was applied or reverted with --confirm-within.
#[derive(Debug, clap::Args)]
pub struct ConfirmArgs {}

impl ConfirmArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let Confirmed { journal, left, reverted, unmarked } = confirm_newest(&Options::live()?)?;
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let document = documents::Confirmed { journal, left_ns, reverted, unmarked };
        say_unmarked(document.reverted.as_ref().unwrap_or(&document.journal), document.unmarked.as_deref());
        let (journal, left) = (&document.journal, left.as_secs_f64());
        Ok(out.result(&document, || match &document.reverted {
            None => format!(
                "kept, with {left:.0} s left; clearstream plan revert {journal} still restores the old values"
            ),
            Some(first) => format!("kept, with {left:.0} s left; journal {first} is reverted"),
        })?)
    }
}

/// Restore the settings saved in a journal.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Journal, as `plan history` names it (default: the newest one that is applied here)
    journal: Option<String>,
    /// Revert even if a live value is neither the applied nor the saved one, or if it
    /// cuts or moves the controlling connection or the default route
    #[arg(long)]
    force: bool,
    /// Reapply the plan unless `plan confirm` is run within this time, as in 60s
    #[arg(long, value_name = "TIME")]
    confirm_within: Option<TimeSpan>,
}

impl RevertArgs {
    /// Reverts a journal and prints what was restored.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => newest(&options, "nothing is", "reverted", |_| true)?,
        };
        out.state("reverting", None, || None);
        shed_limits();
        let guarded = guarded().forcing(self.force).confirmed_within(self.confirm_within.map(duration));
        let done = guarded.revert(&journal, &options)?;
        let Reverted { journal, restored_count, gone, is_unconfirmed, unmarked } = done;
        let waits = self.confirm_within.filter(|_| is_unconfirmed);
        let confirm_within_ns = waits.map(|within| within.0);
        let document = documents::Reverted { journal, restored_count, gone, confirm_within_ns, unmarked };
        say_unmarked(&document.journal, document.unmarked.as_deref());
        Ok(out.result(&document, || {
            let restored = count(restored_count, "setting");
            let mut text = format!("{restored} restored from journal {}", document.journal);
            for gone in &document.gone {
                text.push_str(&format!("; {gone}"));
            }
            if let Some(within) = waits {
                text.push_str(&format!(
                    "; the plan is reapplied in {within} unless you run: clearstream plan confirm"
                ));
            }
            text
        })?)
    }
}

/// The change is done; the journal, which says otherwise, is named.
fn say_unmarked(journal: &str, reason: Option<&str>) {
    if let Some(reason) = reason {
        let remedy = format!("when the folder can be written, clearstream plan revert {journal} marks it");
        output::log(&format!("clearstream: journal {journal} is not marked: {reason}; {remedy}"));
    }
}
