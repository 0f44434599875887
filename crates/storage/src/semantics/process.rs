//! Processes that carry out operations, seen by the one that starts them. Each has one thread: locks of POSIX belong to
//! processes, and clients of file systems that tell them apart by thread name the right owner only then, as for users'
//! programs. What ends such a process, or holds it, leaves the others alone.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::json;
use rustix::process::{Pid, Signal, kill_process};

use super::calls::{Acted, Operation};
use crate::journal::Journal;

/// Maximum length of a message: bytes of the longest read, written as numbers.
pub(super) const MAX_MESSAGE: usize = 8 << 20;
/// Time for a process to end after SIGKILL; one that a file system holds ends when that responds.
const END_TIME: Duration = Duration::from_millis(500);

/// A file whose description a process shares with the one that starts it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: OwnedFd,
    /// The descriptor stays open here as long as there is the process.
    pub(super) keeps: bool,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Its standard error is a descriptor of this process, too: closing it would release locks that this process has.
    _shared: Option<Command>,
    socket: UnixStream,
    /// Of its next message.
    received: Vec<u8>,
}

impl Process {
    /// Starts it; `command` is one that calls [`super::serve_operations`]. Its standard output is the journal, and its standard
    /// error, with a file, that one's description.
    pub(super) fn start(mut command: Command, journal: Journal, shared: Option<Shared>) -> io::Result<Self> {
        let (socket, other) = UnixStream::pair()?;
        command.stdin(Stdio::from(OwnedFd::from(other))).stdout(Stdio::from(journal.into_descriptor()));
        let keeps = shared.as_ref().is_some_and(|shared| shared.keeps);
        command.stderr(shared.map_or_else(Stdio::null, |shared| Stdio::from(shared.file)));
        let child = command.spawn()?;
        // The other end of the socket: it is to be closed with the process.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self { child, _shared: keeps.then_some(command), socket, received: Vec::new() })
    }

    /// Its process ID.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Hands an operation to it.
    pub(super) fn begin(&mut self, operation: &Operation) {
        let mut message = json::to_vec(operation).unwrap_or_default();
        message.push(b'\n');
        // Where it has ended, waiting for the result says so.
        let _ = self.socket.write_all(&message);
    }

    /// Waits for the result of the operation.
    pub(super) fn wait(&mut self, timeout: Duration) -> Acted {
        let deadline = Instant::now() + timeout;
        let mut part = [0; 64 << 10];
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return json::from_slice(&line).unwrap_or_else(|_| self.ended());
            }
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let read = self.socket.set_read_timeout(Some(left)).and_then(|()| self.socket.read(&mut part));
            match read {
                Ok(count @ 1..) if self.received.len() + count <= MAX_MESSAGE => {
                    self.received.extend_from_slice(&part[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Acted { pending: true, ..Acted::default() };
                    }
                }
                _ => return self.ended(),
            }
        }
    }

    /// Carries out an operation, at most for this time.
    pub(super) fn act(&mut self, operation: &Operation, timeout: Duration) -> Acted {
        self.begin(operation);
        self.wait(timeout)
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It fails when the process has ended; nobody has waited for it yet, so that the ID is its own.
            let _ = kill_process(id, signal);
        }
    }

    /// It has closed its side.
    fn ended(&mut self) -> Acted {
        self.signal(Signal::KILL);
        let status = self.reaped();
        let signal = status.and_then(|status| status.signal()).unwrap_or(0);
        Acted { ended_by: Some(signal), ..Acted::default() }
    }

    fn reaped(&mut self) -> Option<std::process::ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < END_TIME {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        None
    }
}

impl Process {
    /// Ends it.
    pub(super) fn end(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.reaped();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
