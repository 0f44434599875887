//! `clearstream route revert`: `plan revert`, of a journal with routes.

use clearstream_plan::{Options, plan_of};

use crate::{
    exit::CommandError,
    output::Output,
    verbs::plan::{RevertAllowed, newest},
};

/// Restore the routes saved in a journal.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Journal, as `plan history` names it (default: the newest one with routes that is applied here)
    journal: Option<String>,
    #[command(flatten)]
    allowed: RevertAllowed,
}

impl RevertArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => newest_with_routes(&options, "reverted")?,
        };
        self.allowed.revert(&journal, &options, out)
    }
}

/// The newest journal with routes that is applied here, to be `reverted` or `verified`.
pub(super) fn newest_with_routes(options: &Options, what: &str) -> Result<String, CommandError> {
    let has_routes = |journal: &str| {
        plan_of(journal, options).is_ok_and(|plan| plan.steps.iter().any(|step| step.setting.may_be_absent()))
    };
    newest(options, "no routes are", what, has_routes)
}
