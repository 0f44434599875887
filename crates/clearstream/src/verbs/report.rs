//! `clearstream report`

use std::path::{Path, PathBuf};

use clearstream_diagnose::{Evidence, explain};
use clearstream_record::Reader;
use clearstream_report::Report;
use clearstream_schema::diagnosis::Diagnosis;

use crate::{
    exit::CommandError,
    files,
    output::{self, Output, documents::Written},
};

/// Write the report of a recorded run, or the history of several runs.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Run folder; several are drawn side by side over their dates
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    format: ReportFormat,
    /// File to write; `-` is standard output [default: report.html, report.md or trials.csv in the run folder; history.html of several]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Formats of a report.
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
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let (text, default) = match self.runs.as_slice() {
            [run] => self.of_one(run)?,
            runs => (self.of_several(runs)?, PathBuf::from("history.html")),
        };
        let chosen = self.out.is_some();
        let path = self.out.unwrap_or(default);
        if path.as_os_str() == "-" {
            out.without_document("a report on standard output")?;
            // Lines of CSV end with CR LF (RFC 4180), of which CR would be escaped.
            return Ok(output::as_it_is(text.replace("\r\n", "\n").trim_end_matches('\n'))?);
        }
        files::write(&path, &text).map_err(|error| match error {
            CommandError::File { path, source, .. } if !chosen => CommandError::RunFolder { path, source },
            other => other,
        })?;
        let files = [path.display().to_string()];
        Ok(out.result(&Written { files: &files }, || format!("wrote {}", files[0]))?)
    }

    fn of_one(&self, run: &Path) -> Result<(String, PathBuf), CommandError> {
        let reader = Reader::open(run)?;
        Ok(match self.format {
            ReportFormat::Html => (Report::diagnosed(&reader, &diagnose)?.html()?, run.join("report.html")),
            ReportFormat::Markdown => {
                (Report::diagnosed(&reader, &diagnose)?.markdown(), run.join("report.md"))
            }
            ReportFormat::Csv => (clearstream_report::csv(&reader)?, run.join("trials.csv")),
        })
    }

    fn of_several(&self, runs: &[PathBuf]) -> Result<String, CommandError> {
        if self.format != ReportFormat::Html {
            return Err(CommandError::usage(
                "several runs are drawn as one page: leave --format out, or name one run",
            ));
        }
        let readers: Result<Vec<Reader>, _> = runs.iter().map(|run| Reader::open(run)).collect();
        Ok(clearstream_report::history_html(&readers?)?)
    }
}

/// What limits a trial of a record: the result of `clearstream diagnose --from RUN --trial N`.
pub(super) fn diagnose(reader: &Reader, trial: u32) -> Result<Diagnosis, String> {
    let evidence = Evidence::from_record(reader, Some(trial)).map_err(|error| error.to_string())?;
    Ok(explain(&evidence))
}
