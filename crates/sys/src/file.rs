//! Operators' files: replacement that leaves either the old contents or the new
//! ones, never a part (rename(2)).

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::fd::IntoRawFd as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Maximum links followed to a file (path_resolution(7)).
const LINKS: usize = 40;

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
/// Those of the file system; the old file is then unchanged.
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
    let Some(target) = regular_target(path)? else {
        return write(&mut OpenOptions::new().write(true).open(path)?);
    };
    let folder = parent(&target);
    let (draft, mut file) = create_draft(folder)?;
    let fill = || -> Result<(), E> {
        write(&mut file)?;
        take_over_attributes(&file, &target, mode)?;
        if sync {
            file.sync_all()?;
        }
        Ok(fs::rename(&draft, &target)?)
    };
    if let Err(error) = fill() {
        // The error of the write is the one to report.
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    if sync {
        sync_entries(folder);
    }
    Ok(())
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
    // rename(2) replaces an empty folder.
    fs::rename(draft, place)?;
    sync_entries(parent(place));
    Ok(())
}

/// Parent folder of a path; the current one for a bare name.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs a new directory entry with its folder (fsync(2)). On a file system that cannot sync a folder the
/// file exists regardless.
fn sync_entries(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// The file to be replaced, links resolved; `None` where `path` is a device, a pipe, or a descriptor of this
/// process (`/dev/stdout`), which a rename would detach from its owner.
fn regular_target(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut target = path.to_owned();
    for _ in 0..LINKS {
        let shared_memory = target.starts_with("/dev/shm");
        if (target.starts_with("/dev") && !shared_memory) || target.starts_with("/proc") {
            return Ok(None);
        }
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {
                let next = fs::read_link(&target)?;
                target = target.parent().unwrap_or(Path::new("")).join(next);
            }
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) => return Ok(found.is_file().then_some(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(target)),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(rustix::io::Errno::LOOP))
}

/// A new file in the target's folder: rename(2) works within one file system only.
fn create_draft(folder: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let draft = folder.join(format!(".clearstream-{}-{number}.draft", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o666).open(&draft) {
            // Left over from a killed process with the same id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (draft, file)),
        }
    }
}

/// Copies mode and owner of the old file to the new one.
fn take_over_attributes(file: &File, target: &Path, mode: Option<u32>) -> io::Result<()> {
    let old = fs::metadata(target).ok();
    if let Some(old) = &old {
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            // Without privilege the new file belongs to this user, as any new file.
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
        }
    }
    match mode.or(old.map(|old| old.mode() & 0o7777)) {
        Some(mode) => file.set_permissions(fs::Permissions::from_mode(mode)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// A temporary folder, removed with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("clearstream-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("temporary folder");
            Self(path)
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
