//! Type and source of a directory's file system, of `/proc/self/mountinfo` (proc_pid_mountinfo(5)), and what it does
//! with data on the way: a rate may be that of a compressor, or of a cache that nothing here reaches.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use clearstream_host::HostRoot;
use clearstream_schema::notice::Notice;
use serde::{Deserialize, Serialize};

/// A mount, as far as rates depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// `ext4 on /dev/sda1`.
    pub(crate) name: String,
    traits: Vec<Trait>,
}

/// What a mount does with data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Trait {
    /// Files are in this host's memory.
    Memory,
    /// It compresses: the option, or the file system that does by default.
    Compresses(String),
    /// Blocks come from a file, through another page cache.
    Loop(String),
    /// A process of user space serves it.
    Fuse,
    /// Another host serves it.
    Network,
}

impl Mount {
    /// Of a directory.
    pub(crate) fn of(directory: &Path) -> Self {
        let root = HostRoot::live();
        let table = root.read("proc/self/mountinfo").unwrap_or_default();
        let path = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let device = std::fs::metadata(&path).map(|found| found.dev()).ok();
        let Some(line) = find(&table, &path, device) else { return Self::unknown() };
        let backing = line.source.strip_prefix("/dev/").filter(|name| name.starts_with("loop"));
        let backing = backing.and_then(|name| root.read(&format!("sys/block/{name}/loop/backing_file")).ok());
        let backing = backing.map(|text| text.trim().to_owned());
        Self { traits: traits(&line, backing), name: format!("{} on {}", line.kind, line.source) }
    }

    /// Of a run that could not say it.
    pub(crate) fn unknown() -> Self {
        Self { name: "unknown".to_owned(), traits: Vec::new() }
    }

    /// Whether the file system is in memory.
    pub(crate) fn is_memory(&self) -> bool {
        self.traits.contains(&Trait::Memory)
    }

    /// Whether a process or another host has the files, so that inode numbers and times may be those of a cache.
    pub(crate) fn is_remote(&self) -> bool {
        self.traits.iter().any(|found| matches!(found, Trait::Fuse | Trait::Network))
    }

    /// What stands between the rates and the storage. `is_dropped` says that pages were dropped before reading.
    pub(crate) fn notices(&self, is_dropped: bool) -> Vec<Notice> {
        let notice = |id: &str, message: String| Notice { id: id.to_owned(), message };
        let reach = if is_dropped { "--drop-caches" } else { "dropping this host's pages" };
        let of = |found: &Trait| match found {
            Trait::Memory => notice(
                "in-memory",
                format!("the file system is in memory ({}): rates are of memory, not of storage", self.name),
            ),
            Trait::Compresses(how) => notice(
                "compresses",
                format!(
                    "the file system compresses ({how}): rates of data that compresses are not the storage's"
                ),
            ),
            Trait::Loop(file) => notice(
                "loop-device",
                format!("the file system is in the file {file}, whose own page cache {reach} does not reach"),
            ),
            Trait::Fuse => notice(
                "served-by-process",
                format!("a process serves the file system (FUSE), whose own caches {reach} does not reach"),
            ),
            Trait::Network => notice(
                "served-by-host",
                format!("another host serves the file system, whose caches {reach} does not reach"),
            ),
        };
        self.traits.iter().map(of).collect()
    }
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    kind: String,
    source: String,
    /// Of the mount and of the file system.
    options: Vec<String>,
}

fn find(table: &str, path: &Path, device: Option<u64>) -> Option<Line> {
    let lines = table.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let point = unescape(fields.get(4)?);
        let mut source = file_system.split(' ');
        let (kind, source, own) =
            (source.next()?, unescape(source.next()?), source.next().unwrap_or_default());
        let options = fields.get(5)?.split(',').chain(own.split(',')).map(str::to_owned).collect();
        Some((point, *fields.get(2)?, Line { kind: kind.to_owned(), source, options }))
    });
    // Of mounts on one point the last one is visible.
    let inside: Vec<_> = lines.filter(|(point, ..)| path.starts_with(point)).collect();
    let device = device.map(|number| format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let depth = inside.iter().map(|(point, ..)| point.len()).max()?;
    let deepest = || inside.iter().rev().filter(|(point, ..)| point.len() == depth);
    let found = deepest().find(|(_, number, _)| Some(*number) == device.as_deref()).or(deepest().next());
    found.map(|(.., line)| line.clone())
}

fn traits(line: &Line, backing: Option<String>) -> Vec<Trait> {
    // File systems whose data another host has, by their names in the kernel.
    const NETWORK: [&str; 16] = [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "glusterfs",
        "mfs",
        "moosefs",
        "sshfs",
        "9p",
        "afs",
        "orangefs",
        "pvfs2",
    ];
    let kind = line.kind.as_str();
    let below = kind.strip_prefix("fuse.").or(kind.strip_prefix("fuseblk."));
    let mut found = Vec::new();
    if matches!(kind, "tmpfs" | "ramfs" | "hugetlbfs") {
        found.push(Trait::Memory);
    }
    // btrfs(5), f2fs and bcachefs; UBIFS and ZFS do it unless they were told not to (zfsprops(7)).
    let option = line.options.iter().find(|option| {
        ["compress=", "compress-force=", "compress_algorithm=", "compression="]
            .iter()
            .any(|key| option.strip_prefix(key).is_some_and(|value| !matches!(value, "no" | "none")))
    });
    match (option, kind) {
        (Some(option), _) => found.push(Trait::Compresses(option.clone())),
        (None, "zfs" | "ubifs") => found.push(Trait::Compresses(format!("{kind} by default"))),
        _ => {}
    }
    found.extend(backing.map(Trait::Loop));
    if kind == "fuse" || kind == "fuseblk" || below.is_some() || kind == "virtiofs" {
        found.push(Trait::Fuse);
    }
    if NETWORK.contains(&below.unwrap_or(kind)) {
        found.push(Trait::Network);
    }
    found
}

/// Resolves the octal escapes of blanks.
/// A blank, a tab, a line's end, `\` and `#` are written in octal.
fn unescape(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |text, (escape, letter)| text.replace(escape, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
        30 22 0:25 / /mnt/with\\040blank rw shared:1 - fuse.sshfs host:/data rw\n\
        31 22 0:26 / /mnt rw - tmpfs none rw\n";

    #[test]
    fn the_deepest_mount_is_that_of_the_directory() {
        let of = |path: &str| {
            let line = find(TABLE, Path::new(path), None).unwrap();
            format!("{} on {}", line.kind, line.source)
        };
        assert_eq!(of("/home"), "ext4 on /dev/vda");
        assert_eq!(of("/mnt/with blank/folder"), "fuse.sshfs on host:/data");
        assert_eq!(of("/mnt/without"), "tmpfs on none");
    }

    /// Options as mount(8) prints them on such mounts.
    #[test]
    fn what_a_mount_does_with_data_is_known_by_its_line() {
        let of = |kind: &str, options: &str, backing: Option<&str>| {
            let table = format!("22 1 254:0 / / rw,noatime - {kind} source rw,{options}\n");
            traits(&find(&table, Path::new("/x"), None).unwrap(), backing.map(str::to_owned))
        };
        let compresses = |how: &str| vec![Trait::Compresses(how.to_owned())];
        assert_eq!(of("ext4", "errors=remount-ro", None), []);
        assert_eq!(of("tmpfs", "size=1g", None), [Trait::Memory]);
        assert_eq!(of("btrfs", "compress=zstd:3,space_cache=v2", None), compresses("compress=zstd:3"));
        assert_eq!(of("btrfs", "compress-force=lzo", None), compresses("compress-force=lzo"));
        assert_eq!(of("btrfs", "compress=no", None), []);
        assert_eq!(of("f2fs", "compress_algorithm=lz4", None), compresses("compress_algorithm=lz4"));
        assert_eq!(of("bcachefs", "compression=none", None), []);
        assert_eq!(of("zfs", "xattr", None), compresses("zfs by default"));
        assert_eq!(of("xfs", "", Some("/x.img")), [Trait::Loop("/x.img".to_owned())]);
        assert_eq!(of("fuse.bindfs", "", None), [Trait::Fuse]);
        assert_eq!(of("fuse.sshfs", "", None), [Trait::Fuse, Trait::Network]);
        assert_eq!(of("fuse.glusterfs", "", None), [Trait::Fuse, Trait::Network]);
        for kind in ["nfs4", "lustre", "gpfs", "ceph", "beegfs", "cifs"] {
            assert_eq!(of(kind, "vers=3", None), [Trait::Network], "{kind}");
        }
    }
}
