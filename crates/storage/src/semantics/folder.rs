//! The folder of the checks: every name is relative to its descriptor, and only files inside of it are
//! created or removed. What is made in it is noted ([`Journal`]), and only that is removed, written over or renamed.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    rc::Rc,
    thread,
    time::Duration,
};

use clearstream_schema::notice::Notice;
use clearstream_sys::file::link_unnamed;
use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, Statx, StatxFlags, fchmod, linkat, mkdirat,
        mknodat, openat, renameat_with, statat, statx, symlinkat, unlinkat,
    },
    io::Errno,
    path::Arg,
};

use crate::{
    folder::{self, FOLDER_FLAGS, FOLDER_MODE, Remains, SEMANTICS_PREFIX},
    guard::Guard,
    journal::{Journal, Made},
    made::{Inode, Marks, look_at, look_up},
};

const RETRIES: u32 = 20;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A look at a name that goes no further than the path to it (statx(2)).
const WALK: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::STATX_DONT_SYNC);

const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Something of others has a name of the checks: no file system fails with it (errno(3)).
pub(super) const OF_OTHERS: Errno = Errno::NOTUNIQ;

/// What the processes of an agent have made.
#[derive(Debug)]
pub(super) struct Records {
    journal: Journal,
    known: RefCell<Made>,
    /// No other agent makes things in the folder, and inode numbers are the file system's.
    is_known: bool,
}

impl Records {
    pub(super) fn new(journal: Journal, is_known: bool) -> Rc<Self> {
        Rc::new(Self { journal, known: RefCell::default(), is_known })
    }

    fn has(&self, name: &[u8], found: &Statx) -> bool {
        let mut known = self.known.borrow_mut();
        // Another process may have made it since.
        known.has(name, found) || (known.read(&self.journal).is_ok() && known.has(name, found))
    }
}

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    place: folder::Folder,
    records: Rc<Records>,
}

impl Folder {
    /// Opens it.
    pub(super) fn enter(directory: &Path, name: &str, records: Rc<Records>) -> Result<Self, Errno> {
        let place = folder::Folder::enter(directory, checked_folder(directory, name)?);
        Ok(Self { place: place.map_err(|error| raw(&error))?, records })
    }

    /// Descriptor of the folder, after a walk to it by its name: what a client knows of a folder, and for how long, is
    /// determined by the walks that paths take through it (path_resolution(7)). A call by the descriptor alone takes none.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        // Nothing but the walk: attributes are not asked for.
        let _ = statx(&self.place.parent, &self.place.name, WALK, StatxFlags::empty());
        &self.place.own
    }

    /// Its attributes by its name, as programs look at folders.
    pub(super) fn look(&self) -> Result<Stat, Errno> {
        statat(&self.place.parent, &self.place.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens a file.
    pub(super) fn open(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        self.open_with(name, flags, FILE_MODE)
    }

    /// Opens a file, and creates it with this mode.
    pub(super) fn open_with(&self, name: &str, flags: OFlags, mode: Mode) -> Result<File, Errno> {
        self.open_any(checked(name)?, flags, mode)
    }

    /// As [`Self::open_with`], by any name, or a path below the folder.
    pub(super) fn open_any(&self, name: impl Arg + Copy, flags: OFlags, mode: Mode) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |flags| Ok(File::from(openat(self.descriptor(), name, flags, mode)?));
        if flags.contains(OFlags::CREATE) {
            // Whoever makes it knows so.
            let created = self.make(name, || open(flags | OFlags::EXCL), |file| look_at(file));
            match created {
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                created => return created,
            }
        }
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            self.check_own(name)?;
        }
        open(flags - OFlags::CREATE)
    }

    /// Creates a folder in it with this mode, whatever the umask is, and opens it.
    pub(super) fn create_inner(&self, name: &str, mode: Mode) -> Result<Self, Errno> {
        self.make_folder(checked(name)?, FOLDER_MODE)?;
        let inner = self.inner(name)?;
        fchmod(inner.descriptor(), mode)?;
        Ok(inner)
    }

    /// Opens a folder in it.
    pub(super) fn inner(&self, name: &str) -> Result<Self, Errno> {
        let own = openat(self.descriptor(), checked(name)?, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        let above = openat(&self.place.own, ".", FOLDER_FLAGS, Mode::empty())?;
        let place = folder::Folder::of_descriptors(above, own, name);
        Ok(Self { place, records: Rc::clone(&self.records) })
    }

    /// A name in it.
    pub(super) fn name<'a>(&self, name: &'a str) -> Result<&'a str, Errno> {
        checked(name)
    }

    /// Creates or truncates a file with this content.
    pub(super) fn store(&self, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let mut file = self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(bytes).map_err(|error| raw(&error))
    }

    /// Reads a file from its beginning.
    pub(super) fn read(&self, name: &str, length: usize) -> Result<Vec<u8>, Errno> {
        let file = self.open(name, OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        file.take(length as u64).read_to_end(&mut bytes).map_err(|error| raw(&error))?;
        Ok(bytes)
    }

    /// Makes something, and notes it.
    fn make<T>(
        &self,
        name: impl Arg + Copy,
        make: impl FnOnce() -> Result<T, Errno>,
        look: impl FnOnce(&T) -> Result<Statx, Errno>,
    ) -> Result<T, Errno> {
        let (leaf, journal) = (leaf(name)?, &self.records.journal);
        journal.begin(&leaf);
        let made = make();
        match &made {
            Ok(made) => {
                if let Ok(found) = look(made) {
                    journal.made(&leaf, Inode::of(&found));
                }
            }
            Err(Errno::EXIST) => journal.failed(&leaf),
            // It may be there nevertheless.
            Err(_) => {}
        }
        made
    }

    /// Makes a folder by a name, or a path below this one.
    pub(super) fn make_folder(&self, name: impl Arg + Copy, mode: Mode) -> Result<(), Errno> {
        let at = self.descriptor();
        self.make(name, || mkdirat(at, name, mode), |()| look_up(at, name))
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(&self, target: &str, name: &str) -> Result<(), Errno> {
        let at = self.descriptor();
        self.make(name, || symlinkat(target, at, name), |()| look_up(at, name))
    }

    /// Makes a special file.
    pub(super) fn node(&self, name: &str, kind: FileType, mode: Mode, device: u64) -> Result<(), Errno> {
        let at = self.descriptor();
        self.make(name, || mknodat(at, name, kind, mode, device), |()| look_up(at, name))
    }

    /// Gives a file that has none a name.
    pub(super) fn link_unnamed(&self, file: &File, name: &str) -> io::Result<()> {
        let linked =
            || link_unnamed(file.as_fd(), self.descriptor().as_fd(), name).map_err(|error| raw(&error));
        Ok(self.make(name, linked, |()| look_at(file))?)
    }

    /// Makes a second name.
    pub(super) fn link(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.records.journal.moves(&leaf(to)?);
        let at = self.descriptor();
        linkat(at, from, at, to, AtFlags::empty())
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        self.remove_any(checked(name)?, AtFlags::empty())
    }

    /// Removes a file or, by the flags, a folder, by any name or path below this one.
    pub(super) fn remove_any(&self, name: impl Arg + Copy, flags: AtFlags) -> Result<(), Errno> {
        self.check_own(name)?;
        unlinkat(self.descriptor(), name, flags)
    }

    /// Renames a file.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.rename_with(checked(from)?, checked(to)?, RenameFlags::empty())
    }

    /// As [`Self::rename`], with flags.
    pub(super) fn rename_with(&self, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
        self.check_own(from)?;
        self.check_own(to)?;
        self.records.journal.moves(&leaf(to)?);
        // What has two names may keep both (rename(2)), and what is exchanged has the other's.
        self.records.journal.moves(&leaf(from)?);
        let at = self.descriptor();
        match flags.is_empty() {
            true => rustix::fs::renameat(at, from, at, to),
            false => renameat_with(at, from, at, to, flags),
        }
    }

    /// Whether a name leads to something of the checks, or to nothing.
    fn check_own(&self, name: impl Arg + Copy) -> Result<(), Errno> {
        if !self.records.is_known {
            return Ok(());
        }
        match look_up(self.descriptor(), name) {
            Ok(found) if !self.records.has(&leaf(name)?, &found) => Err(OF_OTHERS),
            // What cannot be looked up says so by the call.
            _ => Ok(()),
        }
    }

    /// Names that begin with this one.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<String>, Errno> {
        // A description of its own: its position is at the beginning.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(self.descriptor(), ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) && name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// The folder at its agent. Dropping it removes what the agent's processes have made in it, and the folder where the agent
/// has created it.
#[derive(Debug)]
pub(super) struct Place {
    folder: folder::Folder,
    journal: Journal,
    is_creator: bool,
    is_left: bool,
}

impl Place {
    /// Opens or creates it; before that, what killed runs have left is removed, or named.
    pub(super) fn enter(
        directory: &Path,
        name: &str,
        create: bool,
        is_remote: bool,
    ) -> io::Result<(Self, Option<Notice>)> {
        checked_folder(directory, name)?;
        let left_over = if create { folder::clear_left_over([directory]) } else { None };
        let folder = match create {
            true => folder::Folder::create(directory, name),
            false => folder::Folder::enter(directory, name),
        }?;
        let marks = Marks { is_remote, ..folder.marks };
        let folder = folder.with_marks(marks);
        let journal = Journal::create(name, create)?;
        Ok((Self { folder, journal, is_creator: create, is_left: false }, left_over))
    }

    /// Has it removed after a death of this process.
    pub(super) fn watch(&self, guard: &mut Guard) -> io::Result<()> {
        guard.watch_journal(&self.folder, &self.journal, self.is_creator)
    }

    /// For a process.
    pub(super) fn journal(&self) -> io::Result<Journal> {
        self.journal.try_clone()
    }

    /// Names that things got behind their making.
    pub(super) fn moved(&self) -> Vec<Vec<u8>> {
        self.journal.read().map(|made| made.moved()).unwrap_or_default()
    }

    /// Removes what was made, and the folder where it was created here; `moved` are the names that processes of another
    /// agent have given to things. Names that a file system keeps for files open at another client go away within a moment.
    ///
    /// # Errors
    /// Why the folder remains, and whose that is.
    pub(super) fn leave(&mut self, moved: &[Vec<u8>]) -> Result<(), Remains> {
        if self.is_left {
            return Ok(());
        }
        let mut result = self.remove(moved);
        for _ in 0..RETRIES {
            let is_waited_for = match &result {
                Ok(()) => false,
                Err(Remains::Own(_)) => true,
                Err(Remains::Others(_)) => self.folder.has_names_of_open_files(),
            };
            if !is_waited_for {
                break;
            }
            thread::sleep(RETRY_INTERVAL);
            result = self.remove(moved);
        }
        self.is_left = !matches!(result, Err(Remains::Own(_)));
        if self.is_left {
            Journal::forget(&self.folder.name, self.is_creator, Some(&self.journal));
        }
        result
    }

    fn remove(&self, moved: &[Vec<u8>]) -> Result<(), Remains> {
        let failed = |error: io::Error| {
            Remains::Own(format!("the folder {} remains: {error}", self.folder.path.display()))
        };
        let made = self.journal.read().map_err(failed)?.and_moved(moved, self.folder.marks.is_remote);
        let removed = made.remove(&self.folder.own);
        removed.map_err(|error| failed(error.into()))?;
        if self.is_creator { self.folder.leave_to_others() } else { Ok(()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.leave(&[]);
    }
}

/// The name of a folder of the checks.
fn checked_folder<'a>(directory: &Path, name: &'a str) -> Result<&'a str, Errno> {
    let digits = name.strip_prefix(SEMANTICS_PREFIX).unwrap_or_default();
    let is_valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if directory.is_absolute() && is_valid { Ok(name) } else { Err(Errno::INVAL) }
}

/// The last name of a path.
fn leaf(name: impl Arg) -> Result<Vec<u8>, Errno> {
    let name = name.into_c_str()?;
    let name = name.to_bytes();
    Ok(name.rsplit(|byte| *byte == b'/').next().unwrap_or(name).to_vec())
}

/// A name within the folder.
fn checked(name: &str) -> Result<&str, Errno> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = name.bytes().all(is_plain) && !name.is_empty() && !name.starts_with('.');
    if is_name { Ok(name) } else { Err(Errno::INVAL) }
}

/// The kernel's error code; EIO for errors without one.
pub(super) fn raw(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
