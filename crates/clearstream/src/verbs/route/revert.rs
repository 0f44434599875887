//! `clearstream route confirm` and `revert`.

use clearstream_host::HostRoot;
use clearstream_plan::{Options, confirm, expire, plan_of, revert, trials};
use clearstream_route::guard::{Danger, controlling, dangers};
use clearstream_schema::plan::Plan;
use serde::Serialize;

use super::{
    guardian::Guardian,
    here::{self, Ways},
};
use crate::{
    exit::CommandError,
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
        let root = HostRoot::live();
        let sessions = controlling(&root, std::env::var("SSH_CONNECTION").ok().as_deref());
        let back = inverse(plan_of(&journal, &options)?);
        let found = dangers(&here::live(&root)?, &back, &sessions);
        // A plan that waits for confirmation goes back anyhow.
        let waits = trials(&options)?.iter().any(|trial| trial.journal == journal);
        if !self.force && !waits && !found.is_empty() {
            let found: Vec<String> = found.iter().map(Danger::words).collect();
            return Err(CommandError::Guarded(format!(
                "nothing was put back: {}; --force does it all the same",
                found.join("; ")
            )));
        }
        let before = Ways::of(&sessions);
        let guardian = Guardian::start()?;
        let done = revert(&journal, self.force, &options);
        guardian.done();
        let done = done?;
        if let Some(lost) = before.lost(&Ways::of(&sessions), true) {
            return Err(CommandError::Partial(format!("everything was put back, but {lost}")));
        }
        print_reverted(done, self.json)
    }
}

/// The plan that leads back, the last step first.
fn inverse(mut plan: Plan) -> Plan {
    plan.steps.reverse();
    for step in &mut plan.steps {
        std::mem::swap(&mut step.current, &mut step.desired);
    }
    plan
}

/// The newest journal with routes that can be put back here.
pub(super) fn newest(options: &Options) -> Result<String, CommandError> {
    let has_routes = |journal: &str| {
        plan_of(journal, options).is_ok_and(|plan| plan.steps.iter().any(|step| step.setting.may_be_absent()))
    };
    newest_with(options, "no routes are", has_routes)
}
