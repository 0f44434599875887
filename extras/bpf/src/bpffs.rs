//! The pin directory in the BPF file system: created and removed.

use std::{
    ffi::CStr,
    fs, io,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::LoadError;

/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
/// Marker in the pin directory: the file system was mounted for it. Only
/// directories and pins can be created in this file system.
const OWN_MOUNT: &str = "own_mount";

/// Creates `directory`, and mounts a BPF file system where none is mounted
/// (systemd mounts it at boot, minimal systems do not).
///
/// # Errors
/// [`LoadError::Privilege`], [`LoadError::File`], or a kernel without the file
/// system.
pub(crate) fn prepare(directory: &Path) -> Result<PathBuf, LoadError> {
    let mounted = directory.parent().unwrap_or(Path::new("/"));
    let own_mount = !is_bpf(mounted)?;
    if own_mount {
        let fail = |error: rustix::io::Errno| match error {
            rustix::io::Errno::PERM => LoadError::Privilege { what: "mounting the BPF file system" },
            rustix::io::Errno::NODEV => LoadError::Unsupported {
                what: "it has no BPF file system",
                instead: "boot one built with CONFIG_BPF_SYSCALL=y",
            },
            other => LoadError::File { what: "mount", path: mounted.to_owned(), source: other.into() },
        };
        mount(
            "bpf",
            mounted,
            "bpf",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            None::<&CStr>,
        )
        .map_err(fail)?;
    }
    let make = |path: PathBuf| match fs::create_dir(&path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(LoadError::File { what: "make", path, source })
        }
        _ => Ok(()),
    };
    make(directory.to_owned())?;
    if own_mount {
        make(directory.join(OWN_MOUNT))?;
    }
    Ok(directory.to_owned())
}

/// Removes the directory after its last pin was removed, and the mount when it
/// was created for it and is not in use.
///
/// # Errors
/// [`LoadError::File`].
pub(crate) fn remove(directory: &Path) -> Result<(), LoadError> {
    let marker = directory.join(OWN_MOUNT);
    let own_mount = marker.is_dir();
    let others = entries(directory)?.into_iter().any(|path| path != marker);
    if others {
        return Ok(());
    }
    let remove = |path: &Path| {
        fs::remove_dir(path).map_err(|source| LoadError::File {
            what: "remove",
            path: path.to_owned(),
            source,
        })
    };
    if own_mount {
        remove(&marker)?;
    }
    remove(directory)?;
    let mounted = directory.parent().unwrap_or(Path::new("/"));
    if own_mount && entries(mounted)?.is_empty() {
        // Busy: in use by another process, and stays.
        let _ = unmount(mounted, UnmountFlags::empty());
    }
    Ok(())
}

/// Returns the pins and directories in a directory. Names with a dot are
/// reserved by the kernel (`maps.debug`).
fn entries(directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let fail = |source| LoadError::File { what: "list", path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_none() {
            found.push(path);
        }
    }
    Ok(found)
}

fn is_bpf(path: &Path) -> Result<bool, LoadError> {
    let facts = rustix::fs::statfs(path).map_err(|error| match error {
        rustix::io::Errno::NOENT => LoadError::Unsupported {
            what: "there is no /sys/fs/bpf",
            instead: "mount sysfs, on a kernel built with CONFIG_BPF_SYSCALL=y",
        },
        other => LoadError::File { what: "inspect", path: path.to_owned(), source: other.into() },
    })?;
    // The type of this field differs by architecture.
    Ok(facts.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC)
}
