//! Changes under test: applied, and reverted when their tester is gone. A file
//! beside the journal marks the test, and its tester holds a lock on it, which the
//! kernel releases with the process; a process that gets the lock reverts the
//! change.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use clearstream_schema::plan::JournalState;
use clearstream_sys::document;
use rustix::fs::{FlockOperation, flock};

use crate::{
    Options, PlanError, Reverted,
    confirm::{keep, remove},
    folder::{self, Locked},
    journal::{storage, sync_folder_of},
    restore::restore,
};

pub(crate) const EXTENSION: &str = "test";
/// Reason of a revert without a request.
pub(crate) const REASON: &str = "its test ended before it was kept";

/// A change under test by this process.
#[derive(Debug)]
pub struct Test {
    journal: String,
    path: PathBuf,
    _lock: File,
}

/// Puts a journal under test by this process. To be called when the journal is on
/// disk and before the first change ([`crate::Options::before_changes`]).
pub fn begin_test(journal: &str, options: &Options) -> Result<Test, PlanError> {
    let path = path_of(options, journal);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(storage("write", &path))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| storage("lock", &path)(error.into()))?;
    sync_folder_of(&path)?;
    Ok(Test { journal: journal.to_owned(), path, _lock: lock })
}

impl Test {
    /// Name of the journal.
    pub fn journal(&self) -> &str {
        &self.journal
    }

    /// Ends the test; the change stays. Fails when it was restored meanwhile, by a
    /// guardian that had to end.
    pub fn keep(self, options: &Options) -> Result<(), PlanError> {
        let _locked = Locked::existing(&options.journals)?;
        if self.is_restored(options) {
            return Err(PlanError::Superseded { journal: self.journal });
        }
        keep(&self.journal, &self.path, options)
    }

    fn is_restored(&self, options: &Options) -> bool {
        folder::open(&options.journals, &self.journal)
            .is_ok_and(|journal| journal.state() == JournalState::Reverted)
    }

    /// Ends the test and reverts the change.
    pub fn restore(self, options: &Options) -> Result<Reverted, PlanError> {
        let _locked = Locked::existing(&options.journals)?;
        let mut journal = folder::open(&options.journals, &self.journal)?;
        if journal.state() == JournalState::Reverted {
            return Ok(Reverted::already(&self.journal));
        }
        let restored = restore(&mut journal, Some(REASON.to_owned()), false, options)?;
        Ok(Reverted::of(&self.journal, restored))
    }
}

/// Whether a journal is under test, by a running process or by one that died.
pub fn is_under_test(journal: &str, options: &Options) -> bool {
    path_of(options, journal).exists()
}

/// The lock of a change whose tester is gone; `None` when it is not under test, or
/// its tester is running.
pub(crate) fn orphan(journal: &str, options: &Options) -> Result<Option<File>, PlanError> {
    let path = path_of(options, journal);
    let file = match document::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(storage("open", &path)(error)),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(storage("lock", &path)(error.into())),
    }
    // It may have been kept between the two calls.
    let is_there = file.metadata().is_ok_and(|found| found.nlink() > 0);
    Ok(is_there.then_some(file))
}

/// Removes the test of a journal that was reverted.
pub(crate) fn forget(journal: &str, options: &Options) -> Result<(), PlanError> {
    remove(&path_of(options, journal))
}

fn path_of(options: &Options, journal: &str) -> PathBuf {
    Path::new(&options.journals).join(format!("{journal}.{EXTENSION}"))
}
