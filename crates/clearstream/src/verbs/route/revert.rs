//! `clearstream route confirm` and `revert`.

use clearstream_plan::{Confirmed, Options, confirm, expire, plan_of, trials};
use serde::Serialize;

use crate::{
    exit::CommandError,
    guarded::RevertAllowed,
    output,
    verbs::tune::change::{newest_with, revert_and_print},
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
    /// The journal that is reverted by it, where it was a revert.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverted: Option<String>,
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
        let Some(Confirmed { left, reverted }) = confirm(&journal, &options)? else {
            expire(&journal, &options)?;
            return Err(CommandError::Guarded(format!("too late: journal {journal} was put back")));
        };
        if self.json {
            let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            return Ok(output::json(&ConfirmedDocument { journal, left_ns, reverted }, true)?);
        }
        let left = left.as_secs_f64();
        Ok(output::line(&match reverted {
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
    /// Journal, as `tune history` names it; the newest one with routes that is applied here when absent
    journal: Option<String>,
    #[command(flatten)]
    allowed: RevertAllowed,
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
        revert_and_print(&journal, self.allowed, &options, self.json)
    }
}

/// The newest journal with routes that can be put back here.
pub(super) fn newest(options: &Options) -> Result<String, CommandError> {
    let has_routes = |journal: &str| {
        plan_of(journal, options).is_ok_and(|plan| plan.steps.iter().any(|step| step.setting.may_be_absent()))
    };
    newest_with(options, "no routes are", has_routes)
}
