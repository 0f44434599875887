//! `clearstream tune render`, and the same behind `tune plan --as`: a plan as
//! files that the operator's system reads at each boot.

use std::path::{Path, PathBuf};

use clearstream_plan::{Format, render};
use clearstream_schema::plan::Plan;

use crate::{
    exit::CommandError,
    files,
    output::{self, tune},
};

/// Write a plan as files of the operator's system, so that it is there after
/// the next boot.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    /// The plan, from `tune plan --out` or `place plan --out`
    plan: PathBuf,
    /// sysctl.d, networkmanager, networkd, udev, tuned, ansible or shell
    #[arg(long = "as", value_name = "FORMAT", value_parser = format)]
    format: Format,
    /// Folder that the files are written below, each under the path where it belongs
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

impl RenderArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        write_files(&super::change::read_plan(&self.plan)?, self.format, &self.out)
    }
}

/// Reads the name of a format.
pub(super) fn format(text: &str) -> Result<Format, String> {
    let name = if text == "sysctl.d" { "sysctl" } else { text };
    Format::ALL
        .into_iter()
        .find(|format| format.name() == name)
        .ok_or_else(|| "write sysctl.d, networkmanager, networkd, udev, tuned, ansible or shell".to_owned())
}

/// Writes the files and says what is in none of them, which ends with exit code 8.
pub(super) fn write_files(plan: &Plan, format: Format, folder: &Path) -> Result<(), CommandError> {
    let rendered = render(plan, format);
    for file in &rendered.files {
        let path = folder.join(file.path.trim_start_matches('/'));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|source| CommandError::File {
                what: "make folder".to_owned(),
                path: parent.to_owned(),
                source,
            })?;
        }
        files::write_with_mode(&path, &file.text, file.mode)?;
        output::line(&format!("{}  (belongs at {})", path.display(), file.path))?;
    }
    if rendered.left_out.is_empty() {
        return Ok(());
    }
    for left_out in &rendered.left_out {
        output::line(&format!("left out: {}: {}", tune::setting(&left_out.setting), left_out.reason))?;
    }
    Err(CommandError::Partial(format!(
        "{} of {} steps cannot be said in this format: take another one for them",
        rendered.left_out.len(),
        plan.steps.len()
    )))
}
