//! File system view of a lab's host: its own /sys and its own version of single files. To be called inside a
//! separate mount namespace.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use crate::document;

use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    fs::{CWD, Mode, OFlags, open},
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
        mount_change, move_mount, open_tree, unmount,
    },
};

/// Mounts of the calling thread's namespace.
const TABLE: &str = "/proc/thread-self/mountinfo";

/// Keeps later mounts from propagating to other namespaces.
pub fn make_private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Mounts a new sysfs over /sys, so that `/sys/class/net` shows this network namespace: a sysfs shows the
/// namespace in which it was mounted. Mounts below it (control groups, tracing) are moved to the new one.
pub fn fresh_sysfs() -> io::Result<()> {
    let kept: Vec<(String, OwnedFd)> = mounts_below("/sys/")?
        .into_iter()
        .filter_map(|path| {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::AT_RECURSIVE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            open_tree(CWD, &path, flags).ok().map(|tree| (path, tree))
        })
        .collect();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", "/sys", "sysfs", flags, None::<&std::ffi::CStr>)?;
    for (path, tree) in kept {
        // A directory missing in this sysfs is skipped.
        match move_mount(&tree, "", CWD, &path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Bind-mounts `source` over `path`.
pub fn bind_file(source: &Path, path: &Path) -> io::Result<()> {
    Ok(mount_bind(source, path)?)
}

/// Outermost mount points below a directory (`/proc/self/mountinfo`, field 5;
/// proc_pid_mountinfo(5)).
fn mounts_below(directory: &str) -> io::Result<Vec<String>> {
    let text = document::read_text(Path::new(TABLE), document::DOCUMENT_BYTES)?;
    let mut found: Vec<String> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|path| path.starts_with(directory))
        .map(str::to_owned)
        .collect();
    found.sort();
    let mut outermost: Vec<String> = Vec::new();
    for path in found {
        let inside = |outer: &String| path == *outer || path.starts_with(&format!("{outer}/"));
        if !outermost.last().is_some_and(inside) {
            outermost.push(path);
        }
    }
    Ok(outermost)
}

/// A mount, by the number of its device and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// `major:minor`.
    pub device: String,
    /// Where it is.
    pub path: PathBuf,
}

/// Mounts of the calling thread's namespace, in their order: of several at one place the last one is visible.
///
/// # Errors
/// `/proc` cannot be read.
pub fn mount_points() -> io::Result<Vec<MountPoint>> {
    let text = document::read_text(Path::new(TABLE), document::DOCUMENT_BYTES)?;
    let of_line = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let (device, place) = (fields.next()?.to_owned(), fields.nth(1)?);
        Some(MountPoint { device, path: unescaped(place) })
    };
    Ok(text.lines().filter_map(of_line).collect())
}

/// Blanks, tabs, line ends and backslashes are octal (proc_pid_mountinfo(5)).
fn unescaped(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, more @ ..] = rest {
        let octal = more.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { more.get(3..).unwrap_or_default() } else { more };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Takes a mount away here, whatever still uses it (umount2(2), `MNT_DETACH`).
///
/// # Errors
/// Those of umount2(2).
pub fn detach(path: &Path) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}

/// Changes of the mounts of the namespace in which it was opened.
#[derive(Debug)]
pub struct MountChanges(OwnedFd);

impl MountChanges {
    /// From now on.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn open() -> io::Result<Self> {
        Ok(Self(open(TABLE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Returns when something was mounted or unmounted since the last call (proc_pid_mounts(5)).
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait(&self) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::PRI)], None) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::namespace::{Holder, NamespaceSet};

    #[test]
    fn root_fresh_sysfs_shows_the_namespace_and_keeps_control_groups() {
        let holder = Holder::start().expect("namespaces");
        let set = NamespaceSet::of_process(holder.pid()).expect("proc");
        let names = |path: &str| -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(path)
                .expect("directory")
                .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        let outside = names("/sys/fs/cgroup");
        let (inside, interfaces) = set
            .run(|| {
                make_private().expect("private");
                fresh_sysfs().expect("sysfs");
                (names("/sys/fs/cgroup"), names("/sys/class/net"))
            })
            .expect("entered");
        assert_eq!(inside, outside);
        assert_eq!(interfaces, ["lo"]);
    }

    #[test]
    fn root_bound_file_is_visible_inside_only() {
        let holder = Holder::start().expect("namespaces");
        let set = NamespaceSet::of_process(holder.pid()).expect("proc");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("bind");
        fs::write(&path, "10.0.0.1 a\n").expect("temporary file");
        let inside = set
            .run(|| {
                make_private().expect("private");
                bind_file(&path, Path::new("/etc/hosts")).expect("bind");
                fs::read_to_string("/etc/hosts").expect("hosts")
            })
            .expect("entered");
        fs::remove_file(&path).expect("remove");
        assert_eq!(inside, "10.0.0.1 a\n");
        assert_ne!(fs::read_to_string("/etc/hosts").expect("hosts"), inside);
    }
}
