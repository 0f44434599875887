//! Errors of the ranks.

use std::{io, path::Path};

use clearstream_ranks::RankError;
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
};

use crate::StorageError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The options contradict each other.
    #[error("{0}")]
    Invalid(String),
    /// An operation on a file failed.
    #[error(transparent)]
    File(Failure),
    /// The folder could not be removed.
    #[error("{0}")]
    Remains(String),
    /// A rank was lost.
    #[error(transparent)]
    Ranks(#[from] RankError),
}

/// An operation, its file and the error.
pub(super) fn file_error(operation: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::of_file(&format!("{operation} {}", path.display()), error)
}

impl From<MetadataError> for StorageError {
    fn from(error: MetadataError) -> Self {
        match error {
            MetadataError::Ranks(error) => Self::Ranks(error),
            error => Self::Failed(error.to_failure()),
        }
    }
}

impl Classified for MetadataError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Ranks(error) => error.failure_kind(),
            Self::File(failure) => failure.kind,
            Self::Remains(_) => FailureKind::File,
            Self::Invalid(_) => FailureKind::Invalid,
        }
    }
}

/// A result of the phases, with what remains of them.
pub(super) fn joined<T>(
    result: Result<T, MetadataError>,
    left: Result<(), MetadataError>,
) -> Result<T, MetadataError> {
    match (result, left) {
        (Ok(value), Ok(())) => Ok(value),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        (Err(MetadataError::File(failure)), Err(remains)) => {
            let message = format!("{failure}; {remains}");
            Err(MetadataError::File(Failure { message, ..failure }))
        }
        (Err(error), Err(_)) => Err(error),
    }
}
