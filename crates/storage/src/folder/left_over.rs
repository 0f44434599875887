//! Folders of runs that were killed together with their guard.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use clearstream_schema::notice::Notice;
use rustix::{
    fs::{Dir, FlockOperation, FsWord, Mode, OFlags, flock, fstat, open, openat},
    io::Errno,
};

use super::{FOLDER_FLAGS, Folder, METADATA_PREFIX, SEMANTICS_PREFIX, STREAM_PREFIX};
use crate::{
    journal::Journal,
    made::{MADE_MODE, Marks},
};

/// Beginnings of the names of folders that a run makes and removes, before hexadecimal digits.
const PREFIXES: [&str; 3] = [METADATA_PREFIX, SEMANTICS_PREFIX, STREAM_PREFIX];
const ZFS: FsWord = 0x2fc1_2fc1;

/// Removes folders of this user's runs that were killed together with their guard, on file systems of this host only: on
/// others a run on another host may use them. The notice names those that remain without a known user.
pub(crate) fn clear_left_over(directories: impl IntoIterator<Item = impl AsRef<Path>>) -> Option<Notice> {
    let remaining = directories.into_iter().flat_map(|directory| remove_left_over(directory.as_ref()));
    left_over_notice(&remaining.collect::<Vec<_>>())
}

fn remove_left_over(directory: &Path) -> Vec<PathBuf> {
    let Ok(parent) = open(directory, FOLDER_FLAGS, Mode::empty()) else { return Vec::new() };
    let Ok(entries) = Dir::read_from(&parent) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    let mut remaining = Vec::new();
    for name in names.filter(|name| is_name_of_run(name)) {
        let own = openat(&parent, name.as_str(), FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        let (Ok(own), Ok(above)) = (own, parent.try_clone()) else { continue };
        if fstat(&own).map_or(true, |found| found.st_uid != rustix::process::geteuid().as_raw()) {
            continue;
        }
        let marks = marks_of(&own);
        let folder = Folder::of(directory.join(&name), own, above, &name).with_marks(marks);
        match (is_of_this_host(&folder.own), flock(&folder.own, FlockOperation::NonBlockingLockExclusive)) {
            (_, Err(Errno::WOULDBLOCK)) => {}
            (true, Ok(())) if remove(&folder).is_ok() => {}
            _ => remaining.push(folder.path),
        }
    }
    remaining
}

fn remove(folder: &Folder) -> Result<(), Errno> {
    if !folder.name.starts_with(SEMANTICS_PREFIX) {
        return folder.remove_all().1;
    }
    let made = Journal::left_over(&folder.name)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    made.remove(&folder.own)?;
    [true, false].into_iter().for_each(|is_creator| Journal::forget(&folder.name, is_creator, None));
    folder.remove_own()
}

fn left_over_notice(remaining: &[PathBuf]) -> Option<Notice> {
    let first = remaining.first()?.display();
    let others = match remaining.len() - 1 {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let message = format!(
        "{first}{others} is of a run that was killed, or goes on elsewhere: remove it when no such run is left"
    );
    Some(Notice { id: "folder-left-over".to_owned(), message })
}

pub(crate) fn is_name_of_run(name: &str) -> bool {
    PREFIXES
        .iter()
        .filter_map(|prefix| name.strip_prefix(prefix))
        .any(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// By what things are known that were made in a folder.
fn marks_of(folder: &OwnedFd) -> Marks {
    let bits = |mode: Mode| Some(mode.bits() as u16);
    // A directory inherits the bit (inode(7)).
    let inherited =
        fstat(folder).map_or(Mode::empty(), |found| Mode::from_raw_mode(found.st_mode) & Mode::SGID);
    // It drops the sticky bit of files.
    let is_zfs = rustix::fs::fstatfs(folder).is_ok_and(|found| found.f_type == ZFS);
    Marks {
        file: bits(if is_zfs { MADE_MODE - Mode::SVTX } else { MADE_MODE }),
        directory: bits(MADE_MODE | inherited),
        is_remote: false,
    }
}

/// File systems that one kernel alone mounts, so that its locks are all there are (magic numbers of statfs(2)).
fn is_of_this_host(folder: &OwnedFd) -> bool {
    const LOCAL: [FsWord; 8] = [
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683e, // btrfs
        0x0102_1994, // tmpfs
        0x794c_7630, // overlay
        0xf2f5_2010, // f2fs
        ZFS,
        0x8584_58f6, // ramfs
    ];
    rustix::fs::fstatfs(folder).is_ok_and(|found| LOCAL.contains(&found.f_type))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_no_process_uses_is_removed_by_the_next_start_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let name = |prefix: &str, digit: char| format!("{prefix}{}", digit.to_string().repeat(16));
        for prefix in PREFIXES {
            let left = Folder::create(directory.path(), &name(prefix, 'a')).unwrap();
            if prefix != SEMANTICS_PREFIX {
                drop(left.open("data.0.00000001", OFlags::WRONLY | OFlags::CREATE).unwrap());
            }
        }
        let used = Folder::create(directory.path(), &name(STREAM_PREFIX, 'b')).unwrap();
        let others = ["clearstream-kept-0123456789abcdef", "clearstream-stream-mine", "data"];
        for other in others {
            fs::create_dir(directory.path().join(other)).unwrap();
        }
        let with_file = directory.path().join(name(METADATA_PREFIX, 'c'));
        fs::create_dir(&with_file).unwrap();
        // By another program, whatever its name is.
        fs::write(with_file.join("data"), "x").unwrap();
        std::os::unix::fs::symlink(&with_file, directory.path().join(name(METADATA_PREFIX, 'd'))).unwrap();
        let remaining = remove_left_over(directory.path());
        assert_eq!(remaining, std::slice::from_ref(&with_file));
        assert!(left_over_notice(&remaining).unwrap().message.contains(&name(METADATA_PREFIX, 'c')));
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left.len(), others.len() + 3, "{left:?}");
        used.leave().unwrap();
    }
}
