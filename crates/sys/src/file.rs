//! Operators' files: replacement that leaves either the old contents or the new
//! ones, never a part (rename(2)).

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, OFlags, linkat, openat, renameat, unlinkat},
    io::Errno,
};

use crate::place::{Found, Place, Target};

/// Gives a file without a name (`O_TMPFILE`) one in a folder, the way that takes no privilege (open(2)).
///
/// # Errors
/// Those of linkat(2).
pub fn link_unnamed(file: BorrowedFd<'_>, folder: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, path, folder, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Closes a file and returns the error of that, which [`Drop`] leaves out: quotas and servers without space
/// report there (close(2), NFS).
///
/// # Errors
/// Those of close(2); the descriptor is closed in any case.
pub fn close(file: File) -> io::Result<()> {
    let descriptor = file.into_raw_fd();
    // SAFETY: the descriptor was owned by `file`, and nobody uses it after.
    if unsafe { libc::close(descriptor) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Replaces the contents of `path`, or creates it. Devices and pipes are written to directly.
///
/// # Errors
/// Those of the file system; the old file is then unchanged. [`io::ErrorKind::PermissionDenied`] where a link or file in
/// a folder that everybody may write is a stranger's.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    replace_with(path, None, |file| file.write_all(contents))
}

/// As [`replace`], for state that does not outlive the boot: readers see the old or the new contents, without
/// waiting for the disk (milliseconds per file where `/run` is not on tmpfs).
///
/// # Errors
/// As [`replace`].
pub fn replace_without_sync(path: &Path, contents: &[u8]) -> io::Result<()> {
    exchange(path, None, false, |file| file.write_all(contents))
}

/// As [`replace`], with content from `write` and an explicit mode (by default that of the old file, or the
/// default for a new one).
///
/// # Errors
/// As [`replace`], and those of `write`.
pub fn replace_with<E: From<io::Error>>(
    path: &Path,
    mode: Option<u32>,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    exchange(path, mode, true, write)
}

fn exchange<E: From<io::Error>>(
    path: &Path,
    mode: Option<u32>,
    sync: bool,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let place = match Target::of(path)? {
        Target::Direct(direct) => return write(&mut direct.open()?),
        Target::Place(place) => place,
    };
    let (draft, mut file) = create_draft(&place)?;
    let fill = || -> Result<(), E> {
        write(&mut file)?;
        take_over_attributes(&file, place.found.as_ref(), mode)?;
        if sync {
            file.sync_all()?;
        }
        Ok(renameat(&place.folder, &draft, &place.folder, &place.name).map_err(io::Error::from)?)
    };
    if let Err(error) = fill() {
        // The error of the write is the one to report.
        let _ = unlinkat(&place.folder, &draft, AtFlags::empty());
        return Err(error);
    }
    if sync {
        // On a file system that cannot sync a folder the file exists regardless.
        let _ = place.sync();
    }
    Ok(())
}

/// Opens a file to be written from its beginning, or creates it; for what grows while it is written. Links and files of
/// strangers are refused as by [`replace`].
///
/// # Errors
/// Those of the file system.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open(path, OFlags::WRONLY, 0o666)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file to be written at its end, or creates it. Links and files of strangers are refused as by [`replace`].
///
/// # Errors
/// Those of the file system.
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND, 0o666)
}

/// Opens a file with these flags, or creates it with this mode.
pub(crate) fn open(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    loop {
        let place = match Target::of(path)? {
            Target::Direct(direct) => return direct.open(),
            Target::Place(place) => place,
        };
        match place.open(flags, mode) {
            // It was made, or removed, since it was looked for.
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
            opened => return opened,
        }
    }
}

/// Makes a folder and those above it, unless they are there. Links of strangers are refused as by [`replace`].
///
/// # Errors
/// Those of the file system; [`io::ErrorKind::NotADirectory`] where something else is there.
pub fn make_folders(path: &Path, mode: u32) -> io::Result<()> {
    crate::place::make_folders(path, mode).map(|_| ())
}

/// Moves a complete folder to its destination, which is empty or does not exist: after a crash the
/// destination has all of it or nothing.
///
/// # Errors
/// Those of the file system; nothing has been moved then.
pub fn publish_folder(draft: &Path, place: &Path) -> io::Result<()> {
    // One call for any number of files, where fsync(2) is one for each file and
    // folder. It reports failed writes since Linux 5.8 (syncfs(2)).
    rustix::fs::syncfs(File::open(draft)?)?;
    let place = match Target::of_folder(place)? {
        Target::Place(place) => place,
        Target::Direct(_) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    // rename(2) replaces an empty folder.
    renameat(rustix::fs::CWD, draft, &place.folder, &place.name)?;
    // On a file system that cannot sync a folder its entries exist regardless.
    let _ = place.sync();
    Ok(())
}

/// A new file in the target's folder: rename(2) works within one file system only. No link is followed to it.
fn create_draft(place: &Place) -> io::Result<(String, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let draft = format!(".clearstream-{}-{number}.draft", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(&place.folder, &draft, flags, 0o666.into()) {
            // Left over from a killed process with the same id.
            Err(Errno::EXIST) => {}
            opened => return Ok((draft, opened?.into())),
        }
    }
}

/// Copies mode and owner of the old file to the new one; as a write does, without the bits that change the user
/// (inode(7)).
fn take_over_attributes(file: &File, old: Option<&Found>, mode: Option<u32>) -> io::Result<()> {
    if let Some(old) = old {
        let new = file.metadata()?;
        if (old.user, old.group) != (new.uid(), new.gid()) {
            // Without privilege the new file belongs to this user, as any new file.
            let _ = fchown(file, Some(old.user), Some(old.group));
        }
    }
    match mode.or(old.map(|old| old.mode & 0o777)) {
        Some(mode) => file.set_permissions(fs::Permissions::from_mode(mode)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, path::PathBuf};

    use super::*;

    /// A temporary folder, removed with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(tempfile::Builder::new().prefix(name).tempdir().expect("temporary folder").keep())
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("folder");
            entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8")).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn failed_write_leaves_the_old_file_and_no_draft() {
        let folder = Folder::new("replace-failed");
        let path = folder.0.join("plan.json");
        fs::write(&path, "old").expect("file");
        let result = replace_with(&path, None, |file| {
            file.write_all(b"half of the n")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert_eq!(result.expect_err("disk full").kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).expect("old file"), "old");
        assert_eq!(folder.names(), ["plan.json"]);
    }

    #[test]
    fn mode_and_links_are_kept_and_readers_see_complete_files() {
        let folder = Folder::new("replace-links");
        let (path, link) = (folder.0.join("plan.json"), folder.0.join("link"));
        fs::write(&path, "old").expect("file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("mode");
        std::os::unix::fs::symlink("plan.json", &link).expect("link");
        let mut before = File::open(&path).expect("open");
        replace(&link, b"new").expect("replaced");
        assert!(fs::symlink_metadata(&link).expect("link").is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("file"), "new");
        assert_eq!(fs::metadata(&path).expect("file").mode() & 0o777, 0o640);
        let mut seen = String::new();
        before.read_to_string(&mut seen).expect("the old file is still whole");
        assert_eq!(seen, "old");
        replace_with(&path, Some(0o755), |file| file.write_all(b"#!")).expect("replaced");
        assert_eq!(fs::metadata(&path).expect("file").mode() & 0o777, 0o755);
    }

    #[test]
    fn folder_replaces_an_empty_destination_only() {
        let folder = Folder::new("publish");
        let (draft, place) = (folder.0.join("draft"), folder.0.join("place"));
        for _ in 0..2 {
            fs::create_dir(&draft).expect("folder");
            fs::write(draft.join("file"), "whole").expect("file");
            if !place.exists() {
                fs::create_dir(&place).expect("an empty destination");
                publish_folder(&draft, &place).expect("published");
            }
        }
        assert_eq!(fs::read_to_string(place.join("file")).expect("file"), "whole");
        let error = publish_folder(&draft, &place).expect_err("the destination is not empty");
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        assert!(draft.join("file").exists(), "nothing was moved");
    }

    #[test]
    fn devices_are_written_directly_and_report_when_full() {
        replace(Path::new("/dev/null"), b"anything").expect("null accepts all");
        assert_eq!(
            replace(Path::new("/dev/full"), b"x").expect_err("full").kind(),
            io::ErrorKind::StorageFull
        );
        assert_eq!(replace(Path::new("/tmp"), b"x").expect_err("folder").kind(), io::ErrorKind::IsADirectory);
    }
}
