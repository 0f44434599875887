//! Type and source of a directory's file system, of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::{os::unix::fs::MetadataExt as _, path::Path};

use clearstream_host::HostRoot;

/// `ext4 on /dev/sda1`.
pub(crate) fn of(directory: &Path) -> String {
    let table = HostRoot::live().read("proc/self/mountinfo").unwrap_or_default();
    let path = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let device = std::fs::metadata(&path).map(|found| found.dev()).ok();
    find(&table, &path, device).unwrap_or_else(|| "unknown".to_owned())
}

fn find(table: &str, path: &Path, device: Option<u64>) -> Option<String> {
    let lines = table.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let point = unescape(fields.get(4)?);
        let mut source = file_system.split(' ');
        let name = format!("{} on {}", source.next()?, unescape(source.next()?));
        Some((point, *fields.get(2)?, name))
    });
    // Of mounts on one point the last one is visible.
    let inside: Vec<_> = lines.filter(|(point, ..)| path.starts_with(point)).collect();
    let device = device.map(|number| format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let depth = inside.iter().map(|(point, ..)| point.len()).max()?;
    let deepest = || inside.iter().rev().filter(|(point, ..)| point.len() == depth);
    let found = deepest().find(|(_, number, _)| Some(*number) == device.as_deref()).or(deepest().next());
    found.map(|(.., name)| name.clone())
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
        let of = |path: &str| find(TABLE, Path::new(path), None).unwrap();
        assert_eq!(of("/home"), "ext4 on /dev/vda");
        assert_eq!(of("/mnt/with blank/folder"), "fuse.sshfs on host:/data");
        assert_eq!(of("/mnt/without"), "tmpfs on none");
    }
}
