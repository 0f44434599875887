//! Files of a run folder, with errors that name them.

use std::{fs::File, io, path::Path};

use clearstream_sys::file;

use crate::RecordError;

/// Replaces `path` by `content` atomically.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), RecordError> {
    file::replace(path, content).map_err(|source| RecordError::write(path, source))
}

/// As [`replace`], with what `fill` writes.
pub(crate) fn replace_with(
    path: &Path,
    fill: impl FnOnce(&mut File) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    /// Separates errors of the file from those of the writing function.
    enum Failure {
        File(io::Error),
        Fill(RecordError),
    }
    impl From<io::Error> for Failure {
        fn from(error: io::Error) -> Self {
            Self::File(error)
        }
    }
    let filled = file::replace_with(path, None, |file| fill(file).map_err(Failure::Fill));
    filled.map_err(|failure| match failure {
        Failure::File(source) => RecordError::write(path, source),
        Failure::Fill(error) => error,
    })
}

/// Makes the names in a folder durable (fsync(2): "calling fsync() does not
/// necessarily ensure that the entry in the directory [...] has also reached disk").
pub(crate) fn sync_folder(folder: &Path) -> Result<(), RecordError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| RecordError::write(folder, source))
}
