//! Controller part: a process that carries out file operations.

use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError};
use clearstream_schema::semantics::{SemanticsFound, SemanticsVerdict};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use super::calls::{Act, Acted, Enter, Entered, LockCall, Operation};

/// Between two polls of a state that changes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Why a check has no verdict of its own.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    /// A system call of the check failed.
    #[error("{call}: {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// A process of the check is gone, or did not reply in time.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A precondition failed.
    #[error("{0}")]
    Precondition(String),
}

pub(super) type Checked<T> = Result<T, CheckError>;

/// An open file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileNumber(u32);

/// A process with the folder open.
#[derive(Debug)]
pub(super) struct Actor<'a> {
    peer: Peer,
    stop: &'a AtomicBool,
    /// Its process, on its host.
    pub(super) process: u32,
    /// File system of its directory.
    pub(super) file_system: String,
}

impl<'a> Actor<'a> {
    /// Opens or creates the folder. A client may keep for a while that it was not there, so opening is repeated
    /// for `wait`.
    pub(super) fn enter(
        mut peer: Peer,
        directory: &str,
        folder: &str,
        create: bool,
        wait: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, PeerError> {
        let call = Enter { directory: directory.to_owned(), folder: folder.to_owned(), create };
        let begun = Instant::now();
        let Entered { file_system, process } = loop {
            match peer.call_unless(&call, stop) {
                Err(PeerError::Refused { .. }) if !create && begun.elapsed() < wait => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => break result?,
            }
        };
        Ok(Self { peer, stop, process, file_system })
    }

    /// The peer, to end its session.
    pub(super) fn into_peer(self) -> Peer {
        self.peer
    }

    /// Carries out an operation that may fail.
    pub(super) fn attempt(&mut self, operation: Operation) -> Checked<Result<Acted, Errno>> {
        let acted = self.peer.call_unless(&Act { operation }, self.stop)?;
        Ok(match acted.errno {
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Ok(acted),
        })
    }

    /// Carries out an operation that the check needs.
    pub(super) fn act(&mut self, call: &'static str, operation: Operation) -> Checked<Acted> {
        self.attempt(operation)?.map_err(|errno| CheckError::System { call, errno })
    }

    pub(super) fn open(&mut self, name: &str) -> Checked<FileNumber> {
        let acted = self.act("open", Operation::Open { name: name.to_owned() })?;
        Ok(FileNumber(u32::try_from(acted.number).unwrap_or(0)))
    }

    /// Opens a file that another process created, as soon as it is visible.
    pub(super) fn open_existing(&mut self, name: &str, wait: Duration) -> Checked<FileNumber> {
        let begun = Instant::now();
        loop {
            match self.attempt(Operation::OpenExisting { name: name.to_owned() })? {
                Ok(acted) => return Ok(FileNumber(u32::try_from(acted.number).unwrap_or(0))),
                Err(Errno::NOENT) if begun.elapsed() < wait => thread::sleep(POLL_INTERVAL),
                Err(errno) => return Err(CheckError::System { call: "open", errno }),
            }
        }
    }

    pub(super) fn close(&mut self, file: FileNumber) -> Checked<Acted> {
        self.act("close", Operation::Close { file: file.0 })
    }

    pub(super) fn write(&mut self, file: FileNumber, bytes: &[u8]) -> Checked<Acted> {
        self.act("write", Operation::Write { file: file.0, offset: 0, bytes: bytes.to_vec() })
    }

    pub(super) fn read(&mut self, file: FileNumber, length: usize) -> Checked<Vec<u8>> {
        Ok(self.act("read", Operation::Read { file: file.0, offset: 0, length })?.bytes)
    }

    /// Reads from the beginning where that may fail.
    pub(super) fn attempt_read(
        &mut self,
        file: FileNumber,
        length: usize,
    ) -> Checked<Result<Vec<u8>, Errno>> {
        let acted = self.attempt(Operation::Read { file: file.0, offset: 0, length })?;
        Ok(acted.map(|acted| acted.bytes))
    }

    pub(super) fn read_name(&mut self, name: &str) -> Checked<Vec<u8>> {
        let operation = Operation::ReadName { name: name.to_owned(), length: 1 << 20 };
        Ok(self.act("read", operation)?.bytes)
    }

    pub(super) fn store(&mut self, name: &str, bytes: &[u8]) -> Checked<Acted> {
        self.act("write", Operation::Store { name: name.to_owned(), bytes: bytes.to_vec() })
    }

    pub(super) fn remove(&mut self, name: &str) -> Checked<Acted> {
        self.act("unlink", Operation::Remove { name: name.to_owned() })
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Checked<Acted> {
        self.act("rename", Operation::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    /// Size of a file by its name; none where it has no such name.
    pub(super) fn size(&mut self, name: &str) -> Checked<Option<i64>> {
        match self.attempt(Operation::Size { name: name.to_owned() })? {
            Ok(acted) => Ok(Some(acted.number)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(CheckError::System { call: "stat", errno }),
        }
    }

    pub(super) fn links(&mut self, file: FileNumber) -> Checked<i64> {
        Ok(self.act("fstat", Operation::Links { file: file.0 })?.number)
    }

    pub(super) fn list(&mut self, prefix: &str) -> Checked<i64> {
        Ok(self.act("readdir", Operation::List { prefix: prefix.to_owned() })?.number)
    }

    pub(super) fn map(&mut self, file: FileNumber) -> Checked<Acted> {
        self.act("mmap", Operation::Map { file: file.0 })
    }

    pub(super) fn map_store(&mut self, file: FileNumber, bytes: &[u8]) -> Checked<Acted> {
        self.act("mmap", Operation::MapStore { file: file.0, offset: 0, bytes: bytes.to_vec() })
    }

    pub(super) fn map_load(&mut self, file: FileNumber, length: usize) -> Checked<Vec<u8>> {
        Ok(self.act("mmap", Operation::MapLoad { file: file.0, offset: 0, length })?.bytes)
    }

    /// Sets an exclusive lock of bytes 0 to 9; whether it was granted.
    pub(super) fn lock(&mut self, file: FileNumber, call: LockCall) -> Checked<bool> {
        self.lock_range(file, call, true, 0, 10)
    }

    /// Sets a lock; whether it was granted.
    pub(super) fn lock_range(
        &mut self,
        file: FileNumber,
        call: LockCall,
        exclusive: bool,
        start: i64,
        end: i64,
    ) -> Checked<bool> {
        match self.attempt(Operation::Lock { file: file.0, call, exclusive, start, end })? {
            Ok(_) => Ok(true),
            // POSIX.1 allows either for a lock in the way of another one.
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(CheckError::System { call: name(call), errno }),
        }
    }

    /// Sets an exclusive lock that nothing is in the way of.
    pub(super) fn must_lock(&mut self, file: FileNumber, call: LockCall) -> Checked<()> {
        if self.lock(file, call)? {
            return Ok(());
        }
        Err(CheckError::Precondition("the first lock is refused".to_owned()))
    }

    pub(super) fn lock_holder(&mut self, file: FileNumber) -> Checked<i64> {
        Ok(self.act("fcntl(F_GETLK)", Operation::LockHolder { file: file.0, start: 5 })?.number)
    }

    pub(super) fn lock_wait(
        &mut self,
        file: FileNumber,
        start: i64,
        timeout: Duration,
    ) -> Checked<Result<bool, Errno>> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let acted = self.attempt(Operation::LockWait { file: file.0, start, timeout_ms })?;
        Ok(acted.map(|acted| acted.number == 1))
    }

    /// Ends the process, a child of this one that nobody has waited for yet, by SIGKILL.
    pub(super) fn kill(self) {
        if let Some(process) = i32::try_from(self.process).ok().and_then(Pid::from_raw) {
            // It fails when the process has ended by itself.
            let _ = kill_process(process, Signal::KILL);
        }
    }

    pub(super) fn reset(&mut self) -> Checked<()> {
        self.attempt(Operation::Reset).map(drop)
    }
}

fn name(call: LockCall) -> &'static str {
    match call {
        LockCall::Flock => "flock",
        LockCall::Process => "fcntl(F_SETLK)",
        LockCall::Description => "fcntl(F_OFD_SETLK)",
    }
}

/// Polls until a condition holds, at most for `wait`; the time it took. The first poll is at once, and without
/// a time when it holds then.
pub(super) fn poll(
    wait: Duration,
    mut holds: impl FnMut() -> Checked<bool>,
) -> Checked<Result<Option<Duration>, Duration>> {
    let begun = Instant::now();
    if holds()? {
        return Ok(Ok(None));
    }
    loop {
        if begun.elapsed() >= wait {
            return Ok(Err(wait));
        }
        thread::sleep(POLL_INTERVAL);
        if holds()? {
            return Ok(Ok(Some(begun.elapsed())));
        }
    }
}

/// Verdict on a change that is to be visible at once.
pub(super) fn visible(wait: Duration, holds: impl FnMut() -> Checked<bool>) -> Checked<SemanticsFound> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(match poll(wait, holds)? {
        Ok(None) => SemanticsFound::new(SemanticsVerdict::Yes),
        Ok(Some(time)) => {
            let detail = format!("stale for {} ms", time.as_millis());
            let found = SemanticsFound::new(SemanticsVerdict::No).with(detail);
            SemanticsFound { stale_ns: Some(nanoseconds(time)), ..found }
        }
        Err(wait) => {
            let detail = format!("still stale after {} ms", wait.as_millis());
            let found = SemanticsFound::new(SemanticsVerdict::No).with(detail);
            SemanticsFound { stale_ns: Some(nanoseconds(wait)), ..found }
        }
    })
}
