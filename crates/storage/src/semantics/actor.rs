//! Controller part: processes that carry out file operations, and the agents that have them.

use std::{
    cell::RefCell,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError};
use clearstream_schema::{
    notice::Notice,
    semantics::{
        SemanticsFound,
        SemanticsVerdict::{Inconclusive, Late, No, Yes},
    },
};
use rustix::io::Errno;

use super::{
    calls::{Act, Acted, Enter, Entered, LockCall, LockChange, Operation, Order, attribute},
    faults::Fault,
    operations::SHARED,
};

/// Between two polls of a state that changes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// After this an operation is not waited for any longer: clients of file systems repeat requests for that time.
const HANGS: Duration = Duration::from_secs(30);
/// Signal of an access to a mapping that the file system does not serve (signal(7)).
const SIGBUS: i32 = 7;

/// Why a check ends before its last step.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum CheckError {
    /// A system call of the check failed.
    #[error(transparent)]
    System(#[from] Fault),
    /// What the step before needs is itself not as the standard has it.
    #[error("{0}")]
    Deviates(String),
    /// A process of the check ended.
    #[error("the process of the check was ended by signal {signal}")]
    Ended {
        /// The signal; 0 where it ended by itself.
        signal: i32,
    },
    /// A system call did not return.
    #[error("{call} does not return within {} s", HANGS.as_secs())]
    Hangs {
        /// The call.
        call: &'static str,
    },
    /// An agent is gone, or did not reply in time.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A precondition failed, of which another check says whether the standard has it.
    #[error("{0}")]
    Precondition(String),
}

impl CheckError {
    /// Verdict of a check that ends so.
    pub(super) fn found(&self) -> SemanticsFound {
        match self {
            Self::System(fault) => fault.found(),
            Self::Deviates(_) | Self::Hangs { .. } => SemanticsFound::new(No).with(self.to_string()),
            Self::Ended { signal: SIGBUS } => {
                SemanticsFound::new(No).with("the process gets SIGBUS at an access to the mapping")
            }
            Self::Ended { .. } | Self::Peer(_) | Self::Precondition(_) => {
                SemanticsFound::new(Inconclusive).with(self.to_string())
            }
        }
    }
}

pub(super) type Checked<T> = Result<T, CheckError>;

/// An open file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileNumber(pub(super) u32);

/// An agent with the folder open.
#[derive(Debug)]
pub(super) struct Agent<'a> {
    peer: RefCell<Peer>,
    stop: &'a AtomicBool,
    /// File system of its directory.
    pub(super) file_system: String,
    /// Folders of earlier runs that could not be removed.
    pub(super) left_over: Option<Notice>,
    wait: Duration,
}

impl<'a> Agent<'a> {
    /// Opens or creates the folder. A client may keep for a while that it was not there, so opening is repeated
    /// for `wait`.
    pub(super) fn enter(
        mut peer: Peer,
        call: &Enter,
        wait: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, PeerError> {
        let begun = Instant::now();
        let entered = loop {
            match peer.call_unless(call, stop) {
                Err(PeerError::Refused { .. }) if !call.create && begun.elapsed() < wait => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => break result?,
            }
        };
        let Entered { file_system, left_over } = entered;
        Ok(Self { peer: RefCell::new(peer), stop, file_system, left_over, wait })
    }

    /// The peer, to end its session.
    pub(super) fn into_peer(self) -> Peer {
        self.peer.into_inner()
    }

    /// Starts a process.
    pub(super) fn start(&self) -> Checked<Actor<'_>> {
        let begun = Instant::now();
        loop {
            let started = self.call(0, Order::Start)?;
            let id = started.values.first().and_then(|id| u32::try_from(*id).ok()).unwrap_or(0);
            let actor =
                Actor { agent: self, number: u32::try_from(started.number).unwrap_or(0), process: id };
            match actor.result("open the folder", started)? {
                Ok(_) => return Ok(actor),
                // As above.
                Err(Errno::NOENT) if begun.elapsed() < self.wait => thread::sleep(POLL_INTERVAL),
                Err(errno) => return Err(Fault { call: "open of the folder", errno }.into()),
            }
        }
    }

    fn call(&self, process: u32, order: Order) -> Result<Acted, PeerError> {
        self.peer.borrow_mut().call_unless(&Act { process, order }, self.stop)
    }
}

/// A process with the folder open; dropping it ends it by SIGKILL.
#[derive(Debug)]
pub(super) struct Actor<'a> {
    agent: &'a Agent<'a>,
    number: u32,
    /// Its ID on its host.
    pub(super) process: u32,
}

impl Drop for Actor<'_> {
    fn drop(&mut self) {
        // An agent that is gone has ended it.
        let _ = self.agent.call(self.number, Order::Kill);
    }
}

impl Actor<'_> {
    /// File system of its mount.
    pub(super) fn file_system(&self) -> &str {
        &self.agent.file_system
    }

    /// Carries out an operation that may fail.
    pub(super) fn attempt(
        &mut self,
        call: &'static str,
        operation: Operation,
    ) -> Checked<Result<Acted, Errno>> {
        let acted = self.agent.call(self.number, Order::Do(operation))?;
        self.result(call, acted)
    }

    /// Waits for the result of an operation.
    fn result(&self, call: &'static str, mut acted: Acted) -> Checked<Result<Acted, Errno>> {
        let begun = Instant::now();
        while acted.pending {
            if begun.elapsed() > HANGS {
                return Err(CheckError::Hangs { call });
            }
            acted = self.agent.call(self.number, Order::Await { timeout_ms: 1000 })?;
        }
        finished(acted)
    }

    /// Hands over an operation; [`Self::ended`] or [`Self::end`] has its result.
    pub(super) fn begin(&mut self, operation: Operation) -> Checked<()> {
        self.agent.call(self.number, Order::Begin(operation))?;
        Ok(())
    }

    /// The result of the operation that was begun, when it ends within this time.
    pub(super) fn ended(&mut self, within: Duration) -> Checked<Option<Result<Acted, Errno>>> {
        let begun = Instant::now();
        loop {
            let left = within.saturating_sub(begun.elapsed());
            let timeout_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            let acted = self.agent.call(self.number, Order::Await { timeout_ms })?;
            if !acted.pending {
                return finished(acted).map(Some);
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// The result of the operation that was begun and has to succeed.
    pub(super) fn end(&mut self, call: &'static str) -> Checked<Acted> {
        let acted = self.agent.call(self.number, Order::Await { timeout_ms: 1000 })?;
        self.result(call, acted)?.map_err(|errno| Fault { call, errno }.into())
    }

    /// Sends SIGALRM, which ends a call that waits.
    pub(super) fn interrupt(&mut self) -> Checked<()> {
        self.agent.call(self.number, Order::Interrupt)?;
        Ok(())
    }

    /// Carries out an operation that the check needs.
    pub(super) fn act(&mut self, call: &'static str, operation: Operation) -> Checked<Acted> {
        self.attempt(call, operation)?.map_err(|errno| Fault { call, errno }.into())
    }

    pub(super) fn open(&mut self, name: &str) -> Checked<FileNumber> {
        let acted = self.act("open(O_CREAT)", Operation::Open { name: name.to_owned() })?;
        Ok(FileNumber(u32::try_from(acted.number).unwrap_or(0)))
    }

    /// Opens a file that another process created, as soon as it is visible.
    pub(super) fn open_existing(&mut self, name: &str, wait: Duration) -> Checked<FileNumber> {
        let begun = Instant::now();
        let operation = Operation::OpenExisting { name: name.to_owned(), writing: true };
        loop {
            match self.attempt("open", operation.clone())? {
                Ok(acted) => return Ok(FileNumber(u32::try_from(acted.number).unwrap_or(0))),
                Err(Errno::NOENT) if begun.elapsed() < wait => thread::sleep(POLL_INTERVAL),
                Err(errno) => return Err(Fault { call: "open", errno }.into()),
            }
        }
    }

    pub(super) fn duplicate(&mut self, file: FileNumber) -> Checked<FileNumber> {
        let acted = self.act("dup", Operation::Duplicate { file: file.0 })?;
        Ok(FileNumber(u32::try_from(acted.number).unwrap_or(0)))
    }

    pub(super) fn close(&mut self, file: FileNumber) -> Checked<Acted> {
        self.act("close", Operation::Close { file: file.0 })
    }

    pub(super) fn write(&mut self, file: FileNumber, bytes: &[u8]) -> Checked<Acted> {
        self.act("pwrite", Operation::Write { file: file.0, offset: 0, bytes: bytes.to_vec() })
    }

    pub(super) fn read(&mut self, file: FileNumber, length: usize) -> Checked<Vec<u8>> {
        Ok(self.act("pread", Operation::Read { file: file.0, offset: 0, length })?.bytes)
    }

    /// Reads from the beginning where that may fail.
    pub(super) fn attempt_read(
        &mut self,
        file: FileNumber,
        length: usize,
    ) -> Checked<Result<Vec<u8>, Errno>> {
        let acted = self.attempt("pread", Operation::Read { file: file.0, offset: 0, length })?;
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

    /// An attribute of a file by its name; none where it has no such name.
    pub(super) fn attribute(&mut self, name: &str, place: usize) -> Checked<Option<i64>> {
        match self.attempt("stat", Operation::Attributes { name: name.to_owned() })? {
            Ok(acted) => Ok(acted.values.get(place).copied()),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Fault { call: "stat", errno }.into()),
        }
    }

    pub(super) fn size(&mut self, name: &str) -> Checked<Option<i64>> {
        self.attribute(name, attribute::SIZE)
    }

    pub(super) fn links(&mut self, file: FileNumber) -> Checked<Result<i64, Errno>> {
        let acted = self.attempt("fstat", Operation::AttributesOf { file: file.0 })?;
        Ok(acted.map(|acted| acted.values.get(attribute::LINKS).copied().unwrap_or(0)))
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

    pub(super) fn map_synchronize(&mut self, file: FileNumber) -> Checked<Acted> {
        self.act("msync", Operation::MapSynchronize { file: file.0 })
    }

    /// Sets an exclusive lock of bytes 0 to 9; whether it was granted.
    pub(super) fn lock(&mut self, file: FileNumber, call: LockCall) -> Checked<bool> {
        self.change_lock(file, call, LockChange::Exclusive, 0, 10)
    }

    /// Sets a lock, or clears it; whether it was granted.
    pub(super) fn change_lock(
        &mut self,
        file: FileNumber,
        call: LockCall,
        change: LockChange,
        start: i64,
        end: i64,
    ) -> Checked<bool> {
        let operation = Operation::Lock { file: file.0, call, change, start, end, wait: false };
        granted(call, self.attempt(name(call), operation)?)
    }

    /// As [`Self::change_lock`], by the child that shares the description.
    pub(super) fn lock_by_child(&mut self, call: LockCall, change: LockChange) -> Checked<bool> {
        let operation = Operation::Lock { file: SHARED, call, change, start: 0, end: 10, wait: false };
        let operation = Operation::Child { operation: Box::new(operation) };
        granted(call, self.attempt(name(call), operation)?)
    }

    /// Sets an exclusive lock that nothing is in the way of.
    pub(super) fn must_lock(&mut self, file: FileNumber, call: LockCall) -> Checked<()> {
        if self.lock(file, call)? {
            return Ok(());
        }
        Err(CheckError::Deviates(format!("{} refuses a lock that nobody holds", name(call))))
    }
}

fn finished(acted: Acted) -> Checked<Result<Acted, Errno>> {
    match (acted.ended_by, acted.errno) {
        (Some(signal), _) => Err(CheckError::Ended { signal }),
        (None, Some(errno)) => Ok(Err(Errno::from_raw_os_error(errno))),
        (None, None) => Ok(Ok(acted)),
    }
}

/// POSIX.1 allows either error for a lock in the way of another one.
fn granted(call: LockCall, result: Result<Acted, Errno>) -> Checked<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(Fault { call: name(call), errno }.into()),
    }
}

/// The call as errors name it.
pub(super) fn name(call: LockCall) -> &'static str {
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
    Ok(in_time(poll(wait, holds)?))
}

/// Verdict on what [`poll`] found.
pub(super) fn in_time(polled: Result<Option<Duration>, Duration>) -> SemanticsFound {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (verdict, time) = match polled {
        Ok(None) => return SemanticsFound::new(Yes),
        Ok(Some(time)) => (Late, time),
        Err(wait) => (No, wait),
    };
    let found = SemanticsFound { stale_ns: Some(nanoseconds(time)), ..SemanticsFound::new(verdict) };
    if verdict == No { found.with(format!("not within {} ms", time.as_millis())) } else { found }
}
