//! Exit codes of storage.

use clearstream_schema::ExitCode;
use clearstream_storage::{StorageError, semantics::SemanticsError};

use super::{failure, peer, ranks};

pub(super) fn semantics(error: &SemanticsError) -> ExitCode {
    match error {
        SemanticsError::Peer(error) => peer(error),
        SemanticsError::NotShared { .. } => ExitCode::Usage,
        SemanticsError::Gone(_) | SemanticsError::Silent { .. } | SemanticsError::Remains { .. } => {
            ExitCode::File
        }
    }
}

/// Of the ranks of `storage stream` and `storage metadata`.
pub(super) fn storage(error: &StorageError) -> ExitCode {
    match error.root() {
        StorageError::Invalid(it) | StorageError::Failed(it) => failure(it),
        StorageError::Peer(error) => peer(error),
        StorageError::Ranks(error) => ranks(error),
        StorageError::Silent { source, .. } => peer(source),
        StorageError::Kept { .. } => ExitCode::File,
    }
}
