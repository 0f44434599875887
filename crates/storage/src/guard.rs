//! A process that removes a test's files when the process of its ranks was killed.
//!
//! It is in a process group of its own from its start, so that what ends the ranks (a launcher's or a terminal's signal
//! to their group, kill -9) does not reach it, and learns their end from its standard input, a socket that closes then. Over it, it gets the
//! descriptors of the folder that was made: whoever renames that and puts something else in its place changes nothing.
//! The socket's end without [`RELEASED`] before it is that of a process that was killed.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

use clearstream_schema::json;
use serde::{Deserialize, Serialize};

use crate::{folder::Folder, journal::Journal, made::Marks};

/// Message of ranks that removed their files themselves: no folder.
const RELEASED: &[u8] = b"released";
/// Attempts to remove what is there, 10 s: other ranks, which the launcher ends, may go on creating files. They are counted,
/// not timed: one that a file system holds is followed by others, for what was under way then.
const ATTEMPTS: u32 = 50;
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const QUIET: u32 = 5;
/// Longest message: a name of `NAME_MAX` bytes as JSON, and the rest.
const MESSAGE_BYTES: usize = 4096;

/// A folder, with its descriptors.
#[derive(Serialize, Deserialize)]
struct Watched {
    name: String,
    marks: Marks,
    /// The run made the folder, too.
    is_whole: bool,
}

/// What the guard has to remove.
#[derive(Debug)]
struct Place {
    folder: Folder,
    /// What was made, where modes do not tell it.
    journal: Option<Journal>,
    is_whole: bool,
    /// Looks at which nothing of the run was left beside what is others'.
    quiet: u32,
}

impl Place {
    /// Whether nothing of the run is left. Where all that is left is others', it is seen `QUIET` times.
    fn remove(&mut self) -> bool {
        let (count, removed) = match &self.journal {
            None => self.folder.remove_all(),
            Some(journal) => (0, self.remove_noted(journal)),
        };
        let is_of_others = count == 0 && matches!(removed, Err(Errno::NOTEMPTY | Errno::EXIST));
        self.quiet = if is_of_others { self.quiet + 1 } else { 0 };
        let is_done = removed.is_ok() || self.quiet == QUIET;
        if is_done && self.journal.is_some() {
            // Else the next start needs it.
            Journal::forget(&self.folder.name, self.is_whole, self.journal.as_ref());
        }
        is_done
    }

    fn remove_noted(&self, journal: &Journal) -> Result<(), Errno> {
        let made = journal.read().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        made.and_moved(&[], self.folder.marks.is_remote).remove(&self.folder.own)?;
        if self.is_whole { self.folder.remove_own() } else { Ok(()) }
    }
}

/// The process, seen by the ranks. Dropped without [`Self::release`], it removes the folder.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    socket: OwnedFd,
}

impl Guard {
    /// Starts it; `command` is one that calls [`guard`].
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let (socket, input) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        command.stdin(Stdio::from(input)).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = command.spawn()?;
        Ok(Self { child, socket })
    }

    /// Hands over a folder that the test has created.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn watch(&mut self, folder: &Folder) -> io::Result<()> {
        self.hand_over(folder, None, true)
    }

    /// Hands over what processes make in a folder, and the folder where it was created here (`is_whole`).
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn watch_journal(
        &mut self,
        folder: &Folder,
        journal: &Journal,
        is_whole: bool,
    ) -> io::Result<()> {
        self.hand_over(folder, Some(journal), is_whole)
    }

    fn hand_over(&mut self, folder: &Folder, journal: Option<&Journal>, is_whole: bool) -> io::Result<()> {
        let watched = Watched { name: folder.name.clone(), marks: folder.marks, is_whole };
        let message = json::to_vec(&watched)?;
        let descriptors: Vec<_> =
            [folder.own.as_fd(), folder.parent.as_fd()].into_iter().chain(journal.map(AsFd::as_fd)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        sendmsg(&self.socket, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The files are removed, or to be kept.
    pub fn release(mut self) {
        // Without a process there is nothing to end.
        let _ = sendmsg(
            &self.socket,
            &[IoSlice::new(RELEASED)],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        );
        drop(self.socket);
        let _ = self.child.wait();
    }
}

/// The process itself: waits for the end of the ranks at `input`, its standard input.
pub fn guard(input: impl AsFd) {
    guard_for(input, ATTEMPTS);
}

fn guard_for(input: impl AsFd, attempts: u32) {
    let mut places = Vec::new();
    loop {
        match received(&input) {
            Ok(Received::Place(place)) => places.push(place),
            Ok(Received::Released) => return,
            Err(Errno::INTR) => {}
            Ok(Received::End) | Err(_) => break,
        }
    }
    for _ in 0..attempts {
        places.retain_mut(|place: &mut Place| !place.remove());
        if places.is_empty() {
            return;
        }
        thread::sleep(RETRY_INTERVAL);
    }
    // The next start removes what is left on file systems of this host alone.
    for Place { folder, journal, is_whole, .. } in places.iter().filter(|place| place.folder.marks.is_remote)
    {
        if journal.is_some() {
            Journal::forget(&folder.name, *is_whole, journal.as_ref());
        }
    }
}

enum Received {
    Place(Place),
    Released,
    End,
}

fn received(input: &impl AsFd) -> Result<Received, Errno> {
    let mut text = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(input, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    let text = &text[..message.bytes];
    if text == RELEASED {
        return Ok(Received::Released);
    }
    let mut descriptors = descriptors.into_iter();
    let watched: Result<Watched, _> = json::from_slice(text);
    match (descriptors.next(), descriptors.next(), watched) {
        (Some(own), Some(parent), Ok(Watched { name, marks, is_whole })) => {
            let folder = Folder::of_descriptors(parent, own, &name).with_marks(marks);
            let journal = descriptors.next().map(Journal::of);
            Ok(Received::Place(Place { folder, journal, is_whole, quiet: 0 }))
        }
        _ => Ok(Received::End),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
        path::Path,
    };

    use super::*;

    /// A guard as a thread, with the ranks' end of its socket.
    fn guarded(folder: &Folder, before_the_end: impl FnOnce(), is_released: bool) {
        let (socket, input) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let child = Command::new("true").spawn().unwrap();
        let mut ranks = Guard { child, socket };
        let running = thread::spawn(move || guard_for(&input, 1));
        ranks.watch(folder).unwrap();
        before_the_end();
        if is_released {
            ranks.release();
        } else {
            let Guard { mut child, socket } = ranks;
            drop(socket);
            child.wait().unwrap();
        }
        running.join().unwrap();
    }

    const DIRECTORIES: [&str; 3] = ["tree.0", "tree.0/level.1", "tree.0/level.1/directory.0.7.renamed"];
    const FILES: [&str; 6] = [
        "data",
        "data.1",
        "data.0.00000003",
        "probe.0",
        "tree.0/level.1/file.2.11",
        "tree.0/file.0.1.renamed",
    ];

    /// What a run makes, with these modes.
    fn filled(folder: &Path, modes: [u32; 2]) {
        let set = |name: &str, mode| {
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for name in DIRECTORIES {
            fs::create_dir(folder.join(name)).unwrap();
        }
        for name in FILES {
            fs::write(folder.join(name), "x").unwrap();
            set(name, modes[0]);
        }
        DIRECTORIES.iter().for_each(|name| set(name, modes[1]));
    }

    fn fill(folder: &Path) {
        filled(folder, [0o1700; 2]);
    }

    #[test]
    fn files_of_a_test_are_removed_and_those_of_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test\n1");
        let folder = Folder::create(directory.path(), "test\n1").unwrap();
        fill(&path);
        guarded(&folder, || {}, true);
        assert!(path.join("data").exists(), "released");
        guarded(&folder, || {}, false);
        assert!(!path.exists());
        let folder = Folder::create(directory.path(), "test\n1").unwrap();
        fill(&path);
        fs::write(path.join("tree.0/thesis.tex"), "x").unwrap();
        assert!(folder.remove_all().1.is_err());
        let left: Vec<_> = fs::read_dir(path.join("tree.0")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].file_name(), "thesis.tex");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    }

    /// Each thing of a run in turn is somebody else's meanwhile: that is there afterwards, with its content, and nothing else.
    #[test]
    fn what_is_others_under_a_name_of_the_run_stays() {
        let known = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.ino(), found.mode(), fs::read_to_string(path).ok())
        };
        for (name, by) in FILES
            .iter()
            .chain(&DIRECTORIES)
            .flat_map(|name| ["file", "directory", "link", "hard link"].map(|by| (*name, by)))
        {
            let directory = tempfile::tempdir().unwrap();
            let (path, mine) = (directory.path().join("test"), directory.path().join("mine"));
            fs::write(&mine, "of others").unwrap();
            let folder = Folder::create(directory.path(), "test").unwrap();
            fill(&path);
            let place = path.join(name);
            if place.is_dir() {
                fs::remove_dir_all(&place).unwrap()
            } else {
                fs::remove_file(&place).unwrap()
            }
            match by {
                "file" => fs::write(&place, "of others").unwrap(),
                "directory" => fs::create_dir(&place).unwrap(),
                "link" => symlink(&mine, &place).unwrap(),
                _ => fs::hard_link(&mine, &place).unwrap(),
            }
            let before = known(&place);
            assert!(folder.remove_all().1.is_err(), "{name}: {by}");
            assert_eq!(known(&place), before, "{name}: {by}");
            let left = walked(&path);
            let above = place.ancestors().skip(1).take_while(|above| *above != path).count();
            assert_eq!(left, above + 1, "{name}: {by}");
            assert!(matches!(folder.leave(), Err(crate::folder::Remains::Others(_))), "{name}: {by}");
        }
    }

    fn walked(path: &Path) -> usize {
        let all = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        all.map(|entry| 1 + if entry.file_type().unwrap().is_dir() { walked(&entry.path()) } else { 0 }).sum()
    }

    /// As on file systems that keep other modes, which the run has seen.
    #[test]
    fn the_modes_of_a_file_system_are_those_that_things_have_there() {
        let directory = tempfile::tempdir().unwrap();
        let marks = Marks { file: Some(0o755), directory: Some(0o777), is_remote: false };
        let folder = Folder::create(directory.path(), "test").unwrap().with_marks(marks);
        filled(&directory.path().join("test"), [0o755, 0o777]);
        guarded(&folder, || {}, false);
        assert!(!directory.path().join("test").exists());
    }

    /// What a user may do who owns the directory: another folder, or a link, at each place of the test's own.
    #[test]
    fn only_what_was_made_is_removed_whatever_is_in_its_place_meanwhile() {
        for replaced in ["link", "folder", "files", "moved", "link inside"] {
            let directory = tempfile::tempdir().unwrap();
            let (path, victim) = (directory.path().join("test"), directory.path().join("victim"));
            fs::create_dir(&victim).unwrap();
            fill(&victim);
            let folder = Folder::create(directory.path(), "test").unwrap();
            fill(&path);
            let replace = || {
                let moved = directory.path().join("elsewhere/moved");
                fs::create_dir(directory.path().join("elsewhere")).unwrap();
                if replaced != "link inside" {
                    fs::rename(&path, &moved).unwrap();
                }
                match replaced {
                    "link" => symlink(&victim, &path).unwrap(),
                    "folder" => fs::create_dir(&path).unwrap(),
                    "files" => {
                        fs::create_dir(&path).unwrap();
                        fill(&path);
                    }
                    "moved" => {}
                    _ => {
                        fs::remove_dir_all(path.join("tree.0")).unwrap();
                        symlink(&victim, path.join("tree.0")).unwrap();
                    }
                }
            };
            guarded(&folder, replace, false);
            let count = |path: &Path| fs::read_dir(path).unwrap().count();
            assert_eq!(count(&victim), 5, "{replaced}");
            assert_eq!(count(&directory.path().join("elsewhere")), 0, "{replaced}: what was made is gone");
            let there = fs::symlink_metadata(&path).is_ok();
            assert_eq!(there, replaced != "moved", "{replaced}");
            if replaced == "link inside" {
                assert_eq!(fs::read_link(path.join("tree.0")).unwrap(), victim);
                assert_eq!(count(&path), 1);
            }
            if replaced == "files" {
                assert_eq!(count(&path), 5, "{replaced}");
            }
        }
    }
}
