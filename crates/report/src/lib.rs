//! Reports: from a record to one HTML file that needs nothing from anywhere,
//! to Markdown, and to CSV; and the page of a closed loop of changes.
//!
//! This crate reads records and documents and nothing else: no host, no network, no clock.
//! All text of a record is untrusted and is escaped where it becomes markup.
//! The same record always gives the same report.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod csv;
mod digest;
mod document;
mod estimate;
mod figure;
mod figures;
mod format;
mod improvement;
mod machine;
mod markdown;
mod page;
mod series;
mod settings;
mod summary;
mod svg;
#[cfg(test)]
#[path = "../tests/common/hosts.rs"]
mod synthetic;

use clearstream_record::{Reader, RecordError};
use clearstream_schema::improvement::Improvement;

pub use machine::machine_svg;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The record could not be read; the cause names the file and line.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A trial's own document is not of the format that it names.
    #[error("trial {trial}: its {schema} cannot be read: {source}")]
    Detail {
        /// The trial.
        trial: u32,
        /// Name of the format.
        schema: &'static str,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The page could not be composed: a fault of this program.
    #[error("the page could not be composed: please report this")]
    Page(#[source] minijinja::Error),
}

/// The report as one self-contained HTML file with SVG figures.
pub fn html(reader: &Reader) -> Result<String, ReportError> {
    page::render(&document(reader)?)
}

/// What a closed loop tried on a path, as one self-contained HTML file: goodput
/// before and now, every change with its runs, and how what was kept is taken back.
///
/// # Errors
/// [`ReportError::Page`], a fault of this program: any document gives a page.
pub fn improvement_html(found: &Improvement) -> Result<String, ReportError> {
    page::render_improvement(&improvement::Document::of(found))
}

/// The report as Markdown: summary, findings and tables, without drawings.
pub fn markdown(reader: &Reader) -> Result<String, ReportError> {
    Ok(markdown::render(&document(reader)?))
}

/// The numbers at the head of the report, one line each: what it is, the
/// number with its unit, and how sure it is.
pub fn headlines(reader: &Reader) -> Result<Vec<String>, ReportError> {
    let digest = digest::Digest::read(reader)?;
    let line =
        |headline: summary::Headline| format!("{}: {} ({})", headline.label, headline.value, headline.sure);
    Ok(summary::headlines(&digest).into_iter().map(line).collect())
}

/// One line per trial, units in the column names (RFC 4180).
pub fn csv(reader: &Reader) -> Result<String, ReportError> {
    csv::render(reader)
}

fn document(reader: &Reader) -> Result<document::Document, ReportError> {
    Ok(document::Document::of(&digest::Digest::read(reader)?))
}
