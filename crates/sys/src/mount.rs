//! File system view of a lab's host: its own /sys and its own version of single files. To be called inside a
//! separate mount namespace.

use std::{io, path::Path};

use crate::document;

use rustix::{
    fd::OwnedFd,
    fs::CWD,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_change,
        move_mount, open_tree,
    },
};

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
    let text = document::read_text(Path::new("/proc/thread-self/mountinfo"), document::DOCUMENT_BYTES)?;
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
