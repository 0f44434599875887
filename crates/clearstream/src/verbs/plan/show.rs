//! `clearstream plan show`

use std::path::PathBuf;

use clearstream_plan::Options;

use super::{apply::shown, file::chosen, guard::guarded};
use crate::{exit::CommandError, output::Output};

/// Show the changes of a plan with their reasons, and its effect on the controlling
/// connection and the default routes of this host. Nothing is changed.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// The plan, or a journal as `plan history` names it (default: the newest one that is applied here)
    plan: Option<PathBuf>,
}

impl ShowArgs {
    /// Runs it. Dangers are reported as findings in the event stream.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let plan = chosen(self.plan.as_deref(), &options, "shown")?;
        // The effect on another host is unknown here.
        let is_of_here = plan.host.name == options.target.identity()?.name;
        let found = if is_of_here { guarded().dangers(&plan)? } else { Vec::new() };
        for danger in &found {
            out.finding("guard", &danger.to_string(), || None);
        }
        Ok(out.result(&plan, || shown(&plan, &found))?)
    }
}
