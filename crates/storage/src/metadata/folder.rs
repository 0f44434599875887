//! The operations on items, by names relative to the folder's descriptor. What others put into it stays, and so does
//! the folder then.

use std::{
    io::{self, Read as _, Write as _},
    path::Path,
};

use clearstream_schema::{
    control::Failure,
    storage::metadata::{MetadataConfig, MetadataKind, MetadataOperation},
};
use rustix::{
    fs::{AtFlags, Dir, OFlags, mkdirat, renameat, statat, unlinkat},
    io::Errno,
};

use super::{MetadataError, file_error};
use crate::data::Source;
use crate::folder::{FOLDER_FLAGS, FOLDER_MODE, Folder, METADATA_PREFIX, Remains};

/// Suffix of renamed items.
pub(super) const RENAMED: &str = ".renamed";

/// Creates the folder.
pub(super) fn create(directory: &Path) -> Result<Folder, MetadataError> {
    let name = format!("{METADATA_PREFIX}{:016x}", rand::random::<u64>());
    let made = Folder::create(directory, &name);
    made.map_err(|error| MetadataError::File(file_error("create the folder", &directory.join(&name), &error)))
}

/// What an operation writes, or room for what it reads.
pub(super) enum Contents {
    Write {
        source: Source,
        /// Each file is flushed.
        flush: bool,
    },
    Read(Vec<u8>),
}

impl Contents {
    pub(super) fn new(
        config: &MetadataConfig,
        operation: MetadataOperation,
        bytes: usize,
    ) -> io::Result<Self> {
        if operation == MetadataOperation::Create {
            let ranks = usize::try_from(config.rank_count()).unwrap_or(usize::MAX);
            return Ok(Self::Write { source: Source::new(config.data, bytes, ranks)?, flush: config.fsync });
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        buffer.resize(bytes, 0);
        Ok(Self::Read(buffer))
    }

    /// Has the next operation's bytes ready, outside of its time.
    pub(super) fn prepare(&mut self) {
        if let Self::Write { source, .. } = self
            && source.is_used()
        {
            source.renew();
        }
    }
}

/// The folder with the operations on its items.
#[derive(Debug)]
pub(super) struct Items(pub(super) Folder);

impl Items {
    pub(super) fn enter(directory: &Path, name: &str) -> Result<Self, Failure> {
        let entered = Folder::enter(directory, name);
        entered.map(Self).map_err(|error| file_error("open", &directory.join(name), &error))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Why the path does not lead to the folder any more, if so.
    pub(super) fn missing(&self) -> Option<String> {
        self.0.missing()
    }

    /// Creates a directory.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.0.own, name, FOLDER_MODE)?)
    }

    /// Removes a directory.
    pub(super) fn remove_directory(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0.own, name, AtFlags::REMOVEDIR)?)
    }

    /// One operation on an item.
    pub(super) fn operate(
        &self,
        kind: MetadataKind,
        operation: MetadataOperation,
        item: &str,
        contents: &mut Contents,
    ) -> io::Result<()> {
        use MetadataKind::File as OfFile;
        match (operation, kind) {
            (MetadataOperation::Create, OfFile) => {
                let mut file = self.0.open(item, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
                if let Contents::Write { source, flush } = contents {
                    file.write_all(source.next())?;
                    if *flush {
                        file.sync_all()?;
                    }
                }
                clearstream_sys::file::close(file)
            }
            (MetadataOperation::Create, _) => self.make(item),
            (MetadataOperation::Stat, _) => {
                Ok(statat(&self.0.own, item, AtFlags::SYMLINK_NOFOLLOW).map(|_| ())?)
            }
            (MetadataOperation::Read, OfFile) => {
                let mut file = self.0.open(item, OFlags::RDONLY)?;
                let mut read = 0;
                let Contents::Read(buffer) = contents else { return Ok(()) };
                while read < buffer.len() {
                    match file.read(&mut buffer[read..])? {
                        0 => break,
                        count => read += count,
                    }
                }
                clearstream_sys::file::close(file)
            }
            (MetadataOperation::Read, _) => {
                let entries = Dir::new(self.0.open(item, FOLDER_FLAGS)?)?;
                Ok(entries.into_iter().try_for_each(|entry| entry.map(|_| ()))?)
            }
            (MetadataOperation::Rename, _) => {
                Ok(renameat(&self.0.own, item, &self.0.own, format!("{item}{RENAMED}"))?)
            }
            (MetadataOperation::Remove, OfFile) => Ok(unlinkat(&self.0.own, item, AtFlags::empty())?),
            (MetadataOperation::Remove, _) => self.remove_directory(item),
        }
    }

    /// Removes an item under either name, where it is there.
    pub(super) fn clean(&self, kind: MetadataKind, item: &str) -> Result<(), Failure> {
        let flags = if kind == MetadataKind::File { AtFlags::empty() } else { AtFlags::REMOVEDIR };
        for name in [item.to_owned(), format!("{item}{RENAMED}")] {
            match self.0.remove(&name, flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(file_error("remove", &self.path().join(name), &error.into())),
            }
        }
        Ok(())
    }

    /// Removes the folder, which is empty.
    pub(super) fn leave(&self) -> Result<(), Remains> {
        self.0.leave()
    }
}
