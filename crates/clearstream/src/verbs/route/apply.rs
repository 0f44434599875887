//! `clearstream route apply`: this host's part of a fabric, or a plan of
//! routes, all or nothing, with a guard of the connection by which it is done.

use std::path::Path;

use clearstream_host::HostRoot;
use clearstream_plan::{Applied, Options};
use clearstream_route::{guard::Danger, probe_kernel};
use clearstream_schema::{human::count, plan::Plan};
use clearstream_sys::file;
use serde::Serialize;

use super::here::Planned;
use crate::{
    exit::CommandError,
    guarded::{Allowed, Guard, settle},
    output,
    verbs::tune::change::{asked, permitting, read_plan, show_plan, telling},
};

/// Make this host route as the fabric plans it, all or nothing, with a journal
/// that puts it back. Shows the changes first and asks.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// Name of a built-in fabric, a fabric file, or a plan as JSON
    fabric: String,
    /// Name of this host in the fabric; its host name when absent
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
    /// Do not ask (needed where nobody can be asked)
    #[arg(long)]
    yes: bool,
    /// Print what was done as one JSON document; needs --yes or --dry-run
    #[arg(long)]
    json: bool,
}

/// What applying did.
#[derive(Debug, Serialize)]
struct AppliedDocument<'a> {
    plan: &'a Plan,
    dangers: Vec<String>,
    journal: Option<String>,
    changed_count: usize,
    /// Nanoseconds within which it has to be confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirm_within_ns: Option<u64>,
}

impl ApplyArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        if self.json && !self.yes && !self.dry_run {
            return Err(CommandError::usage("--json asks nobody: add --yes or --dry-run"));
        }
        let options = Options::live()?;
        settle(&options)?;
        let root = HostRoot::live();
        let plan = self.plan(&root)?;
        let guard = Guard::new(self.allowed);
        let found = guard.dangers(&plan)?;
        if !self.json {
            show_plan(&plan, &found)?;
        }
        guard.refuse(&found)?;
        if self.dry_run {
            return self.report(&plan, &found, &Applied { journal: None, changed: Vec::new() });
        }
        if !self.yes && !plan.steps.is_empty() && !asked(plan.steps.len())? {
            return Ok(output::line("nothing was changed")?);
        }
        let options = permitting(options, self.allow_any_setting);
        let applied = guard.apply(&plan, options, telling(self.json))?;
        self.report(&plan, &found, &applied)
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

    fn report(&self, plan: &Plan, found: &[Danger], applied: &Applied) -> Result<(), CommandError> {
        let waits = self.allowed.time_for(applied);
        if self.json {
            let document = AppliedDocument {
                plan,
                dangers: found.iter().map(Danger::words).collect(),
                journal: applied.journal.clone(),
                changed_count: applied.changed.len(),
                confirm_within_ns: waits.map(|within| within.0),
            };
            return Ok(output::json(&document, true)?);
        }
        let line = match (&applied.journal, waits) {
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
        Ok(output::line(&line)?)
    }
}
