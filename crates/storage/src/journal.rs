//! What processes make in a folder where modes do not tell it: they set them, and make links and nodes. Each process notes
//! a name before it makes it, and behind that what the kernel knows it by, in a file in this host's memory that processes of
//! one agent and its guard share, and the next start finds. What is noted survives any end of the processes; of a name
//! whose making was cut short there is no more than that.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::CStr,
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, MemfdFlags, Mode, OFlags, Statx, chmodat, fcntl_getfl, fcntl_setfl, fstat,
        lstat, memfd_create, open, openat, unlink, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use crate::{
    folder::{FOLDER_FLAGS, FOLDER_MODE},
    made::{Inode, kind_of, look_up},
};

/// Bytes that are read of it at once.
const READ_BYTES: usize = 64 << 10;

/// File system in memory (shm_overview(7)).
const MEMORY: &str = "/dev/shm";

/// The file.
#[derive(Debug)]
pub(crate) struct Journal(File);

/// Of the agent that has created a folder, or of another one on the same host.
fn path(folder: &str, is_creator: bool) -> PathBuf {
    let role = if is_creator { "" } else { ".peer" };
    Path::new(MEMORY).join(format!("clearstream-made{folder}{role}"))
}

impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Journal {
    /// A new one of a folder.
    pub(crate) fn create(folder: &str, is_creator: bool) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let named = open(path(folder, is_creator), flags, Mode::from_raw_mode(0o600));
        // Without such a file system the next start does not find it.
        let file = named.or_else(|_| memfd_create("clearstream-made", MemfdFlags::CLOEXEC))?;
        // Processes write at the same time, each line by one call.
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::APPEND)?;
        Ok(Self::of(file))
    }

    /// What a run that was killed has noted, in this user's files.
    pub(crate) fn left_over(folder: &str) -> io::Result<Made> {
        let mut all = Made::default();
        for is_creator in [true, false] {
            let opened = open(
                path(folder, is_creator),
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            );
            let Ok(file) = opened else { continue };
            if fstat(&file)?.st_uid == geteuid().as_raw() {
                all.offset = 0;
                all.read(&Self::of(file))?;
            }
        }
        Ok(all)
    }

    /// Removes the file, where the name is still its own; without it, one of this user's.
    pub(crate) fn forget(folder: &str, is_creator: bool, journal: Option<&Self>) {
        let path = path(folder, is_creator);
        let Ok(found) = lstat(&path) else { return };
        let is_own = match journal {
            // Where it has no name, that may be anybody's.
            Some(own) => {
                fstat(&own.0).is_ok_and(|own| (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino))
            }
            None => found.st_uid == geteuid().as_raw(),
        };
        if is_own {
            let _ = unlink(path);
        }
    }

    /// That of another process.
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self(file.into())
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// For a process that is started.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0.into()
    }

    /// Before something is made with a name.
    pub(crate) fn begin(&self, name: &[u8]) {
        self.line('+', name, None);
    }

    /// It is made.
    pub(crate) fn made(&self, name: &[u8], inode: Inode) {
        self.line('=', name, Some(inode));
    }

    /// It was there before.
    pub(crate) fn failed(&self, name: &[u8]) {
        self.line('-', name, None);
    }

    /// Before something that is made gets another name, or a second one.
    pub(crate) fn moves(&self, name: &[u8]) {
        self.line('>', name, None);
    }

    fn line(&self, kind: char, name: &[u8], inode: Option<Inode>) {
        use std::fmt::Write as _;
        let mut line = format!("{kind}{:x} ", inode.map_or(0, Inode::number));
        for byte in name {
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        // Without memory for it the thing stays and is named.
        let _ = (&self.0).write_all(line.as_bytes());
    }

    /// Everything that is noted.
    pub(crate) fn read(&self) -> io::Result<Made> {
        let mut made = Made::default();
        made.read(self)?;
        Ok(made)
    }
}

/// What is noted.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Bytes that were read.
    offset: u64,
    /// Of a line that is not whole yet.
    rest: Vec<u8>,
    inodes: HashSet<Inode>,
    names: HashSet<Vec<u8>>,
    /// Makings that are under way, or were cut short.
    begun: HashMap<Vec<u8>, i64>,
    /// Names that things got later.
    moved: BTreeSet<Vec<u8>>,
    /// Names that suffice.
    elsewhere: HashSet<Vec<u8>>,
}

impl Made {
    /// Reads what was noted since.
    pub(crate) fn read(&mut self, journal: &Journal) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        loop {
            let count = journal.0.read_at(&mut bytes, self.offset)?;
            if count == 0 {
                return Ok(());
            }
            self.offset += count as u64;
            self.rest.extend_from_slice(&bytes[..count]);
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            lines.split(|byte| *byte == b'\n').for_each(|line| self.note(line));
        }
    }

    fn note(&mut self, line: &[u8]) {
        let Some((kind, number, name)) = parsed(line) else { return };
        match kind {
            b'+' => *self.begun.entry(name.clone()).or_default() += 1,
            b'>' => drop(self.moved.insert(name.clone())),
            _ => *self.begun.entry(name.clone()).or_default() -= 1,
        }
        self.inodes.extend(Inode::from_number(number));
        self.names.insert(name);
    }

    /// Names to which processes of another agent moved things, of which its journal may not have the inodes. Clients whose
    /// inode numbers are their own (`is_remote`) may have another one for each name (sshfs).
    pub(crate) fn and_moved(mut self, names: &[Vec<u8>], is_remote: bool) -> Self {
        self.names.extend(names.iter().cloned());
        if is_remote {
            self.elsewhere.extend(names.iter().chain(&self.moved).cloned());
        }
        self
    }

    /// Names that things got behind their making.
    pub(crate) fn moved(&self) -> Vec<Vec<u8>> {
        self.moved.iter().cloned().collect()
    }

    /// Whether what has the name is one of the things that were made.
    pub(crate) fn has(&self, name: &[u8], found: &Statx) -> bool {
        let is_cut_short = self.begun.get(name).is_some_and(|count| *count > 0);
        is_cut_short
            || self.elsewhere.contains(name)
            || (self.names.contains(name) && self.inodes.contains(&Inode::of(found)))
    }

    /// Removes from a folder what was made, and what was made below that.
    ///
    /// # Errors
    /// Something that was made could not be removed.
    pub(crate) fn remove(&self, folder: &OwnedFd) -> Result<(), Errno> {
        let mut first = Ok(());
        // All names first: a directory that is read while entries are removed may leave some out (readdir(3), MooseFS).
        let entries: Vec<_> = Dir::read_from(folder)?.collect::<Result<_, _>>()?;
        for entry in &entries {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let removed = match look_up(folder, name) {
                Ok(found) if self.has(name.to_bytes(), &found) => match kind_of(&found) {
                    FileType::Directory => self.remove_directory(folder, name),
                    _ => unlinkat(folder, name, AtFlags::empty()),
                },
                looked => looked.map(|_| ()),
            };
            match removed {
                // What others have in it keeps a directory.
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    fn remove_directory(&self, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        let open = || openat(folder, name, FOLDER_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        let inner = open().or_else(|_| {
            // Its mode was set by a check.
            chmodat(folder, name, FOLDER_MODE, AtFlags::empty())?;
            open()
        })?;
        self.remove(&inner)?;
        unlinkat(folder, name, AtFlags::REMOVEDIR)
    }
}

/// Kind, inode and name of a line.
fn parsed(line: &[u8]) -> Option<(u8, u64, Vec<u8>)> {
    let text = std::str::from_utf8(line).ok()?;
    let (number, name) = text.get(1..)?.split_once(' ')?;
    let byte = |at: usize| u8::from_str_radix(name.get(at..at + 2)?, 16).ok();
    let name = (0..name.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    Some((*line.first()?, u64::from_str_radix(number, 16).ok()?, name))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::folder::Folder;

    fn journal() -> Journal {
        Journal::of(memfd_create("test", MemfdFlags::CLOEXEC).unwrap())
    }

    fn made(journal: &Journal, folder: &OwnedFd, path: &Path, make: impl FnOnce()) {
        let name = path.file_name().unwrap().as_encoded_bytes();
        journal.begin(name);
        make();
        journal.made(name, Inode::of(&look_up(folder, path.file_name().unwrap()).unwrap()));
    }

    #[test]
    fn a_journal_of_others_under_its_name_stays() {
        let name = format!(".test-{:016x}", rand::random::<u64>());
        fs::write(path(&name, true), "of others").unwrap();
        let unnamed = Journal::create(&name, true).unwrap();
        Journal::forget(&name, true, Some(&unnamed));
        assert_eq!(fs::read_to_string(path(&name, true)).unwrap(), "of others");
        fs::remove_file(path(&name, true)).unwrap();
        let named = Journal::create(&name, true).unwrap();
        Journal::forget(&name, true, Some(&named));
        assert!(!path(&name, true).exists());
    }

    /// What others may put at each place: it is there afterwards, and nothing else.
    #[test]
    fn what_was_made_is_removed_by_name_and_inode_and_nothing_else() {
        for replaced in ["nothing", "file", "link", "hard link", "directory", "another name", "below"] {
            let directory = tempfile::tempdir().unwrap();
            let folder = Folder::create(directory.path(), "checks").unwrap();
            let (path, journal) = (directory.path().join("checks"), journal());
            let mine = directory.path().join("mine");
            fs::write(&mine, "of others").unwrap();
            made(&journal, &folder.own, &path.join("a"), || fs::write(path.join("a"), "").unwrap());
            made(&journal, &folder.own, &path.join("d"), || fs::create_dir(path.join("d")).unwrap());
            made(&journal, &folder.own, &path.join("s"), || symlink("nowhere", path.join("s")).unwrap());
            fs::write(path.join("d/inner"), "").unwrap();
            let inner = Inode::of(&look_up(&folder.own, "d/inner").unwrap());
            journal.begin(b"inner");
            journal.made(b"inner", inner);
            journal.moves(b"b");
            fs::hard_link(path.join("a"), path.join("b")).unwrap();
            // Whoever was to note it was killed.
            journal.begin(b"cut-short");
            fs::write(path.join("cut-short"), "").unwrap();
            journal.begin(b"was-there");
            journal.failed(b"was-there");
            let place = path.join(match replaced {
                "another name" => "was-there",
                "below" => "d/note.txt",
                _ => "a",
            });
            let _ = fs::remove_file(&place);
            match replaced {
                "nothing" => {}
                "link" => symlink(&mine, &place).unwrap(),
                "hard link" => fs::hard_link(&mine, &place).unwrap(),
                "directory" => fs::create_dir(&place).unwrap(),
                _ => fs::write(&place, "of others").unwrap(),
            }
            let before =
                look_up(&folder.own, place.strip_prefix(&path).unwrap()).map(|found| Inode::of(&found));
            journal.read().unwrap().remove(&folder.own).unwrap();
            let after =
                look_up(&folder.own, place.strip_prefix(&path).unwrap()).map(|found| Inode::of(&found));
            assert_eq!(before.ok(), after.ok(), "{replaced}");
            assert_eq!(fs::read_to_string(&mine).unwrap(), "of others", "{replaced}");
            assert_eq!(
                fs::read_dir(&path).unwrap().count(),
                usize::from(replaced != "nothing"),
                "{replaced}"
            );
            assert_eq!(folder.remove_own().is_ok(), replaced == "nothing", "{replaced}");
        }
    }

    #[test]
    fn a_name_of_any_bytes_is_read_as_it_was_noted_also_in_parts() {
        let journal = journal();
        let mut made = Made::default();
        for byte in 1..=255_u8 {
            journal.moves(&[byte, b'x']);
            made.read(&journal).unwrap();
        }
        assert_eq!(made.moved().len(), 255);
        assert_eq!(parsed(b"=ff 0a20"), Some((b'=', 255, b"\n ".to_vec())));
        assert_eq!(parsed(b"=ff 0a2"), None);
    }
}
