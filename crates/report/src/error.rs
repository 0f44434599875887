//! Errors of reports, and the diagnosis that a report asks for.

use clearstream_record::{Reader, RecordError};
use clearstream_schema::{control::FailureKind, diagnosis::Diagnosis, failure::Classified, outcome::Outcome};
use serde::de::DeserializeOwned;

/// Diagnosis of a trial of a record by its number, as by `clearstream diagnose --from RUN --trial N`.
/// Called by a report where goodput stays below what window and link allow.
pub type Diagnose<'a> = dyn Fn(&Reader, u32) -> Result<Diagnosis, String> + 'a;

/// Reason for the failure of a report.
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
        /// Reason.
        #[source]
        source: serde_json::Error,
    },
    /// The page could not be composed: a fault of this program.
    #[error("the page could not be composed: please report this")]
    Page(#[source] minijinja::Error),
}

impl Classified for ReportError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Record(error) => error.failure_kind(),
            Self::Detail { .. } => FailureKind::File,
            Self::Page(_) => FailureKind::Internal,
        }
    }
}

/// A workload's own document, when the outcome has one of this format.
pub(crate) fn detail<T: DeserializeOwned>(
    outcome: &Outcome,
    schema: &'static str,
    trial: u32,
) -> Result<Option<T>, ReportError> {
    let read = outcome.detail(schema).transpose();
    read.map_err(|source| ReportError::Detail { trial, schema, source })
}
