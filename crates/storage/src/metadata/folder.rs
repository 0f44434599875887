//! The folder of the trees, and the operations in it by names relative to its descriptor. What others put into it
//! stays, and so does the folder then.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use clearstream_schema::storage::metadata::{MetadataKind, MetadataOperation};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, mkdirat, open, openat, renameat, statat, unlinkat},
    io::Errno,
};

use super::{MetadataError, file_error};

/// Beginning of the folder's name.
const PREFIX: &str = ".clearstream-metadata-";
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);
const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Suffix of renamed items.
const RENAMED: &str = ".renamed";

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    own: OwnedFd,
}

/// Creates the folder; its name.
pub(super) fn create(directory: &Path) -> Result<String, MetadataError> {
    let name = format!("{PREFIX}{:016x}", rand::random::<u64>());
    let parent = open(directory, FOLDER_FLAGS, Mode::empty());
    let made = parent.and_then(|parent| mkdirat(parent, name.as_str(), FOLDER_MODE));
    made.map_err(|error| {
        MetadataError::File(file_error("create the folder", &directory.join(&name), &error.into()))
    })?;
    Ok(name)
}

impl Folder {
    pub(super) fn enter(directory: &Path, name: &str) -> Result<Self, String> {
        let path = directory.join(name);
        match open(&path, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(own) => Ok(Self { path, own }),
            Err(error) => Err(file_error("open", &path, &error.into())),
        }
    }

    /// Creates a directory.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.own, name, FOLDER_MODE)?)
    }

    /// Removes a directory.
    pub(super) fn remove_directory(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.own, name, AtFlags::REMOVEDIR)?)
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.own, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, FILE_MODE)?.into())
    }

    /// One operation on an item; `buffer` is what is written, or room for what is read.
    pub(super) fn operate(
        &self,
        kind: MetadataKind,
        operation: MetadataOperation,
        item: &str,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        use MetadataKind::File as OfFile;
        match (operation, kind) {
            (MetadataOperation::Create, OfFile) => {
                let mut file = self.open(item, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
                file.write_all(buffer)?;
                clearstream_sys::file::close(file)
            }
            (MetadataOperation::Create, _) => self.make(item),
            (MetadataOperation::Stat, _) => {
                Ok(statat(&self.own, item, AtFlags::SYMLINK_NOFOLLOW).map(|_| ())?)
            }
            (MetadataOperation::Read, OfFile) => {
                let mut file = self.open(item, OFlags::RDONLY)?;
                let mut read = 0;
                while read < buffer.len() {
                    match file.read(&mut buffer[read..])? {
                        0 => break,
                        count => read += count,
                    }
                }
                clearstream_sys::file::close(file)
            }
            (MetadataOperation::Read, _) => {
                let entries = Dir::new(self.open(item, FOLDER_FLAGS)?)?;
                Ok(entries.into_iter().try_for_each(|entry| entry.map(|_| ()))?)
            }
            (MetadataOperation::Rename, _) => {
                Ok(renameat(&self.own, item, &self.own, format!("{item}{RENAMED}"))?)
            }
            (MetadataOperation::Remove, OfFile) => {
                Ok(unlinkat(&self.own, format!("{item}{RENAMED}"), AtFlags::empty())?)
            }
            (MetadataOperation::Remove, _) => self.remove_directory(&format!("{item}{RENAMED}")),
        }
    }

    /// Removes an item under either name, where it is there.
    pub(super) fn clean(&self, kind: MetadataKind, item: &str) -> Result<(), String> {
        let flags = if kind == MetadataKind::File { AtFlags::empty() } else { AtFlags::REMOVEDIR };
        for name in [item.to_owned(), format!("{item}{RENAMED}")] {
            match unlinkat(&self.own, name.as_str(), flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(file_error("remove", &self.path.join(name), &error.into())),
            }
        }
        Ok(())
    }

    /// Removes the folder, which is empty.
    pub(super) fn leave(&self) -> Result<(), MetadataError> {
        match rustix::fs::rmdir(&self.path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(MetadataError::Remains {
                folder: self.path.display().to_string(),
                message: match error {
                    Errno::NOTEMPTY => "files of others are in it".to_owned(),
                    error => io::Error::from(error).to_string(),
                },
            }),
        }
    }
}
