//! The folder of the checks: every name is relative to its descriptor, and only files inside of it are
//! created or removed.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, fchmod, mkdirat, openat, renameat, unlinkat},
    io::Errno,
};

use crate::folder::{self, FILE_MODE, FOLDER_FLAGS, FOLDER_MODE, SEMANTICS_PREFIX};

/// An open folder. Dropping the one that created it removes it.
#[derive(Debug)]
pub(super) struct Folder {
    place: folder::Folder,
    is_creator: bool,
}

impl Folder {
    /// Opens or creates it; before that, what killed runs have left is removed.
    pub(super) fn enter(directory: &Path, name: &str, create: bool) -> Result<Self, Errno> {
        let digits = name.strip_prefix(SEMANTICS_PREFIX).unwrap_or_default();
        let is_valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !directory.is_absolute() || !is_valid {
            return Err(Errno::INVAL);
        }
        let place = match create {
            true => {
                // What remains is named by the other commands.
                let _ = folder::clear_left_over([directory]);
                folder::Folder::create(directory, name)
            }
            false => folder::Folder::enter(directory, name),
        };
        Ok(Self { place: place.map_err(|error| raw(&error))?, is_creator: create })
    }

    /// What the guard removes after a death of this process.
    pub(super) fn place(&self) -> &folder::Folder {
        &self.place
    }

    /// Descriptor of the folder.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.place.own
    }

    /// Opens a file.
    pub(super) fn open(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        self.open_with(name, flags, FILE_MODE)
    }

    /// Opens a file, and creates it with this mode.
    pub(super) fn open_with(&self, name: &str, flags: OFlags, mode: Mode) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.place.own, checked(name)?, flags, mode)?.into())
    }

    /// Creates a folder in it with this mode, whatever the umask is, and opens it.
    pub(super) fn create_inner(&self, name: &str, mode: Mode) -> Result<Self, Errno> {
        mkdirat(&self.place.own, checked(name)?, FOLDER_MODE)?;
        let inner = self.inner(name)?;
        fchmod(inner.descriptor(), mode)?;
        Ok(inner)
    }

    /// Opens a folder in it.
    pub(super) fn inner(&self, name: &str) -> Result<Self, Errno> {
        let own = openat(&self.place.own, checked(name)?, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        let above = openat(&self.place.own, ".", FOLDER_FLAGS, Mode::empty())?;
        Ok(Self { place: folder::Folder::of_descriptors(above, own, name), is_creator: false })
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

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.place.own, checked(name)?, AtFlags::empty())
    }

    /// Renames a file.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        renameat(&self.place.own, checked(from)?, &self.place.own, checked(to)?)
    }

    /// Names that begin with this one.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<String>, Errno> {
        // A description of its own: its position is at the beginning.
        let folder = openat(
            &self.place.own,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) && name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Removes the folder where this one created it. Names that a file system keeps for files open at another
    /// client go away within a moment.
    pub(super) fn leave(&mut self) -> Result<(), Errno> {
        if !self.is_creator {
            return Ok(());
        }
        let mut result = self.place.remove_all();
        for _ in 0..20 {
            if result.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            result = self.place.remove_all();
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
