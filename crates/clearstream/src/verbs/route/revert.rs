//! `clearstream route confirm` and `revert`.

use clearstream_plan::{Options, confirm, expire, plan_of, trials};
use serde::Serialize;

use crate::{
    exit::CommandError,
    guarded::{Allowed, Guard},
    output,
    verbs::tune::change::{newest_with, print_reverted},
};

/// Keep what was applied with --confirm-within.
#[derive(Debug, clap::Args)]
pub struct ConfirmArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What was confirmed.
#[derive(Debug, Serialize)]
struct ConfirmedDocument {
    journal: String,
    left_ns: u64,
}

impl ConfirmArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let options = Options::live()?;
        let Some(trial) = trials(&options)?.pop() else {
            return Err(CommandError::usage(
                "nothing waits for confirmation here: it was confirmed or put back, applied without --confirm-within, or there was nothing to change",
            ));
        };
        let journal = trial.journal;
        let Some(left) = confirm(&journal, &options)? else {
            expire(&journal, &options)?;
            return Err(CommandError::Guarded(format!("too late: journal {journal} was put back")));
        };
        if self.json {
            let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            return Ok(output::json(&ConfirmedDocument { journal, left_ns }, true)?);
        }
        Ok(output::line(&format!(
            "kept, with {:.0} s left; clearstream route revert {journal} still puts everything back",
            left.as_secs_f64()
        ))?)
    }
}

/// Put back the routes that a journal found before it was applied.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Journal, as `tune history` names it; the newest one with routes that is applied here when absent
    journal: Option<String>,
    /// Also where the live value is neither ours nor the old one, or where it
    /// cuts or moves the controlling connection or the default route
    #[arg(long)]
    force: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl RevertArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let options = Options::live()?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => newest(&options)?,
        };
        print_reverted(Guard::new(Allowed::anything_if(self.force)).revert(&journal, &options)?, self.json)
    }
}

/// The newest journal with routes that can be put back here.
pub(super) fn newest(options: &Options) -> Result<String, CommandError> {
    let has_routes = |journal: &str| {
        plan_of(journal, options).is_ok_and(|plan| plan.steps.iter().any(|step| step.setting.may_be_absent()))
    };
    newest_with(options, "no routes are", has_routes)
}
