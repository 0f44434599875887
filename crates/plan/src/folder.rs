//! The journal folder: its place, its lock, and the names in it.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use crate::{
    PlanError,
    journal::{Journal, storage, sync_folder_of},
};

const EXTENSION: &str = "jsonl";
/// A child that is being started holds every lock of its parent until it runs
/// its own program, so the lock is tried a few times.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// Default journal folder, see [`crate::Options::live`].
pub(crate) fn usual() -> Result<PathBuf, PlanError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("CLEARSTREAM_PLANS") {
        return Ok(folder);
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/clearstream/plans".into());
    }
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("clearstream/plans")).ok_or(PlanError::NoFolder)
}

/// The folder with its lock held, which the kernel releases with the process at the
/// latest.
#[derive(Debug)]
pub(crate) struct Locked {
    folder: PathBuf,
    _lock: File,
}

impl Locked {
    /// Creates the folder if it does not exist, and locks it for this process.
    pub(crate) fn lock(folder: &Path) -> Result<Self, PlanError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(storage("make the folder", folder))?;
        let path = folder.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(storage("open", &path))?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { folder: folder.to_owned(), _lock: lock }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    thread::sleep(LOCK_WAIT / 20);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(PlanError::Busy { path }),
                Err(error) => return Err(storage("lock", &path)(error.into())),
            }
        }
    }

    /// An unused name, in the order of time: `20261121T124500Z`,
    /// `20261121T124500Z-02`.
    pub(crate) fn free_name(&self, now: Timestamp) -> (String, PathBuf) {
        let base = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut name = base.clone();
        let mut count = 1u32;
        while path_of(&self.folder, &name).exists() {
            count += 1;
            name = format!("{base}-{count:02}");
        }
        let path = path_of(&self.folder, &name);
        (name, path)
    }

    /// Removes journals that had no name yet at a crash: nothing was changed under
    /// them.
    pub(crate) fn sweep(&self) -> Result<(), PlanError> {
        let entries = fs::read_dir(&self.folder).map_err(storage("read", &self.folder))?;
        let mut found = false;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "new") {
                fs::remove_file(&path).map_err(storage("remove", &path))?;
                found = true;
            }
        }
        if found { sync_folder_of(&self.folder.join("lock")) } else { Ok(()) }
    }
}

fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{EXTENSION}"))
}

/// Names of all journals, oldest first; none when there is no folder.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, PlanError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(storage("read", folder)(error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// Opens a journal by name. A name is one path component: it never leaves the
/// folder.
pub(crate) fn open(folder: &Path, name: &str) -> Result<Journal, PlanError> {
    let path = path_of(folder, name);
    if name.is_empty() || name.contains('/') || !path.exists() {
        return Err(PlanError::NoJournal { journal: name.to_owned(), folder: folder.to_owned() });
    }
    Journal::open(&path, name)
}
