//! The journal folder: its place, its lock, and the names in it.

use std::{
    env,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, FileExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use clearstream_sys::{
    document,
    writer_lock::{WriterLock, name_of},
};
use jiff::Timestamp;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    PlanError, confirm,
    journal::{EXTENSION, Journal, storage, sync_folder, unusable},
    pending,
};

/// Has the process id of who holds the lock.
const HOLDER: &str = "lock";
/// A child that is being started holds every lock of its parent until it runs
/// its own program, so the lock is tried a few times.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// Default journal folder, see [`crate::Options::live`].
pub(crate) fn usual() -> Result<PathBuf, PlanError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("CLEARSTREAM_PLANS") {
        // A guardian has another current folder.
        return std::path::absolute(&folder).map_err(storage("find", &folder));
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
    /// The process id of the holder, where it can be written; nothing depends on it.
    _name: Option<WriterLock>,
    _lock: File,
}

impl Locked {
    /// Creates the folder if it does not exist, and locks it for this process.
    pub(crate) fn lock(folder: &Path) -> Result<Self, PlanError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(unusable("make the folder", folder))?;
        Self::existing(folder)
    }

    /// Locks the folder itself: flock(2) needs neither space nor a file that can be
    /// written, so a restore gets the lock on a full and on a read-only disk.
    pub(crate) fn existing(folder: &Path) -> Result<Self, PlanError> {
        let lock = File::open(folder).map_err(storage("open", folder))?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                // File systems without locks exclude nobody.
                Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    let name = WriterLock::take(&folder.join(HOLDER)).ok();
                    return Ok(Self { folder: folder.to_owned(), _name: name, _lock: lock });
                }
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(LOCK_WAIT / 20),
                Err(Errno::WOULDBLOCK) => {
                    let text = document::read_text(&folder.join(HOLDER), document::SMALL_BYTES).ok();
                    let process = text.and_then(|text| text.trim().parse().ok());
                    return Err(PlanError::Busy { path: folder.to_owned(), holder: name_of(process) });
                }
                Err(error) => return Err(storage("lock", folder)(error.into())),
            }
        }
    }

    /// The next name, `000042-20261121T124500Z`. Its number orders the journals: a
    /// clock may be set back.
    pub(crate) fn next_name(&self, now: Timestamp) -> Result<(String, PathBuf), PlanError> {
        let last = names(&self.folder)?.last().map_or(0, |name| number(name));
        let name = format!("{:06}-{}", last + 1, now.strftime("%Y%m%dT%H%M%SZ"));
        let path = path_of(&self.folder, &name);
        Ok((name, path))
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
        if found { sync_folder(&self.folder) } else { Ok(()) }
    }
}

/// Number of a journal by its name; zero where it has none.
fn number(name: &str) -> u64 {
    name.split_once('-').and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
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
    names.sort_unstable_by(|one, other| number(one).cmp(&number(other)).then_with(|| one.cmp(other)));
    Ok(names)
}

/// Names of the journals that may need an end, oldest first: those whose last mark
/// is neither of the two at which nothing is left to do, and those with a file beside
/// them that waits. Every start of the program asks this, so no journal is read whole.
pub(crate) fn unsettled(folder: &Path) -> Result<Vec<String>, PlanError> {
    let waits = |name: &str| {
        [confirm::WAITING, pending::EXTENSION]
            .iter()
            .any(|extension| folder.join(format!("{name}.{extension}")).exists())
    };
    let mut names = names(folder)?;
    names.retain(|name| !is_settled(&path_of(folder, name)) || waits(name));
    Ok(names)
}

/// Whether the last line of a journal is the mark of an end.
fn is_settled(path: &Path) -> bool {
    let ends: [&[u8]; 2] = [b"\n\"applied\"\n", b"\n\"reverted\"\n"];
    let tail = || -> io::Result<[u8; 12]> {
        let file = document::open(path)?;
        let mut tail = [0; 12];
        file.read_exact_at(&mut tail, file.metadata()?.len().saturating_sub(12))?;
        Ok(tail)
    };
    tail().is_ok_and(|tail| ends.iter().any(|end| tail.ends_with(end)))
}

/// Opens a journal by name. A name is one path component: it never leaves the
/// folder.
pub(crate) fn open(folder: &Path, name: &str) -> Result<Journal, PlanError> {
    let path = path_of(folder, name);
    let none = || PlanError::NoJournal { journal: name.to_owned(), folder: folder.to_owned() };
    if name.is_empty() || name.contains('/') {
        return Err(none());
    }
    match Journal::open(&path, name) {
        Err(PlanError::Storage { source, .. }) if source.kind() == io::ErrorKind::NotFound => Err(none()),
        other => other,
    }
}
