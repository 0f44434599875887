//! Atomic file replacement: a file has either the old or the new content.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::RecordError;

/// Temporary name of a file before it is renamed to `path`.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    path.with_file_name(name)
}

/// Syncs `written` and renames it to `path`; the folder is synced, too, since rename(2) alone does not make
/// the new name durable.
pub(crate) fn rename_into_place(written: &File, path: &Path) -> Result<(), RecordError> {
    let partial = temporary(path);
    written.sync_all().map_err(|source| RecordError::write(&partial, source))?;
    fs::rename(&partial, path).map_err(|source| RecordError::write(path, source))?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Replaces `path` by `content` atomically.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), RecordError> {
    let partial = temporary(path);
    let fail = |source| RecordError::write(&partial, source);
    let write = || -> Result<(), RecordError> {
        let mut file = File::create(&partial).map_err(fail)?;
        file.write_all(content).map_err(fail)?;
        rename_into_place(&file, path)
    };
    write().inspect_err(|_| {
        // On a full disk the space of the attempt is freed.
        let _ = fs::remove_file(&partial);
    })
}

/// Makes the names in a folder durable (fsync(2): "calling fsync() does not
/// necessarily ensure that the entry in the directory [...] has also reached disk").
pub(crate) fn sync_folder(folder: &Path) -> Result<(), RecordError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| RecordError::write(folder, source))
}
