//! Programs that are run to their end, such as `nft` or `getent`: both outputs are read at once, and a program that
//! writes too much, does not end in time, or is running when a person asks to stop is killed and reaped.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use clearstream_schema::{control::FailureKind, failure::Classified};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

use crate::{
    interruption,
    process::{bind_child_to_parent, end_with_parent},
};

/// Time that a program has which asks this host something.
const WITHIN: Duration = Duration::from_secs(10);
/// What a program may write to each of its outputs.
const OUTPUT_BYTES: usize = 4 << 20;
/// Bytes read and written at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum wait for a killed program. One in an uninterruptible system call ends when the kernel gives that up.
const KILLED_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of looking whether it has ended, where the kernel has no descriptors of processes (before 5.3).
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Why a program has no result.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It does not start.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// It ran longer than it may, and was killed.
    #[error("{program} did not end within {} s and was killed", .after.as_secs_f64())]
    Silent {
        /// The program.
        program: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// It wrote more than it may, and was killed.
    #[error("{program} wrote more than {limit_bytes} bytes and was killed")]
    Talkative {
        /// The program.
        program: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// This process was asked to stop, and it was killed.
    #[error("{program} was ended: interrupted")]
    Interrupted {
        /// The program.
        program: String,
    },
    /// What it is given cannot be read.
    #[error("what {program} is given cannot be read: {source}")]
    Input {
        /// The program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// Its pipes or its end cannot be waited for.
    #[error("{program} cannot be waited for: {source}")]
    Lost {
        /// The program.
        program: String,
        /// Cause.
        source: io::Error,
    },
}

impl ProgramError {
    /// Whether the program is not on this host.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Start { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// It is of this host, which lacks what was needed, never a fault of ours.
impl Classified for ProgramError {
    fn failure_kind(&self) -> FailureKind {
        FailureKind::Unsupported
    }
}

impl From<ProgramError> for io::Error {
    fn from(error: ProgramError) -> Self {
        let kind = match &error {
            ProgramError::Start { source, .. }
            | ProgramError::Input { source, .. }
            | ProgramError::Lost { source, .. } => source.kind(),
            ProgramError::Silent { .. } => io::ErrorKind::TimedOut,
            ProgramError::Talkative { .. } => io::ErrorKind::FileTooLarge,
            // Not `Interrupted`, which loops take for EINTR.
            ProgramError::Interrupted { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A program to be run to its end. By itself it is in a process group of its own, so that what it started is killed
/// with it.
pub struct Program<'a> {
    command: Command,
    input: Option<Box<dyn Read + 'a>>,
    within: Duration,
    output_bytes: usize,
    on_terminal: bool,
    stops: Stops,
    reads_stdout: bool,
}

/// When a request to stop ends a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stops {
    AtOnce,
    AfterWrapUp,
    Never,
}

/// What a running program did so far, for [`Program::run_watched`].
pub struct Running<'a> {
    name: String,
    child: Child,
    /// Readable when it has ended.
    ended: Option<OwnedFd>,
    started: Instant,
    input: Option<Box<dyn Read + 'a>>,
    unwritten: Vec<u8>,
    written: u64,
    outputs: [Stream; 2],
    kills_group: bool,
}

/// An output of a program.
struct Stream {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

/// Called at intervals while a program runs; an error kills it and is returned.
pub type OnRunning<'a, 'input> = &'a mut dyn FnMut(&Running<'input>) -> Result<(), ProgramError>;

impl<'a> Program<'a> {
    /// A program, by name or path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self::of(Command::new(program))
    }

    /// A command that was made elsewhere. Its standard streams are set here.
    pub fn of(command: Command) -> Self {
        Self {
            command,
            input: None,
            within: WITHIN,
            output_bytes: OUTPUT_BYTES,
            on_terminal: false,
            stops: Stops::AtOnce,
            reads_stdout: true,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Changes the command, as for entering the namespaces of another host.
    ///
    /// # Errors
    /// That of `change`.
    pub fn prepared<E>(mut self, change: impl FnOnce(Command) -> Result<Command, E>) -> Result<Self, E> {
        self.command = change(self.command)?;
        Ok(self)
    }

    /// Its standard input, which is empty otherwise.
    #[must_use]
    pub fn input(mut self, input: impl Read + 'a) -> Self {
        self.input = Some(Box::new(input));
        self
    }

    /// The time that it has, other than `WITHIN`.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// It may ask a person on the terminal, as ssh does for a password: it stays in the foreground's process group,
    /// and ignores the signals of the terminal, which this process obeys for it.
    #[must_use]
    pub fn on_terminal(mut self) -> Self {
        self.on_terminal = true;
        self
    }

    /// It changes or restores something: a request to stop lets it end by itself, within its time.
    #[must_use]
    pub fn finishes(mut self) -> Self {
        self.stops = Stops::Never;
        self
    }

    /// It may be a part of wrapping up: a request to stop leaves it the time for that.
    #[must_use]
    pub fn wraps_up(mut self) -> Self {
        self.stops = Stops::AfterWrapUp;
        self
    }

    /// What it writes to its standard output is discarded by the kernel.
    #[must_use]
    pub fn without_stdout(mut self) -> Self {
        self.reads_stdout = false;
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// Without an end: see [`ProgramError`]. The exit status is the caller's to judge.
    pub fn run(self) -> Result<Output, ProgramError> {
        self.run_watched(&mut |_| Ok(()))
    }

    /// As [`Self::run`], with a look at what it did so far every now and then.
    ///
    /// # Errors
    /// As [`Self::run`], and those of `watch`.
    pub fn run_watched(self, watch: OnRunning<'_, 'a>) -> Result<Output, ProgramError> {
        let (within, output_bytes, stops) = (self.within, self.output_bytes, self.stops);
        let mut running = self.start()?;
        loop {
            running.check(within, output_bytes, stops)?;
            watch(&running)?;
            if let Some(status) = running.step(within)? {
                let [stdout, stderr] = &mut running.outputs;
                return Ok(Output {
                    status,
                    stdout: std::mem::take(&mut stdout.bytes),
                    stderr: std::mem::take(&mut stderr.bytes),
                });
            }
        }
    }

    fn start(mut self) -> Result<Running<'a>, ProgramError> {
        let name = Path::new(self.command.get_program())
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        let stdout = if self.reads_stdout { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        if self.on_terminal {
            bind_child_to_parent(&mut self.command);
        } else {
            self.command.process_group(0);
            end_with_parent(&mut self.command);
        }
        let started = Instant::now();
        let spawned = self.command.spawn();
        let mut child = spawned.map_err(|source| ProgramError::Start { program: name.clone(), source })?;
        let stdout = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stderr = child.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let running = Running {
            name,
            ended: pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok(),
            child,
            started,
            input: self.input,
            unwritten: Vec::new(),
            written: 0,
            outputs: [Stream::new(stdout), Stream::new(stderr)],
            kills_group: !self.on_terminal,
        };
        running.make_pipes_non_blocking().map_err(|source| running.lost(source))?;
        Ok(running)
    }
}

impl Stream {
    fn new(pipe: Option<File>) -> Self {
        Self { pipe, bytes: Vec::new() }
    }

    /// Reads what is there, up to a byte more than `limit`.
    fn read(&mut self, limit: usize) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Some(pipe) = &mut self.pipe
            && self.bytes.len() <= limit
        {
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Running<'_> {
    /// Its name, for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Bytes of the input that it has taken.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that it wrote to both outputs.
    pub fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(|output| output.bytes.len() as u64).sum()
    }

    /// What it wrote to its standard error so far.
    pub fn stderr(&self) -> &[u8] {
        &self.outputs[1].bytes
    }

    fn lost(&self, source: io::Error) -> ProgramError {
        ProgramError::Lost { program: self.name.clone(), source }
    }

    fn make_pipes_non_blocking(&self) -> io::Result<()> {
        let stdin = self.child.stdin.iter().map(AsFd::as_fd);
        for pipe in
            self.outputs.iter().filter_map(|output| output.pipe.as_ref()).map(AsFd::as_fd).chain(stdin)
        {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(())
    }

    fn check(&self, within: Duration, limit_bytes: usize, stops: Stops) -> Result<(), ProgramError> {
        let program = || self.name.clone();
        if self.outputs.iter().any(|output| output.bytes.len() > limit_bytes) {
            return Err(ProgramError::Talkative { program: program(), limit_bytes });
        }
        if self.started.elapsed() >= within {
            return Err(ProgramError::Silent { program: program(), after: within });
        }
        let is_stopped = match stops {
            Stops::AtOnce => interruption::is_requested(),
            Stops::AfterWrapUp => interruption::is_over(),
            Stops::Never => false,
        };
        if is_stopped {
            return Err(ProgramError::Interrupted { program: program() });
        }
        Ok(())
    }

    /// Moves what can be moved, or waits a little; returns how it ended.
    fn step(&mut self, within: Duration) -> Result<Option<ExitStatus>, ProgramError> {
        self.refill()?;
        self.wait(within).map_err(|source| self.lost(source))?;
        self.write();
        // What it left in the pipes is read after its end; others may hold them open for ever.
        let status = self.child.try_wait().map_err(|source| self.lost(source))?;
        for place in 0..self.outputs.len() {
            self.outputs[place].read(OUTPUT_BYTES).map_err(|source| self.lost(source))?;
        }
        Ok(status)
    }

    /// Waits until a pipe is ready, it has ended, or it is time to look around.
    fn wait(&self, within: Duration) -> io::Result<()> {
        let longest = if self.ended.is_some() { interruption::CHECK_INTERVAL } else { LOOK_INTERVAL };
        let left = longest.min(within.saturating_sub(self.started.elapsed()));
        let pipes = self.outputs.iter().filter_map(|output| output.pipe.as_ref()).map(AsFd::as_fd);
        let mut awaited: Vec<PollFd<'_>> = pipes
            .chain(self.ended.iter().map(AsFd::as_fd))
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        if let Some(stdin) = self.child.stdin.as_ref().filter(|_| !self.unwritten.is_empty()) {
            awaited.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT));
        }
        let timeout = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut awaited, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the next part of the input; at its end the program's standard input is closed.
    fn refill(&mut self) -> Result<(), ProgramError> {
        if !self.unwritten.is_empty() {
            return Ok(());
        }
        if let Some(input) = &mut self.input {
            let mut chunk = vec![0; CHUNK_BYTES];
            match input.read(&mut chunk) {
                Ok(0) => self.input = None,
                Ok(count) => {
                    chunk.truncate(count);
                    self.unwritten = chunk;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ProgramError::Input { program: self.name.clone(), source }),
            }
        }
        if self.input.is_none() && self.unwritten.is_empty() {
            self.child.stdin = None;
        }
        Ok(())
    }

    /// A program that stops reading reports the reason itself.
    fn write(&mut self) {
        let Some(stdin) = self.child.stdin.as_mut().filter(|_| !self.unwritten.is_empty()) else { return };
        match stdin.write(&self.unwritten) {
            Ok(count) => {
                self.unwritten.drain(..count);
                self.written += count as u64;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => {
                self.input = None;
                self.unwritten.clear();
            }
        }
    }
}

impl Drop for Running<'_> {
    /// A program that has ended is only reaped.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if self.kills_group {
            // It is in its group from the start: `exec` comes after setpgid(2).
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.kill();
        let until = Instant::now() + KILLED_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests;
