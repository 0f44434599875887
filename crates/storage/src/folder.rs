//! The folder of a benchmark, by descriptors: it is cleaned also when its path leads elsewhere meanwhile, as after
//! the mount of its file system was taken away (`umount --lazy`).

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use clearstream_schema::flow::Notice;
use rustix::{
    fs::{
        AtFlags, Dir, FlockOperation, FsWord, Mode, OFlags, chmodat, fchmod, flock, fstat, mkdirat, open,
        openat, statat, unlinkat,
    },
    io::Errno,
};

pub(crate) const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);
pub(crate) const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Beginnings of the names of folders that a run makes and removes, before hexadecimal digits.
const PREFIXES: [&str; 3] = [METADATA_PREFIX, SEMANTICS_PREFIX, STREAM_PREFIX];
pub(crate) const METADATA_PREFIX: &str = ".clearstream-metadata-";
pub(crate) const SEMANTICS_PREFIX: &str = ".clearstream-semantics-";
pub(crate) const STREAM_PREFIX: &str = "clearstream-stream-";

/// What the kernel knows a file by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl std::fmt::Display for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(text) | Self::Others(text) => f.write_str(text),
        }
    }
}

impl Inode {
    pub(crate) fn of(found: &rustix::fs::Stat) -> Self {
        Self { device: found.st_dev, number: found.st_ino }
    }
}

/// Why a folder stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Something of the run cannot be removed.
    Own(String),
    /// Files of others are in it.
    Others(String),
}

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
    /// The first file of the run that could not be removed, and why.
    unremoved: Mutex<Option<String>>,
    /// The first file of others that has a name of the run.
    foreign: Mutex<Option<String>>,
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
        Self { file_mode: Mode::from_raw_mode(0o666), folder_mode: Mode::from_raw_mode(0o777), ..self }
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
            file_mode: FILE_MODE,
            folder_mode: FOLDER_MODE,
            unremoved: Mutex::default(),
            foreign: Mutex::default(),
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

    /// Removes a file in it that this run made; what has its name meanwhile, or not at all, stays as it is.
    ///
    /// # Errors
    /// It could not be removed as it was; permissions are restored and it is tried again nevertheless.
    pub(crate) fn unlink_own(&self, name: &str, inode: Inode) -> Result<(), Errno> {
        match statat(&self.own, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if Inode::of(&found) == inode => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        }
        match unlinkat(&self.own, name, AtFlags::empty()) {
            // Another rank was faster.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => {
                if self.remove(name, AtFlags::empty()).is_err() {
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
                // Where they cannot be restored, removing says so again.
                let _ = fchmod(&self.own, FOLDER_MODE);
                if let Some((above, _)) = name.rsplit_once('/') {
                    let _ = chmodat(&self.own, above, FOLDER_MODE, AtFlags::empty());
                }
                unlinkat(&self.own, name, flags)
            }
            result => result,
        }
    }

    /// Removes it, wherever it was moved to; it has to be empty. What is in its place meanwhile stays.
    ///
    /// # Errors
    /// Why it remains, and whose that is.
    pub(crate) fn leave(&self) -> Result<(), Remains> {
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
        if let Some(name) = first_leaf(&self.own, "") {
            self.note_foreign(name);
        }
        self.leave()
    }

    /// Whose entries keep the folder.
    fn whose(&self) -> Remains {
        let path = self.path.display();
        if let Some(why) = self.unremoved.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Remains::Own(format!("the folder {path} remains: {why}"));
        }
        let noted = || self.foreign.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let others = |name: &str| {
            Remains::Others(format!("the folder {path} remains: files of others are in it ({name})"))
        };
        if let Some(name) = first_of_others(&self.own, "").or_else(noted) {
            return others(&name);
        }
        match names(&self.own).first() {
            Some(own) => Remains::Own(format!("the folder {path} remains: {own} of this run is still in it")),
            None => others("gone now"),
        }
    }

    fn remove_own(&self) -> Result<(), Errno> {
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

    /// Removes it with the files of tests in it; what others put into it stays, and so does the folder then.
    pub(crate) fn remove_all(&self) -> Result<(), Errno> {
        let is_of_checks = self.name.starts_with(SEMANTICS_PREFIX);
        remove_entries(&self.own, &|name| is_of_checks || is_name_of_test(name))?;
        self.remove_own()
    }
}

fn names(folder: &OwnedFd) -> Vec<String> {
    let entries = Dir::read_from(folder).into_iter().flat_map(Iterator::flatten);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "." && name != "..").collect()
}

/// The first entry that no test names so, in the folder or in directories of the test.
fn first_of_others(folder: &OwnedFd, above: &str) -> Option<String> {
    let all = names(folder);
    if let Some(name) = all.iter().find(|name| !is_name_of_test(name)) {
        return Some(format!("{above}{name}"));
    }
    all.iter().find_map(|name| {
        let inner = openat(folder, name.as_str(), FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        first_of_others(&inner, &format!("{above}{name}/"))
    })
}

/// The first entry that is no directory with entries of its own.
fn first_leaf(folder: &OwnedFd, above: &str) -> Option<String> {
    let name = names(folder).into_iter().next()?;
    let path = format!("{above}{name}");
    let inner = openat(folder, name.as_str(), FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty()).ok();
    Some(inner.and_then(|inner| first_leaf(&inner, &format!("{path}/"))).unwrap_or(path))
}

/// Removes entries with such names. Never descends into what is another file system's or another user's, or a link.
fn remove_entries(folder: &OwnedFd, is_ours: &dyn Fn(&str) -> bool) -> Result<(), Errno> {
    let own = fstat(folder)?;
    let mut first = Ok(());
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Ok(text) = name.to_str() else { continue };
        if text == "." || text == ".." || !is_ours(text) {
            continue;
        }
        let removed = match openat(folder, name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(inner) => {
                let found = fstat(&inner)?;
                if (found.st_dev, found.st_uid) != (own.st_dev, own.st_uid) {
                    continue;
                }
                remove_entries(&inner, is_ours).and_then(|()| unlinkat(folder, name, AtFlags::REMOVEDIR))
            }
            // No folder, or one that cannot be read, which removing it reports.
            Err(_) => unlinkat(folder, name, AtFlags::empty()),
        };
        match removed {
            // What cannot be removed keeps the folder.
            Err(error) if error != Errno::NOENT => first = first.and(Err(error)),
            _ => {}
        }
    }
    first
}

/// `data.0.00000001` of streaming; `tree.0`, `level.3`, `file.1.17.renamed` of metadata.
fn is_name_of_test(name: &str) -> bool {
    let name = name.strip_suffix(".renamed").unwrap_or(name);
    let (kind, numbers) = name.split_once('.').unwrap_or((name, ""));
    ["data", "tree", "level", "directory", "file"].contains(&kind)
        && numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Removes folders of this user's runs that were killed together with their guard, on file systems of this host only: on
/// others a run on another host may use them. The notice names those that remain without a known user.
pub(crate) fn clear_left_over(directories: impl IntoIterator<Item = impl AsRef<Path>>) -> Option<Notice> {
    let remaining = directories.into_iter().flat_map(|directory| remove_left_over(directory.as_ref()));
    left_over_notice(&remaining.collect::<Vec<_>>())
}

fn remove_left_over(directory: &Path) -> Vec<PathBuf> {
    let Ok(parent) = open(directory, FOLDER_FLAGS, Mode::empty()) else { return Vec::new() };
    let Ok(entries) = Dir::read_from(&parent) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    let mut remaining = Vec::new();
    for name in names.filter(|name| is_name_of_run(name)) {
        let own = openat(&parent, name.as_str(), FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        let (Ok(own), Ok(above)) = (own, parent.try_clone()) else { continue };
        if fstat(&own).map_or(true, |found| found.st_uid != rustix::process::geteuid().as_raw()) {
            continue;
        }
        let folder = Folder::of(directory.join(&name), own, above, &name);
        match (is_of_this_host(&folder.own), flock(&folder.own, FlockOperation::NonBlockingLockExclusive)) {
            (_, Err(Errno::WOULDBLOCK)) => {}
            (true, Ok(())) if folder.remove_all().is_ok() => {}
            _ => remaining.push(folder.path),
        }
    }
    remaining
}

fn left_over_notice(remaining: &[PathBuf]) -> Option<Notice> {
    let first = remaining.first()?.display();
    let others = match remaining.len() - 1 {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let message = format!(
        "{first}{others} is of a run that was killed, or goes on elsewhere: remove it when no such run is left"
    );
    Some(Notice { id: "folder-left-over".to_owned(), message })
}

pub(crate) fn is_name_of_run(name: &str) -> bool {
    PREFIXES
        .iter()
        .filter_map(|prefix| name.strip_prefix(prefix))
        .any(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// File systems that one kernel alone mounts, so that its locks are all there are (magic numbers of statfs(2)).
fn is_of_this_host(folder: &OwnedFd) -> bool {
    const LOCAL: [FsWord; 8] = [
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683e, // btrfs
        0x0102_1994, // tmpfs
        0x794c_7630, // overlay
        0xf2f5_2010, // f2fs
        0x2fc1_2fc1, // zfs
        0x8584_58f6, // ramfs
    ];
    rustix::fs::fstatfs(folder).is_ok_and(|found| LOCAL.contains(&found.f_type))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn what_no_process_uses_is_removed_by_the_next_start_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let name = |prefix: &str, digit: char| format!("{prefix}{}", digit.to_string().repeat(16));
        for prefix in PREFIXES {
            let left = Folder::create(directory.path(), &name(prefix, 'a')).unwrap();
            let file = if prefix == SEMANTICS_PREFIX { "anything-2" } else { "data.0.00000001" };
            drop(left.open(file, OFlags::WRONLY | OFlags::CREATE).unwrap());
        }
        let used = Folder::create(directory.path(), &name(STREAM_PREFIX, 'b')).unwrap();
        let others = ["clearstream-kept-0123456789abcdef", "clearstream-stream-mine", "data"];
        for other in others {
            fs::create_dir(directory.path().join(other)).unwrap();
        }
        let with_file = directory.path().join(name(METADATA_PREFIX, 'c'));
        fs::create_dir(&with_file).unwrap();
        fs::write(with_file.join("thesis.tex"), "x").unwrap();
        std::os::unix::fs::symlink(&with_file, directory.path().join(name(METADATA_PREFIX, 'd'))).unwrap();
        let remaining = remove_left_over(directory.path());
        assert_eq!(remaining, std::slice::from_ref(&with_file));
        assert!(left_over_notice(&remaining).unwrap().message.contains(&name(METADATA_PREFIX, 'c')));
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left.len(), others.len() + 3, "{left:?}");
        used.leave().unwrap();
    }

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
