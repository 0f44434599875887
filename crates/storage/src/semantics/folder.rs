//! The folder of the checks: every name is relative to its descriptor, and only files inside of it are
//! created or removed.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, open, openat, renameat, unlinkat},
    io::Errno,
};

/// Beginning of the folder's name.
pub const FOLDER_PREFIX: &str = ".clearstream-semantics-";
/// Mode of files.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// An open folder. Dropping the one that created it removes it.
#[derive(Debug)]
pub(super) struct Folder {
    parent: OwnedFd,
    own: OwnedFd,
    name: String,
    is_creator: bool,
}

impl Folder {
    /// Opens or creates it.
    pub(super) fn enter(directory: &Path, name: &str, create: bool) -> Result<Self, Errno> {
        let digits = name.strip_prefix(FOLDER_PREFIX).unwrap_or_default();
        let is_valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !directory.is_absolute() || !is_valid {
            return Err(Errno::INVAL);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(directory, flags, Mode::empty())?;
        if create {
            mkdirat(&parent, name, Mode::from_raw_mode(0o700))?;
        }
        let own = openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty()).inspect_err(|_| {
            if create {
                let _ = unlinkat(&parent, name, AtFlags::REMOVEDIR);
            }
        })?;
        Ok(Self { parent, own, name: name.to_owned(), is_creator: create })
    }

    /// Descriptor of the folder.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.own
    }

    /// Opens a file.
    pub(super) fn open(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.own, checked(name)?, flags, FILE_MODE)?.into())
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

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.own, checked(name)?, AtFlags::empty())
    }

    /// Renames a file.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        renameat(&self.own, checked(from)?, &self.own, checked(to)?)
    }

    /// Names that begin with this one.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<String>, Errno> {
        // A description of its own: its position is at the beginning.
        let folder =
            openat(&self.own, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) && name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Removes the folder with its files.
    fn remove_all(&self) -> Result<(), Errno> {
        for name in self.list("")? {
            // The directory of a check has no entries.
            let flags = match rustix::fs::statat(&self.own, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
                    AtFlags::REMOVEDIR
                }
                _ => AtFlags::empty(),
            };
            match unlinkat(&self.own, name.as_str(), flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        match unlinkat(&self.parent, self.name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the folder where this one created it. Names that a file system keeps for files open at another
    /// client go away within a moment.
    pub(super) fn leave(&mut self) -> Result<(), Errno> {
        if !self.is_creator {
            return Ok(());
        }
        let mut result = self.remove_all();
        for _ in 0..20 {
            if result.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            result = self.remove_all();
        }
        self.is_creator = result.is_err();
        result
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.leave();
    }
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
