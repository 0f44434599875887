//! `clearstream route apply`: this host's part of a fabric, or a plan of
//! routes, all or nothing, with a guard of the connection by which it is done.

use std::path::Path;

use clearstream_host::HostRoot;
use clearstream_plan::{Applied, Options};
use clearstream_route::{guard::Danger, probe_kernel};
use clearstream_schema::{human::count, plan::Plan};
use clearstream_sys::file;

use super::here::Planned;
use crate::{
    exit::CommandError,
    guarded::{Allowed, Guard, settle},
    output::{self, Output},
    verbs::tune::{
        change::{asked, permitting, read_plan, show_plan, telling},
        documents,
    },
};

/// Make this host route as the fabric plans it, all or nothing, with a journal
/// that puts it back. Shows the changes first and asks.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// Name of a built-in fabric, a fabric file, or a plan as JSON
    fabric: String,
    /// Name of this host in the fabric (default: its host name)
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    allowed: Allowed,
    /// Also settings outside of the families that plans may name (docs/guide/plans.md)
    #[arg(long)]
    allow_any_setting: bool,
    /// Do not ask (needed where standard input or output is not a terminal)
    #[arg(long)]
    yes: bool,
}

impl ApplyArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if !out.is_human() && !self.yes && !self.dry_run {
            return Err(CommandError::usage("--json asks nobody: add --yes or --dry-run"));
        }
        let options = Options::live()?;
        settle(&options)?;
        let root = HostRoot::live();
        let plan = self.plan(&root)?;
        let guard = Guard::new(self.allowed);
        let found = guard.dangers(&plan)?;
        if out.is_human() {
            show_plan(&plan, &found)?;
        }
        guard.refuse(&found)?;
        if self.dry_run {
            return self.report(&plan, &found, &Applied { journal: None, changed: Vec::new() }, out);
        }
        if !self.yes && !plan.steps.is_empty() && !asked(plan.steps.len())? {
            return Ok(output::line("nothing was changed")?);
        }
        let options = permitting(options, self.allow_any_setting);
        let applied = guard.apply(&plan, options, telling(out))?;
        self.report(&plan, &found, &applied, out)
    }

    fn plan(&self, root: &HostRoot) -> Result<Plan, CommandError> {
        let path = Path::new(&self.fabric);
        let is_plan = path.is_file()
            && file::read_text(path, file::DOCUMENT_BYTES)
                .is_ok_and(|text| text.trim_start().starts_with('{'));
        if is_plan {
            return read_plan(path);
        }
        let planned = Planned::of(&self.fabric, self.host.as_deref(), root)?;
        let missing = probe_kernel::missing(root, &planned.host.routing);
        if !missing.is_empty() {
            let lines: Vec<String> = missing.iter().map(probe_kernel::Missing::words).collect();
            return Err(CommandError::Unsupported(format!(
                "nothing was changed: this kernel lacks {}",
                lines.join("; ")
            )));
        }
        planned.difference(root)
    }

    fn report(
        &self,
        plan: &Plan,
        found: &[Danger],
        applied: &Applied,
        out: &Output,
    ) -> Result<(), CommandError> {
        let waits = self.allowed.time_for(applied);
        let document = documents::Applied {
            plan: Some(plan),
            dangers: Some(found.iter().map(Danger::words).collect()),
            journal: applied.journal.clone(),
            changed_count: applied.changed.len(),
            confirm_within_ns: waits.map(|within| within.0),
        };
        let text = || match (&applied.journal, waits) {
            _ if self.dry_run => "nothing was changed".to_owned(),
            (None, _) => "nothing to change: this host routes as the plan wants it".to_owned(),
            (Some(journal), None) => format!(
                "{} changed; clearstream route revert {journal} puts everything back",
                count(applied.changed.len(), "setting")
            ),
            (Some(_), Some(within)) => format!(
                "{} changed; everything is put back in {within} unless you run: clearstream route confirm",
                count(applied.changed.len(), "setting")
            ),
        };
        Ok(out.result(&document, text)?)
    }
}
