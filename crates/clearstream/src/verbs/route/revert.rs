//! `clearstream route confirm` and `revert`.

use clearstream_plan::{Confirmed, Options, confirm, expire, plan_of, trials};

use crate::{
    exit::CommandError,
    guarded::RevertAllowed,
    output::Output,
    verbs::tune::{
        change::{newest_with, revert_and_print},
        documents,
    },
};

/// Keep what was applied with --confirm-within.
#[derive(Debug, clap::Args)]
pub struct ConfirmArgs {}

impl ConfirmArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let Some(trial) = trials(&options)?.pop() else {
            return Err(CommandError::usage(
                "nothing waits for confirmation here: it was confirmed or put back, applied without --confirm-within, or there was nothing to change",
            ));
        };
        let journal = trial.journal;
        let Some(Confirmed { left, reverted }) = confirm(&journal, &options)? else {
            expire(&journal, &options)?;
            return Err(CommandError::Guarded(format!("too late: journal {journal} was put back")));
        };
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let document = documents::Confirmed { journal, left_ns, reverted };
        let (journal, left) = (&document.journal, left.as_secs_f64());
        Ok(out.result(&document, || match &document.reverted {
            None => format!(
                "kept, with {left:.0} s left; clearstream route revert {journal} still puts everything back"
            ),
            Some(first) => format!("kept, with {left:.0} s left; journal {first} is reverted"),
        })?)
    }
}

/// Put back the routes that a journal found before it was applied.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Journal, as `tune history` names it (default: the newest one with routes that is applied here)
    journal: Option<String>,
    #[command(flatten)]
    allowed: RevertAllowed,
}

impl RevertArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => newest(&options)?,
        };
        revert_and_print(&journal, self.allowed, &options, out)
    }
}

/// The newest journal with routes that can be put back here.
pub(super) fn newest(options: &Options) -> Result<String, CommandError> {
    let has_routes = |journal: &str| {
        plan_of(journal, options).is_ok_and(|plan| plan.steps.iter().any(|step| step.setting.may_be_absent()))
    };
    newest_with(options, "no routes are", has_routes)
}
