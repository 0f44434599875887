//! `clearstream report`

use std::path::PathBuf;

use clearstream_record::Reader;

use crate::{
    exit::CommandError,
    files,
    output::{self, Output, documents::Written},
};

/// Turn a recorded run into one page that a colleague can read.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Run folder
    run: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    format: ReportFormat,
    /// Where to; `-` is standard output [default: report.html, report.md or trials.csv in the run folder]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// One self-contained page with figures
    Html,
    /// Text with tables
    Markdown,
    /// One row per trial
    Csv,
}

impl ReportArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let reader = Reader::open(&self.run)?;
        let text = match self.format {
            ReportFormat::Html => clearstream_report::html(&reader)?,
            ReportFormat::Markdown => clearstream_report::markdown(&reader)?,
            ReportFormat::Csv => clearstream_report::csv(&reader)?,
        };
        let default = match self.format {
            ReportFormat::Html => "report.html",
            ReportFormat::Markdown => "report.md",
            ReportFormat::Csv => "trials.csv",
        };
        let path = self.out.unwrap_or_else(|| self.run.join(default));
        if path.as_os_str() == "-" {
            out.without_document("a report on standard output")?;
            return Ok(output::as_it_is(&text)?);
        }
        files::write(&path, &text)?;
        let files = [path.display().to_string()];
        Ok(out.result(&Written { files: &files }, || format!("wrote {}", files[0]))?)
    }
}
