//! Where a file lies that this program writes. A path is followed by descriptors, one component at a time, and what a
//! stranger may have put into a folder that everybody may write is refused whatever the sysctls say: symbolic links as by
//! `fs.protected_symlinks`, also in the middle of a path, other files as by `fs.protected_regular` and
//! `fs.protected_fifos` at 2 (Documentation/admin-guide/sysctl/fs.rst, `fs/namei.c` `may_follow_link` and
//! `may_create_in_sticky`). A hard link to a file that may not be written (`fs.protected_hardlinks`) is such a file:
//! nobody but its owner owns it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat},
    io::Errno,
};

/// Maximum links followed to a file (path_resolution(7)).
const LINKS: usize = 40;
/// A folder as a step of a path. O_DIRECTORY also triggers automounts, which O_PATH alone does not.
const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a path leads to, for writing.
pub(crate) enum Target {
    /// A regular file, or a name without one.
    Place(Place),
    /// A device, a pipe, or a descriptor of this process (`/dev/stdout`), which a rename would detach from its owner.
    Direct(Direct),
}

/// A name in an open folder.
pub(crate) struct Place {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// The regular file that has it.
    pub(crate) found: Option<Found>,
}

/// Attributes of a file.
pub(crate) struct Found {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) mode: u32,
}

/// What is opened as it is.
pub(crate) struct Direct {
    folder: OwnedFd,
    rest: PathBuf,
    flags: OFlags,
}

impl Target {
    /// Follows a path to a file.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Walk::new(path)?.followed(None, false)
    }

    /// Follows a path to a folder that is to be made, or is empty; a link there is left alone.
    pub(crate) fn of_folder(path: &Path) -> io::Result<Self> {
        Walk::new(path)?.followed(None, true)
    }
}

impl Place {
    /// Opens the file that was found, or makes one that was not there.
    pub(crate) fn open(&self, flags: OFlags, mode: u32) -> io::Result<File> {
        let new = if self.found.is_some() { OFlags::empty() } else { OFlags::CREATE | OFlags::EXCL };
        let flags = flags | new | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.folder, &self.name, flags, mode.into())?.into())
    }

    /// Syncs the folder's entries (fsync(2)).
    pub(crate) fn sync(&self) -> io::Result<()> {
        let folder = openat(&self.folder, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(rustix::fs::fsync(folder)?)
    }
}

impl Direct {
    pub(crate) fn open(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | self.flags;
        Ok(openat(&self.folder, &self.rest, flags, Mode::empty())?.into())
    }
}

/// Makes a folder with those above it; its descriptor (`O_PATH`).
pub(crate) fn make_folders(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    // A step more, so that the last one is a folder.
    match Walk::new(&path.join("_"))?.followed(Some(mode.into()), false)? {
        Target::Place(place) => Ok(place.folder),
        Target::Direct(_) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// A path on the way.
struct Walk {
    folder: OwnedFd,
    /// Its path, for what is below `/dev` and `/proc`.
    place: PathBuf,
    /// Components that are left, the next one at the end.
    left: Vec<Step>,
    links: usize,
}

enum Step {
    Root,
    Up,
    Name(OsString),
}

impl Walk {
    fn new(path: &Path) -> io::Result<Self> {
        let folder = openat(CWD, ".", STEP, Mode::empty())?;
        let place = std::env::current_dir().unwrap_or_default();
        let mut walk = Self { folder, place, left: Vec::new(), links: 0 };
        walk.push(path);
        Ok(walk)
    }

    fn push(&mut self, path: &Path) {
        self.left.extend(path.components().rev().filter_map(|component| match component {
            Component::RootDir => Some(Step::Root),
            Component::ParentDir => Some(Step::Up),
            Component::Normal(name) => Some(Step::Name(name.to_owned())),
            Component::CurDir | Component::Prefix(_) => None,
        }));
    }

    /// Folders that are not there are made with the mode. With `keeps_last` a folder or link is found, too.
    fn followed(mut self, make: Option<Mode>, keeps_last: bool) -> io::Result<Target> {
        while let Some(step) = self.left.pop() {
            let name = match step {
                Step::Root => {
                    self.folder = openat(CWD, "/", STEP, Mode::empty())?;
                    self.place = "/".into();
                    continue;
                }
                Step::Up => {
                    self.folder = openat(&self.folder, "..", STEP, Mode::empty())?;
                    self.place.pop();
                    continue;
                }
                Step::Name(name) => name,
            };
            let is_last = self.left.is_empty();
            if self.is_of_kernel(&name) {
                return Ok(self.direct(&name));
            }
            if is_last && keeps_last {
                return Ok(Target::Place(Place { folder: self.folder, name, found: None }));
            }
            match self.enter(&name) {
                Ok(()) if is_last => return Err(io::ErrorKind::IsADirectory.into()),
                Ok(()) => continue,
                Err(Errno::NOENT) if is_last => {
                    return Ok(Target::Place(Place { folder: self.folder, name, found: None }));
                }
                Err(Errno::NOENT) => self.make(&name, make)?,
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    if let Some(found) = self.other(&name)? {
                        if !is_last {
                            return Err(io::ErrorKind::NotADirectory.into());
                        }
                        return Ok(self.end(name, &found));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::IsADirectory.into())
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), Errno> {
        self.folder = openat(&self.folder, name, STEP, Mode::empty())?;
        self.place.push(name);
        Ok(())
    }

    fn make(&mut self, name: &OsStr, mode: Option<Mode>) -> io::Result<()> {
        let mode = mode.ok_or(Errno::NOENT)?;
        match mkdirat(&self.folder, name, mode) {
            // Another process has made it.
            Ok(()) | Err(Errno::EXIST) => Ok(self.enter(name)?),
            Err(error) => Err(error.into()),
        }
    }

    /// What is no folder: a link, which is followed, or else its attributes.
    fn other(&mut self, name: &OsStr) -> io::Result<Option<Stat>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let item = openat(&self.folder, name, flags, Mode::empty())?;
        let (folder, found) = (fstat(&self.folder)?, fstat(&item)?);
        if is_of_stranger(&folder, &found) {
            return Err(refused(&self.place.join(name), &found));
        }
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Ok(Some(found));
        }
        self.links += 1;
        if self.links > LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(&item, "", Vec::new())?;
        self.push(Path::new(&OsString::from_vec(target.into_bytes())));
        Ok(None)
    }

    fn end(self, name: OsString, found: &Stat) -> Target {
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Target::Direct(Direct {
                folder: self.folder,
                rest: name.into(),
                flags: OFlags::NOFOLLOW,
            });
        }
        let found = Found { user: found.st_uid, group: found.st_gid, mode: found.st_mode };
        Target::Place(Place { folder: self.folder, name, found: Some(found) })
    }

    /// Whether what follows is the kernel's: root alone makes names there, and links are to descriptors.
    fn is_of_kernel(&self, next: &OsStr) -> bool {
        let place = self.place.join(next);
        let in_memory = place.starts_with("/dev/shm");
        self.place.starts_with("/proc") || (self.place.starts_with("/dev") && !in_memory)
    }

    fn direct(mut self, name: &OsStr) -> Target {
        let mut rest = PathBuf::from(name);
        while let Some(step) = self.left.pop() {
            match step {
                Step::Root => rest.push("/"),
                Step::Up => rest.push(".."),
                Step::Name(name) => rest.push(name),
            }
        }
        Target::Direct(Direct { folder: self.folder, rest, flags: OFlags::empty() })
    }
}

/// The rule: in a sticky folder that others may write, what belongs neither to this user nor to the folder's owner.
fn is_of_stranger(folder: &Stat, item: &Stat) -> bool {
    let is_link = FileType::from_raw_mode(item.st_mode) == FileType::Symlink;
    let writable_by = if is_link { 0o002 } else { 0o022 };
    let is_shared = folder.st_mode & 0o1000 != 0 && folder.st_mode & writable_by != 0;
    let own = rustix::process::geteuid().as_raw();
    is_shared && item.st_uid != own && item.st_uid != folder.st_uid
}

fn refused(path: &Path, item: &Stat) -> io::Error {
    let what = match FileType::from_raw_mode(item.st_mode) {
        FileType::Symlink => "link",
        FileType::Fifo => "pipe",
        _ => "file",
    };
    let (path, user) = (path.display(), item.st_uid);
    let message = format!(
        "{path} is a {what} of another user ({user}) in a folder that everybody may write: remove it, or name another \
         place"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
