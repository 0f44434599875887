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

use super::file_error;
use crate::{
    data::Source,
    folder::FOLDER_FLAGS,
    made::Marks,
    test_folder::{Purpose, TestFolder},
};

/// Suffix of renamed items.
const RENAMED: &str = ".renamed";

/// The name of an item before or after renaming.
pub(super) fn named(mut item: String, is_renamed: bool) -> String {
    if is_renamed {
        item.push_str(RENAMED);
    }
    item
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
pub(super) struct Items(pub(super) TestFolder);

impl Items {
    pub(super) fn path(&self) -> &Path {
        &self.0.folder.path
    }

    /// Why the path does not lead to the folder any more, if so.
    pub(super) fn missing(&self) -> Option<String> {
        self.0.folder.missing()
    }

    /// Creates a directory.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.0.folder.own, name, self.0.folder.folder_mode)?)
    }

    /// Removes a directory.
    pub(super) fn remove_directory(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0.folder.own, name, AtFlags::REMOVEDIR)?)
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
                let mut file = self.0.folder.open(item, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
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
                Ok(statat(&self.0.folder.own, item, AtFlags::SYMLINK_NOFOLLOW).map(|_| ())?)
            }
            (MetadataOperation::Read, OfFile) => {
                let mut file = self.0.folder.open(item, OFlags::RDONLY)?;
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
                let entries = Dir::new(self.0.folder.open(item, FOLDER_FLAGS)?)?;
                Ok(entries.into_iter().try_for_each(|entry| entry.map(|_| ()))?)
            }
            (MetadataOperation::Rename, _) => {
                let own = &self.0.folder.own;
                match item.strip_suffix(RENAMED) {
                    Some(before) => renameat(own, item, own, before)?,
                    None => renameat(own, item, own, format!("{item}{RENAMED}"))?,
                }
                Ok(())
            }
            (MetadataOperation::Remove, OfFile) => Ok(unlinkat(&self.0.folder.own, item, AtFlags::empty())?),
            (MetadataOperation::Remove, _) => self.remove_directory(item),
        }
    }

    /// Whether there is something of that name.
    pub(super) fn has(&self, name: &str) -> Result<bool, Failure> {
        match statat(&self.0.folder.own, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(file_error("look up", &self.path().join(name), &error.into())),
        }
    }
}

/// The folders of a test, one of its name in each directory: that of a rank is found by the rank.
#[derive(Debug)]
pub(super) struct Places(pub(super) Vec<Items>);

impl Places {
    /// Enters what rank 0 has made, or found.
    pub(super) fn enter(places: &[(String, Marks)], name: &str, purpose: Purpose) -> Result<Self, Failure> {
        let enter = |(directory, marks): &(String, Marks)| {
            TestFolder::of_other_rank(Path::new(directory), name, purpose, *marks).map(Items)
        };
        places.iter().map(enter).collect::<Result<_, _>>().map(Self)
    }

    /// The folder that has what a rank made: by turns, as in mdtest.
    pub(super) fn of(&self, owner: usize) -> &Items {
        &self.0[owner % self.0.len()]
    }
}
