//! The files of a test in its folder: their names, and which of them this run made. Only those are removed, by name and
//! inode; what lies under one of the names meanwhile, or lay there before, is others'.

use std::{fs::File, io, path::PathBuf};

use clearstream_schema::storage::{StreamBackend, StreamConfig, StreamPhase};
use rustix::{
    fs::{Advice, OFlags, fadvise, fstat},
    io::Errno,
};

use crate::{
    folder::Folder,
    made::{Inode, look_at},
};

/// Name of the files in the folder; with `--file-per-process` the rank follows.
const FILE: &str = "data";

/// Files of one test, as one rank has to do with them.
pub(super) struct Files<'a> {
    folder: &'a Folder,
    config: &'a StreamConfig,
    /// Whether there is a file per rank.
    is_per_process: bool,
    /// The file of the iteration that this rank has open for writing, or had.
    made: Option<(String, Inode)>,
}

impl<'a> Files<'a> {
    pub(super) fn new(folder: &'a Folder, config: &'a StreamConfig, is_per_process: bool) -> Self {
        Self { folder, config, is_per_process, made: None }
    }

    pub(super) fn path(&self, iteration: u32, owner: usize) -> PathBuf {
        self.folder.path.join(self.name(iteration, owner))
    }

    /// From the directory of the measurement.
    pub(super) fn shown(&self, iteration: u32, owner: usize) -> String {
        format!("{}/{}", self.folder.name, self.name(iteration, owner))
    }

    fn name(&self, iteration: u32, owner: usize) -> String {
        match (self.is_per_process, iteration) {
            (false, 0) => FILE.to_owned(),
            (false, iteration) => format!("{FILE}.{iteration}"),
            (true, iteration) => format!("{FILE}.{iteration}.{owner:08}"),
        }
    }

    /// Opens the file that a rank writes, or that has the part that it reads.
    pub(super) fn open(&mut self, iteration: u32, owner: usize, phase: StreamPhase) -> io::Result<File> {
        let name = self.name(iteration, owner);
        let is_made = phase.writes() && !self.config.existing;
        // A shared mapping for reading is one for writing, too.
        let is_writable = phase.writes() || self.config.backend == StreamBackend::Mmap;
        let mut flags = if is_writable { OFlags::RDWR } else { OFlags::RDONLY };
        if is_made {
            flags |= OFlags::CREATE;
        }
        // A shared file is made by whichever rank comes first.
        if is_made && self.is_per_process {
            flags |= OFlags::EXCL;
        }
        if self.config.direct {
            flags |= OFlags::DIRECT;
        }
        let file = self.folder.open(&name, flags)?;
        if is_made {
            let found = look_at(&file)?;
            if !self.is_per_process && !self.folder.marks.is_marked(&found) {
                // Of somebody who was faster than the first rank.
                self.folder.note_foreign(name);
                return Err(Errno::EXIST.into());
            }
            self.made = Some((name, Inode::of(&found)));
        }
        Ok(file)
    }

    /// Bytes of a file, where it is there.
    pub(super) fn bytes(&self, iteration: u32, owner: usize) -> Option<u64> {
        let file = self.folder.open(&self.name(iteration, owner), OFlags::RDONLY).ok()?;
        u64::try_from(fstat(&file).ok()?.st_size).ok()
    }

    /// Flushes a file, and drops its pages on this host.
    pub(super) fn drop_caches(&self, iteration: u32, owner: usize) {
        if let Ok(file) = self.folder.open(&self.name(iteration, owner), OFlags::RDONLY) {
            // A file system that cannot is one that caches nothing here.
            let _ = file.sync_all();
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }

    /// Removes the file of the iteration that this rank made or opened as one of those that made it.
    ///
    /// # Errors
    /// Why it could not be removed as it was; a second attempt is made nevertheless.
    pub(super) fn remove(&mut self) -> Result<(), (PathBuf, Errno)> {
        let Some((name, inode)) = self.made.take() else { return Ok(()) };
        self.folder.unlink_own(&name, inode).map_err(|error| (self.folder.path.join(name), error))
    }
}
