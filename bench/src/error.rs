//! Errors that end the comparison.

use std::{io, path::PathBuf};

use clearstream_lab::LabError;

/// Reason for the end of the comparison.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("{0}")]
    Usage(String),
    #[error("{program}: cannot be started: {source}; run .ci/install bench")]
    Start { program: String, source: io::Error },
    #[error("{line}: {message}")]
    Run { line: String, message: String },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("stopped; what was measured until then is in the results")]
    Interrupted,
}
