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
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

use crate::folder::Folder;

/// Message of ranks that removed their files themselves: no name of a folder.
const RELEASED: &[u8] = b"/released";
/// Time that other ranks, which the launcher ends, may go on creating files.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Longest name of a folder (`NAME_MAX`).
const NAME_BYTES: usize = 255;

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
        let descriptors = [folder.own.as_fd(), folder.parent.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        sendmsg(&self.socket, &[IoSlice::new(folder.name.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
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
    let mut folders = Vec::new();
    loop {
        match received(&input) {
            Ok(Received::Folder(folder)) => folders.push(folder),
            Ok(Received::Released) => return,
            Err(Errno::INTR) => {}
            Ok(Received::End) | Err(_) => break,
        }
    }
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    loop {
        folders.retain(|folder| folder.remove_all().is_err());
        if folders.is_empty() || Instant::now() >= deadline {
            return;
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

enum Received {
    Folder(Folder),
    Released,
    End,
}

fn received(input: &impl AsFd) -> Result<Received, Errno> {
    let mut text = [0; NAME_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
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
    match (descriptors.pop(), descriptors.pop(), std::str::from_utf8(text)) {
        (Some(parent), Some(own), Ok(name)) => {
            Ok(Received::Folder(Folder::of_descriptors(parent, own, name)))
        }
        _ => Ok(Received::End),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    /// A guard as a thread, with the ranks' end of its socket.
    fn guarded(folder: &Folder, before_the_end: impl FnOnce(), is_released: bool) {
        let (socket, input) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let child = Command::new("true").spawn().unwrap();
        let mut ranks = Guard { child, socket };
        let running = thread::spawn(move || guard(&input));
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

    fn fill(folder: &Path) {
        fs::create_dir_all(folder.join("tree.0/level.1/directory.0.7.renamed")).unwrap();
        let names =
            ["data", "data.1", "data.0.00000003", "tree.0/level.1/file.2.11", "tree.0/file.0.1.renamed"];
        for name in names {
            fs::write(folder.join(name), "x").unwrap();
        }
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
        assert!(folder.remove_all().is_err());
        let left: Vec<_> = fs::read_dir(path.join("tree.0")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].file_name(), "thesis.tex");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
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
            assert_eq!(count(&victim), 4, "{replaced}");
            assert_eq!(count(&directory.path().join("elsewhere")), 0, "{replaced}: what was made is gone");
            let there = fs::symlink_metadata(&path).is_ok();
            assert_eq!(there, matches!(replaced, "link" | "folder" | "files"), "{replaced}");
            if replaced == "files" {
                assert_eq!(count(&path), 4, "{replaced}");
            }
        }
    }
}
