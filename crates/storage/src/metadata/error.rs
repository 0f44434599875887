//! Errors of the ranks.

use std::{io, path::Path};

use clearstream_ranks::RankError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The options contradict each other.
    #[error("{0}")]
    Invalid(String),
    /// An operation on a file failed.
    #[error("{0}")]
    File(String),
    /// The folder could not be removed.
    #[error("the folder {folder} remains: {message}")]
    Remains {
        /// Its path.
        folder: String,
        /// Cause.
        message: String,
    },
    /// A rank was lost.
    #[error(transparent)]
    Ranks(#[from] RankError),
}

/// An operation, its file and the error.
pub(super) fn file_error(operation: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {operation} {}: {error}", path.display())
}

/// A result of the phases, with what remains of them.
pub(super) fn joined<T>(
    result: Result<T, MetadataError>,
    left: Result<(), MetadataError>,
) -> Result<T, MetadataError> {
    match (result, left) {
        (Ok(value), Ok(())) => Ok(value),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        (Err(MetadataError::File(message)), Err(remains)) => {
            Err(MetadataError::File(format!("{message}; {remains}")))
        }
        (Err(error), Err(_)) => Err(error),
    }
}
