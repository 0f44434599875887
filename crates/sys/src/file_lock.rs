//! Byte-range locks, fcntl(2): of a process (POSIX.1 `F_SETLK`), and of an open file description (Linux and
//! POSIX.1-2024 `F_OFD_SETLK`). rustix has the former without `F_GETLK`, and not the latter.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

/// Owner of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOwner {
    /// The process: released when it closes any descriptor of the file.
    Process,
    /// The open file description: released when its last descriptor is closed.
    Description,
}

/// Kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// `F_RDLCK`
    Shared,
    /// `F_WRLCK`
    Exclusive,
    /// `F_UNLCK`
    Unlock,
}

/// Bytes of a file, from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: i64,
    /// Bytes; 0 is to the end of the file, however far it grows; a negative number is that many bytes before `start`.
    pub length: i64,
}

/// A lock that excludes the tested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHolder {
    /// Its kind.
    pub kind: LockKind,
    /// Its process; -1 for a lock of a description.
    pub process: i32,
    /// Its bytes.
    pub range: LockRange,
}

/// Sets or clears a lock without waiting.
///
/// # Errors
/// `EAGAIN` or `EACCES` when another owner has a lock in its way, else those of fcntl(2).
pub fn set(file: BorrowedFd<'_>, owner: LockOwner, kind: LockKind, range: LockRange) -> io::Result<()> {
    let command = match owner {
        LockOwner::Process => libc::F_SETLK,
        LockOwner::Description => libc::F_OFD_SETLK,
    };
    call(file, command, &mut request(kind, range))
}

/// Sets a lock, and waits for it.
///
/// # Errors
/// `EDEADLK` when waiting would never end, `EINTR` when a signal ends it, else those of fcntl(2).
pub fn wait(file: BorrowedFd<'_>, owner: LockOwner, kind: LockKind, range: LockRange) -> io::Result<()> {
    let command = match owner {
        LockOwner::Process => libc::F_SETLKW,
        LockOwner::Description => libc::F_OFD_SETLKW,
    };
    call(file, command, &mut request(kind, range))
}

/// The holder of a lock that excludes this one; none when it could be set.
///
/// # Errors
/// Those of fcntl(2).
pub fn test(
    file: BorrowedFd<'_>,
    owner: LockOwner,
    kind: LockKind,
    range: LockRange,
) -> io::Result<Option<LockHolder>> {
    let command = match owner {
        LockOwner::Process => libc::F_GETLK,
        LockOwner::Description => libc::F_OFD_GETLK,
    };
    let mut lock = request(kind, range);
    call(file, command, &mut lock)?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let range = LockRange { start: lock.l_start, length: lock.l_len };
    let kind = match i32::from(lock.l_type) {
        libc::F_RDLCK => LockKind::Shared,
        _ => LockKind::Exclusive,
    };
    Ok(Some(LockHolder { kind, process: lock.l_pid, range }))
}

fn request(kind: LockKind, range: LockRange) -> libc::flock {
    let kind = match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    // SAFETY: all bytes zero is a value of this structure of integers, and l_pid has to be 0 for F_OFD_*.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = range.start;
    lock.l_len = range.length;
    lock
}

fn call(file: BorrowedFd<'_>, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open while borrowed, and the kernel reads and writes one `flock` only.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn locks_of_descriptions_exclude_each_other_within_a_process_and_locks_of_the_process_do_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file-lock");
        let (one, two) = (std::fs::File::create(&path).unwrap(), std::fs::File::create(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let range = LockRange { start: 10, length: 5 };
        for file in [&one, &two] {
            set(file.as_fd(), LockOwner::Process, LockKind::Exclusive, range).unwrap();
        }
        set(one.as_fd(), LockOwner::Process, LockKind::Unlock, range).unwrap();
        set(one.as_fd(), LockOwner::Description, LockKind::Exclusive, range).unwrap();
        let refused = set(two.as_fd(), LockOwner::Description, LockKind::Exclusive, range).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let holder = test(two.as_fd(), LockOwner::Description, LockKind::Exclusive, range).unwrap();
        assert_eq!(holder, Some(LockHolder { kind: LockKind::Exclusive, process: -1, range }));
        let beside = LockRange { start: 15, length: 0 };
        set(two.as_fd(), LockOwner::Description, LockKind::Exclusive, beside).unwrap();
    }
}
