//! `clearstream route apply`: this host's part of a fabric, or a plan of
//! routes, as `plan apply` does it.

use std::path::{Path, PathBuf};

use clearstream_host::HostRoot;
use clearstream_plan::{Options, settle};
use clearstream_route::probe_kernel;
use clearstream_schema::plan::{JournalState, Plan};
use clearstream_sys::document;

use super::{here::Planned, standing::of_routes};
use crate::{
    exit::CommandError,
    files,
    output::{Output, Unwritten},
    verbs::plan::{Applying, Source, read_plan},
};

/// Apply the fabric's plan for this host, as `plan apply` does: all or nothing, with a
/// journal to revert it. Shows the changes first and requests confirmation.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// Name of a built-in fabric, a fabric file, or a plan as JSON
    fabric: String,
    /// Name of this host in the fabric (default: its host name)
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Do nothing where a plan of routes was applied or reverted since the host booted, as a unit that starts again does
    #[arg(long)]
    at_boot: bool,
    #[command(flatten)]
    applying: Applying,
    /// Write the plan for `clearstream plan apply`
    #[arg(long, value_name = "PATH", requires = "dry_run")]
    out: Option<PathBuf>,
}

impl ApplyArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        self.applying.check(out)?;
        // Before the host is read: an overdue plan is restored first.
        let options = Options::live()?;
        settle(&options)?;
        if self.at_boot && !matches!(of_routes(&options)?, None | Some(JournalState::Gone)) {
            out.note("a plan of routes was applied or reverted since this host booted: nothing is changed");
            return Ok(());
        }
        let plan = self.plan(&HostRoot::live())?;
        if let Some(path) = &self.out {
            let text = clearstream_schema::json::to_string_pretty(&plan).map_err(Unwritten::from)?;
            files::write(path, &(text + "\n"))?;
        }
        self.applying.carry_out(&plan, Source::Made, out)
    }

    fn plan(&self, root: &HostRoot) -> Result<Plan, CommandError> {
        let path = Path::new(&self.fabric);
        let is_plan = path.is_file()
            && document::read_text(path, document::DOCUMENT_BYTES)
                .is_ok_and(|text| text.trim_start().starts_with('{'));
        if is_plan {
            return read_plan(path);
        }
        let planned = Planned::of(&self.fabric, self.host.as_deref(), root)?;
        let missing = probe_kernel::missing(root, &planned.host.routing);
        if !missing.is_empty() {
            let lines: Vec<String> = missing.iter().map(probe_kernel::Missing::description).collect();
            return Err(CommandError::Unsupported(format!(
                "nothing was changed: this kernel lacks {}",
                lines.join("; ")
            )));
        }
        planned.difference(root)
    }
}
