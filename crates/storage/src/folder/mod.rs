//! The folder of a benchmark, by descriptors: it is cleaned also when its path leads elsewhere meanwhile, as after
//! the mount of its file system was taken away (`umount --lazy`). What others put into it stays, whatever its name is.

mod left_over;
mod remains;

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Statx, chmodat, fchmod, flock, fstat, mkdirat,
        open, openat, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use crate::made::{Inode, MADE_MODE, Marks, kind_of, look_at, look_up, mode_of};
pub(crate) use left_over::{clear_left_over, is_name_of_run};
pub(crate) use remains::Remains;

pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);
pub(crate) const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(crate) const METADATA_PREFIX: &str = ".clearstream-metadata-";
pub(crate) const SEMANTICS_PREFIX: &str = ".clearstream-semantics-";
pub(crate) const STREAM_PREFIX: &str = "clearstream-stream-";

const STICKY: u16 = 0o1000;
/// What a run makes to see the modes that files and directories have here.
const PROBE: &str = "probe";

/// An open folder in an open directory. The processes that use it share a lock of it (flock(2)), as long as one of them
/// lives: what nobody locks is left over.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) own: OwnedFd,
    pub(crate) parent: OwnedFd,
    pub(crate) name: String,
    /// Of files that are made in it.
    file_mode: Mode,
    /// Of directories that are made in it.
    pub(crate) folder_mode: Mode,
    /// How what is made in it is known.
    pub(crate) marks: Marks,
    /// The first file of the run that could not be removed, and why.
    unremoved: Mutex<Option<String>>,
    /// The first file of others that has a name of the run.
    foreign: Mutex<Option<String>>,
    /// Of [`Self::marks_here`], what could not be removed yet.
    probes: Mutex<Vec<(String, Inode)>>,
}

impl Folder {
    /// Creates it, for this user alone.
    pub(crate) fn create(directory: &Path, name: &str) -> io::Result<Self> {
        Self::create_as(directory, name, FOLDER_MODE)
    }

    /// Creates one that stays, for those whom this user's umask admits.
    pub(crate) fn create_to_stay(directory: &Path, name: &str) -> io::Result<Self> {
        Ok(Self::create_as(directory, name, Mode::from_raw_mode(0o777))?.staying())
    }

    /// What is made in it is for those whom this user's umask admits.
    pub(crate) fn staying(self) -> Self {
        let marks = Marks { is_remote: self.marks.is_remote, ..Marks::NONE };
        Self { file_mode: Mode::from_raw_mode(0o666), folder_mode: Mode::from_raw_mode(0o777), marks, ..self }
    }

    /// With what was found by [`Self::marks_here`], here or at another rank.
    pub(crate) fn with_marks(self, marks: Marks) -> Self {
        let is_sticky = marks.directory.is_none_or(|mode| mode & STICKY != 0);
        let folder_mode = if is_sticky { self.folder_mode } else { FOLDER_MODE };
        Self { marks, folder_mode, ..self }
    }

    /// Finds out by what the things that are made here are known.
    pub(crate) fn marks_here(&self, is_remote: bool) -> Marks {
        let marks = Marks { is_remote, ..self.marks };
        if marks.file.is_none() {
            return marks;
        }
        let (file, directory) = (format!("{PROBE}.0"), format!("{PROBE}.1"));
        let probed = |name: &str, flags: AtFlags, found: Result<Statx, Errno>| {
            // Permissions are as they are: what cannot be removed now is at the end.
            if unlinkat(&self.own, name, flags).is_err()
                && let Ok(found) = &found
            {
                let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
                probes.push((name.to_owned(), Inode::of(found)));
            }
            found.ok()
        };
        let made = self.open(&file, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL);
        let of_file = made.ok().and_then(|made| probed(&file, AtFlags::empty(), look_at(made)));
        let made = mkdirat(&self.own, &directory, self.folder_mode);
        let look = || look_up(&self.own, &directory);
        let of_directory = made.ok().and_then(|()| probed(&directory, AtFlags::REMOVEDIR, look()));
        // In a sticky directory only its owner removes (inode(7)), which a server may not take this user for.
        let is_owner = |found: &Statx| found.stx_uid == geteuid().as_raw();
        let of_directory = of_directory.map(|found| match is_owner(&found) {
            true => mode_of(&found),
            false => mode_of(&found) & !STICKY,
        });
        // What cannot be made has the modes that it was to have.
        Marks {
            file: marks.file.map(|mode| of_file.map_or(mode, |found| mode_of(&found))),
            directory: marks.directory.map(|mode| of_directory.unwrap_or(mode)),
            ..marks
        }
    }

    fn create_as(directory: &Path, name: &str, mode: Mode) -> io::Result<Self> {
        loop {
            let parent = open(directory, FOLDER_FLAGS, Mode::empty())?;
            mkdirat(&parent, name, mode)?;
            let folder = Self::of_parent(directory, parent, name)?;
            // A run that began at the same time may have taken it for one that is left over.
            if fstat(&folder.own)?.st_nlink > 0 {
                return Ok(folder);
            }
        }
    }

    /// Opens one that was created.
    pub(crate) fn enter(directory: &Path, name: &str) -> io::Result<Self> {
        let parent = open(directory, FOLDER_FLAGS, Mode::empty())?;
        Self::of_parent(directory, parent, name)
    }

    fn of_parent(directory: &Path, parent: OwnedFd, name: &str) -> io::Result<Self> {
        let own = openat(&parent, name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        // Network file systems have no locks of folders; nothing is removed there as left over.
        let _ = flock(&own, FlockOperation::LockShared);
        Ok(Self::of(directory.join(name), own, parent, name))
    }

    /// Of another process.
    pub(crate) fn of_descriptors(parent: OwnedFd, own: OwnedFd, name: &str) -> Self {
        Self::of(name.into(), own, parent, name)
    }

    fn of(path: PathBuf, own: OwnedFd, parent: OwnedFd, name: &str) -> Self {
        Self {
            path,
            own,
            parent,
            name: name.to_owned(),
            file_mode: MADE_MODE,
            folder_mode: MADE_MODE,
            marks: Marks::KEPT,
            unremoved: Mutex::default(),
            foreign: Mutex::default(),
            probes: Mutex::default(),
        }
    }

    /// Why the path does not lead to it any more, if so.
    pub(crate) fn missing(&self) -> Option<String> {
        let is_same = |found: &rustix::fs::Stat, own: &rustix::fs::Stat| {
            (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
        };
        let problem = match (rustix::fs::stat(&self.path), fstat(&self.own)) {
            (Ok(found), Ok(own)) if is_same(&found, &own) => return None,
            // Whether it is there is not known.
            (Err(Errno::ACCESS), Ok(_)) => return None,
            (Ok(_), Ok(_)) => "another folder is there".to_owned(),
            (Err(error), _) | (_, Err(error)) => io::Error::from(error).to_string(),
        };
        let path = self.path.display();
        Some(format!(
            "{path} was there and is not any more ({problem}): its file system was unmounted, or the folder renamed"
        ))
    }

    /// What an error of the file system does not say: of two limits that have one error, which it is.
    pub(crate) fn hint(&self, error: &io::Error) -> &'static str {
        if error.raw_os_error() != Some(Errno::NOSPC.raw_os_error()) {
            return "";
        }
        match rustix::fs::fstatvfs(&self.own) {
            Ok(found) if found.f_files > 0 && found.f_favail == 0 => " (no inode is left: files, not bytes)",
            _ => "",
        }
    }

    /// Opens a file in it.
    pub(crate) fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.own, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, self.file_mode)?.into())
    }

    /// Removes what this run made in it; what has its name meanwhile, or not at all, stays as it is.
    ///
    /// # Errors
    /// It could not be removed as it was; permissions are restored and it is tried again nevertheless.
    pub(crate) fn unlink_own(&self, name: &str, inode: Inode) -> Result<(), Errno> {
        let found = match look_up(&self.own, name) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.marks.is_own(&found, kind_of(&found), Some(inode)) {
            self.note_foreign(name.to_owned());
            return Ok(());
        }
        let is_directory = kind_of(&found) == FileType::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(&self.own, name, flags) {
            // Another rank was faster.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => {
                if self.remove(name, flags).is_err() {
                    let why = format!("{name} of this run cannot be removed: {}", io::Error::from(error));
                    self.unremoved.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                }
                Err(error)
            }
        }
    }

    /// Removes a file or, by the flags, a directory in it; `ENOENT` where there is none. Permissions that were taken
    /// from this user's own folders are restored for that.
    pub(crate) fn remove(&self, name: &str, flags: AtFlags) -> Result<(), Errno> {
        match unlinkat(&self.own, name, flags) {
            Err(Errno::ACCESS | Errno::PERM) => {
                self.restore(name);
                unlinkat(&self.own, name, flags)
            }
            result => result,
        }
    }

    /// Restores permissions above a name. Where they cannot be, what needs them says so again.
    pub(crate) fn restore(&self, name: &str) {
        let _ = fchmod(&self.own, FOLDER_MODE);
        if let Some((above, _)) = name.rsplit_once('/') {
            let _ = chmodat(&self.own, above, self.folder_mode, AtFlags::empty());
        }
    }

    /// Removes it, wherever it was moved to; it has to be empty. What is in its place meanwhile stays.
    ///
    /// # Errors
    /// Why it remains, and whose that is.
    pub(crate) fn leave(&self) -> Result<(), Remains> {
        for (name, inode) in std::mem::take(&mut *self.probes.lock().unwrap_or_else(PoisonError::into_inner))
        {
            // Where it stays it is named.
            let _ = self.unlink_own(&name, inode);
        }
        let path = self.path.display();
        match self.remove_own() {
            Ok(()) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(self.whose()),
            Err(error) => Err(Remains::Own(format!("the folder {path} remains: {}", io::Error::from(error)))),
        }
    }

    /// Notes what has a name of the run and is somebody else's.
    pub(crate) fn note_foreign(&self, name: String) {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(name);
    }

    /// As [`Self::leave`], when everything of tests is removed: what is there is others', whatever its name is.
    pub(crate) fn leave_to_others(&self) -> Result<(), Remains> {
        if let Some(name) = remains::first_leaf(&self.own, "") {
            self.note_foreign(name);
        }
        self.leave()
    }

    /// Removes it where it is empty, wherever it was moved to; what is in its place meanwhile stays.
    pub(crate) fn remove_own(&self) -> Result<(), Errno> {
        let own = fstat(&self.own)?;
        if own.st_nlink == 0 {
            return Ok(());
        }
        let is_own = |parent: &OwnedFd, name: &CStr| {
            statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino))
        };
        let name = CString::new(self.name.as_str()).map_err(|_| Errno::INVAL)?;
        if is_own(&self.parent, &name) {
            return unlinkat(&self.parent, &name, AtFlags::REMOVEDIR);
        }
        // It was renamed; file systems that keep no count of links have removed it, or lost it.
        let parent = match openat(&self.own, "..", FOLDER_FLAGS, Mode::empty()) {
            Err(Errno::NOENT | Errno::STALE) => return Ok(()),
            opened => opened?,
        };
        for entry in Dir::read_from(&parent)? {
            let entry = entry?;
            if entry.ino() == own.st_ino && is_own(&parent, entry.file_name()) {
                return unlinkat(&parent, entry.file_name(), AtFlags::REMOVEDIR);
            }
        }
        Ok(())
    }

    /// Removes it with what is known as made by a test in it; what others put into it stays, and so does the folder then.
    /// How many things were removed is said, too.
    pub(crate) fn remove_all(&self) -> (u64, Result<(), Errno>) {
        let mut count = 0;
        let removed = remove_entries(&self.own, &self.marks, &mut count);
        (count, removed.and_then(|()| self.remove_own()))
    }
}

/// Removes what a test has made. Never descends into what is another file system's or another user's, or a link.
fn remove_entries(folder: &OwnedFd, marks: &Marks, count: &mut u64) -> Result<(), Errno> {
    let own = fstat(folder)?;
    let mut first = Ok(());
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(text) = name.to_str().ok().filter(|name| is_name_of_test(name)) else { continue };
        let inner = openat(folder, name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        if let Ok(inner) = &inner {
            let found = fstat(inner)?;
            if (found.st_dev, found.st_uid) != (own.st_dev, own.st_uid) {
                continue;
            }
            first = first.and(remove_entries(inner, marks, count));
        }
        let removed = match look_up(folder, text) {
            Ok(found) if marks.is_marked(&found) => {
                let is_directory = kind_of(&found) == FileType::Directory;
                let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                unlinkat(folder, name, flags).map(|()| *count += 1)
            }
            looked => looked.map(|_| ()),
        };
        match removed {
            // What cannot be removed keeps the folder.
            Err(error) if error != Errno::NOENT => first = first.and(Err(error)),
            _ => {}
        }
    }
    first
}

/// `probe.0` of each test; `data.0.00000001` of streaming; `tree.0`, `level.3`, `file.1.17.renamed` of metadata.
fn is_name_of_test(name: &str) -> bool {
    let name = name.strip_suffix(".renamed").unwrap_or(name);
    let (kind, numbers) = name.split_once('.').unwrap_or((name, ""));
    ["data", "tree", "level", "directory", "file", PROBE].contains(&kind)
        && numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_folder_that_was_moved_is_missed_and_still_cleaned() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::create(directory.path(), "test").unwrap();
        drop(folder.open("data", OFlags::WRONLY | OFlags::CREATE).unwrap());
        assert_eq!(folder.missing(), None);
        assert!(Folder::create(directory.path(), "test").is_err());
        let moved = directory.path().join("moved");
        fs::rename(directory.path().join("test"), &moved).unwrap();
        assert!(folder.missing().unwrap().contains("No such file"), "{:?}", folder.missing());
        fs::create_dir(directory.path().join("test")).unwrap();
        assert!(folder.missing().unwrap().contains("another folder"), "{:?}", folder.missing());
        folder.remove("data", AtFlags::empty()).unwrap();
        assert_eq!(fs::read_dir(moved).unwrap().count(), 0);
    }

    /// The kernel does not check permissions for root; others need them restored.
    #[test]
    fn permissions_that_were_taken_away_are_no_reason_to_leave_files() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::create(directory.path(), "test").unwrap();
        mkdirat(&folder.own, "tree", FOLDER_MODE).unwrap();
        drop(folder.open("tree/file", OFlags::WRONLY | OFlags::CREATE).unwrap());
        for path in ["test/tree", "test"] {
            let none = fs::Permissions::from_mode(0o500);
            fs::set_permissions(directory.path().join(path), none).unwrap();
        }
        folder.remove("tree/file", AtFlags::empty()).unwrap();
        folder.remove("tree", AtFlags::REMOVEDIR).unwrap();
        assert_eq!(folder.remove("tree", AtFlags::REMOVEDIR), Err(Errno::NOENT));
        folder.leave().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
