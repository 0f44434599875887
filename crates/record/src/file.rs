//! Files that are either the old or the new content, never half of it.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::RecordError;

/// Name of the file that becomes `path` when it is whole.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    path.with_file_name(name)
}

/// Syncs `written` and puts it in the place of `path`; the folder is synced
/// too, since rename(2) alone does not say when the new name is on disk.
pub(crate) fn put_in_place(written: &File, path: &Path) -> Result<(), RecordError> {
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
        put_in_place(&file, path)
    };
    write().inspect_err(|_| {
        // A full disk gets back what the attempt took.
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
