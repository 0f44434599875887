//! Files of a run folder, with errors that name them.

use std::{fs::File, path::Path};

use clearstream_sys::file;

use crate::RecordError;

/// Replaces `path` by `content` atomically.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), RecordError> {
    file::replace(path, content).map_err(|source| RecordError::write(path, source))
}

/// Makes the names in a folder durable (fsync(2): "calling fsync() does not
/// necessarily ensure that the entry in the directory [...] has also reached disk").
pub(crate) fn sync_folder(folder: &Path) -> Result<(), RecordError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| RecordError::write(folder, source))
}
