//! The folder of sockets and state of this boot: nobody else can make a name in it.

use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use rustix::fs::fstat;

/// `/run/clearstream` for root, and `$XDG_RUNTIME_DIR/clearstream` for other users; `None` where that is not set.
pub fn path() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/run/clearstream".into());
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty())?;
    Some(Path::new(&runtime).join("clearstream"))
}

/// Makes a folder of mode 0700, or checks the one that is there: it belongs to this user, and nobody else may write it.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] where others could make names in it.
pub fn make(path: &Path) -> io::Result<()> {
    let folder = crate::place::make_folders(path, 0o700)?;
    let found = fstat(folder.as_fd())?;
    let own = rustix::process::geteuid().as_raw();
    if found.st_uid == own && found.st_mode & 0o022 == 0 {
        return Ok(());
    }
    let (owner, mode) = (found.st_uid, found.st_mode & 0o7777);
    let message = format!(
        "{} is a folder of user {owner} with mode {mode:o}: it has to be yours, writable by nobody else (mode 700)",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}
