//! `clearstream plan render`, and the same behind `tune plan --as`: a plan as
//! files that the operator's system reads at each boot.

use std::path::{Path, PathBuf};

use clearstream_netconfig::settings::{Format, render};
use clearstream_schema::plan::Plan;

use super::{
    documents::{LeftOut, RenderedFile, RenderedPlan},
    file::read_plan,
};
use crate::{
    exit::CommandError,
    files,
    output::{self, Output},
};

/// Write a plan as configuration files that survive a reboot.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    /// The plan, from `tune plan --out` or `place plan --out`
    plan: PathBuf,
    /// Format: sysctl.d, networkmanager, networkd, udev, tuned, ansible or shell
    #[arg(long = "as", value_name = "FORMAT")]
    format: Format,
    /// Folder to write; each file is placed below it at its path on the host
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

impl RenderArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        write_files(&read_plan(&self.plan)?, self.format, &self.out, out)
    }
}

/// Writes the files. Steps that no file can express are listed and exit with code 8.
pub(in crate::verbs) fn write_files(
    plan: &Plan,
    format: Format,
    folder: &Path,
    out: &Output,
) -> Result<(), CommandError> {
    let rendered = render(plan, format);
    let mut files = Vec::new();
    for file in &rendered.files {
        let path = folder.join(file.path.trim_start_matches('/'));
        if let Some(parent) = path.parent() {
            clearstream_sys::file::make_folders(parent, 0o777).map_err(|source| CommandError::File {
                what: "make folder".to_owned(),
                path: parent.to_owned(),
                source,
            })?;
        }
        files::write_with_mode(&path, &file.text, file.mode)?;
        files.push(RenderedFile { path: path.display().to_string(), belongs_at: file.path.clone() });
    }
    let left_out = rendered
        .left_out
        .iter()
        .map(|left_out| LeftOut { setting: left_out.setting.to_string(), reason: left_out.reason.clone() });
    let document = RenderedPlan { files, left_out: left_out.collect() };
    out.document(&document)?;
    if out.is_human() {
        for file in &document.files {
            output::line(&format!("{}  (belongs at {})", file.path, file.belongs_at))?;
        }
        for left_out in &document.left_out {
            output::line(&format!("left out: {}: {}", left_out.setting, left_out.reason))?;
        }
    }
    if rendered.left_out.is_empty() {
        return Ok(());
    }
    Err(CommandError::Partial(format!(
        "{} of {} steps cannot be expressed in this format: use another one for them",
        rendered.left_out.len(),
        plan.steps.len()
    )))
}
