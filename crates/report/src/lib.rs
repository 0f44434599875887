//! Reports: from a record to one self-contained HTML file,
//! to Markdown, and to CSV; and the page of a closed loop of changes.
//!
//! This crate reads records and documents and nothing else: no host, no network, no clock.
//! All text of a record is untrusted and is escaped where it becomes markup.
//! The same record always gives the same report.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod analysis;
mod cell_settings;
mod csv;
mod delay_lines;
mod digest;
mod document;
mod error;
mod estimate;
mod figure;
mod figures;
mod format;
mod headline;
mod history;
mod hosts;
mod improvement;
mod link;
mod machine;
mod machines;
mod markdown;
mod measured;
mod notices;
mod page;
mod places;
mod series;
mod settings;
mod shortfall;
mod storage;
mod summary;
mod svg;
#[cfg(test)]
#[path = "../tests/it/common/hosts.rs"]
mod synthetic;

use clearstream_record::Reader;
use clearstream_schema::improvement::Improvement;

pub use error::{Diagnose, ReportError};
pub use improvement::Made;
pub use machine::machine_svg;
pub use page::script_hash;

/// A record, read once, and every format that is written of it.
#[derive(Debug)]
pub struct Report {
    analysis: analysis::Analysis,
}

impl Report {
    /// Reads a record.
    ///
    /// # Errors
    /// When a file of it cannot be read, or a trial's document is not of its format.
    pub fn of(reader: &Reader) -> Result<Self, ReportError> {
        Ok(Self { analysis: analysis::Analysis::of(reader, None)? })
    }

    /// Reads a record, with the diagnosis of the trials that need one.
    ///
    /// # Errors
    /// As [`Report::of`]; a diagnosis that fails is stated in the report.
    pub fn diagnosed(reader: &Reader, diagnose: &Diagnose<'_>) -> Result<Self, ReportError> {
        Ok(Self { analysis: analysis::Analysis::of(reader, Some(diagnose))? })
    }

    /// One self-contained HTML file with SVG figures.
    ///
    /// # Errors
    /// [`ReportError::Page`], a fault of this program.
    pub fn html(&self) -> Result<String, ReportError> {
        page::render(&document::Document::of(&self.analysis))
    }

    /// Markdown: summary, findings and tables, without drawings.
    pub fn markdown(&self) -> String {
        markdown::render(&document::Document::of(&self.analysis))
    }

    /// The numbers at the head of the report, one line each: what it is, the
    /// number with its unit, its confidence, its link, and the cell or meaning.
    pub fn headlines(&self) -> Vec<String> {
        let line = |headline: headline::Headline| {
            let path = headline.path.map_or_else(String::new, |path| format!(", {path}"));
            format!("{}: {} ({}){path}. {}", headline.label, headline.value, headline.sure, headline.detail)
        };
        summary::headlines(&self.analysis).into_iter().map(line).collect()
    }
}

/// The report as one self-contained HTML file with SVG figures.
///
/// # Errors
/// As [`Report::of`] and [`Report::html`].
pub fn html(reader: &Reader) -> Result<String, ReportError> {
    Report::of(reader)?.html()
}

/// Several runs side by side over their dates, as one self-contained HTML file: a
/// small drawing per cell that at least two of them measured.
///
/// # Errors
/// When a record cannot be read, or [`ReportError::Page`].
pub fn history_html(readers: &[Reader]) -> Result<String, ReportError> {
    let digests: Result<Vec<_>, _> = readers.iter().map(digest::Digest::read).collect();
    page::render_history(&history::Document::of(&digests?))
}

/// Report of a closed loop on a path, as one self-contained HTML file: goodput
/// before and now, every change with its runs, and how to restore the previous settings.
/// `made` is the time, program and hosts, where known.
///
/// # Errors
/// [`ReportError::Page`], a fault of this program: any document is rendered.
pub fn improvement_html(found: &Improvement, made: Option<&Made>) -> Result<String, ReportError> {
    page::render_improvement(&improvement::Document::of(found, made))
}

/// The report as Markdown: summary, findings and tables, without drawings.
///
/// # Errors
/// As [`Report::of`].
pub fn markdown(reader: &Reader) -> Result<String, ReportError> {
    Ok(Report::of(reader)?.markdown())
}

/// The numbers at the head of the report, one line each.
///
/// # Errors
/// As [`Report::of`].
pub fn headlines(reader: &Reader) -> Result<Vec<String>, ReportError> {
    Ok(Report::of(reader)?.headlines())
}

/// One line per trial, units in the column names (RFC 4180).
pub fn csv(reader: &Reader) -> Result<String, ReportError> {
    csv::render(reader)
}
