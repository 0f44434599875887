//! The folder of a benchmark, by descriptors: it is cleaned also when its path leads elsewhere meanwhile, as after
//! the mount of its file system was taken away (`umount --lazy`).

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, chmodat, fchmod, fstat, mkdirat, open, openat, unlinkat},
    io::Errno,
};

pub(crate) const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);
pub(crate) const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open folder in an open directory.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) own: OwnedFd,
    parent: OwnedFd,
    name: String,
}

impl Folder {
    /// Creates it.
    pub(crate) fn create(directory: &Path, name: &str) -> io::Result<Self> {
        let parent = open(directory, FOLDER_FLAGS, Mode::empty())?;
        mkdirat(&parent, name, FOLDER_MODE)?;
        Self::of_parent(directory, parent, name)
    }

    /// Opens one that was created.
    pub(crate) fn enter(directory: &Path, name: &str) -> io::Result<Self> {
        let parent = open(directory, FOLDER_FLAGS, Mode::empty())?;
        Self::of_parent(directory, parent, name)
    }

    fn of_parent(directory: &Path, parent: OwnedFd, name: &str) -> io::Result<Self> {
        let own = openat(&parent, name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self { path: directory.join(name), own, parent, name: name.to_owned() })
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

    /// Opens a file in it.
    pub(crate) fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.own, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, FILE_MODE)?.into())
    }

    /// Removes a file in it as it is.
    pub(crate) fn unlink(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.own, name, AtFlags::empty())
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

    /// Removes it; it has to be empty.
    ///
    /// # Errors
    /// Why it remains.
    pub(crate) fn leave(&self) -> Result<(), String> {
        match unlinkat(&self.parent, self.name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY) => Err("files of others are in it".to_owned()),
            Err(error) => Err(io::Error::from(error).to_string()),
        }
    }
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
