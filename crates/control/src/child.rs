//! An agent that runs as our child (directly, in a lab, or behind ssh): its
//! pipes, its last words, and its orderly end.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use tracing::Level;

use crate::{error::StartCause, session::SessionEnd};

/// Lines of standard error that are kept.
const LINES: usize = 20;
/// Bytes of one line that are kept.
const LINE_BYTES: u64 = 500;
/// Between two looks at a child that is about to end.
const POLL: Duration = Duration::from_millis(10);

/// How long a child may take to end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// The same for one that has gone silent: everything is to be over within 5 s.
const SILENT_GRACE: Duration = Duration::from_millis(100);

/// A running child. Ends and reaps it when dropped.
pub(crate) struct AgentChild {
    orders: Sender<Order>,
    words: Arc<Mutex<Words>>,
    grace: Duration,
    thread: Option<thread::JoinHandle<()>>,
}

/// The child's two pipes.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

/// To the thread that owns the child.
enum Order {
    /// Wait this long for it to end by itself and tell how it did.
    Await(Duration, Sender<Option<ExitStatus>>),
    /// Wait this long, then kill and reap it.
    End(Duration),
}

#[derive(Default)]
struct Words {
    lines: VecDeque<String>,
    complete: bool,
}

/// What a child left behind.
#[derive(Debug, Clone)]
pub(crate) struct LastWords {
    program: String,
    lines: Vec<String>,
    status: Option<ExitStatus>,
}

impl AgentChild {
    /// Starts `command` with both standard streams piped. The child is bound
    /// to a thread that lives until this value is dropped, whichever thread
    /// made it (see [`clearstream_sys::process::bind_child_to_parent`]).
    pub(crate) fn start(mut command: Command) -> io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        clearstream_sys::process::bind_child_to_parent(&mut command);
        let (orders, inbox) = channel();
        let (started, result) = channel();
        let words = Arc::new(Mutex::new(Words::default()));
        let collected = Arc::clone(&words);
        let thread = thread::Builder::new().name("agent-child".into()).spawn(move || {
            match start_child(&mut command, &collected) {
                Ok((child, pipes)) => {
                    // The maker waits for this.
                    drop(started.send(Ok(pipes)));
                    keep_child(child, &inbox);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        let pipes = result.recv().map_err(|_| io::Error::other("the thread of the child has ended"))??;
        Ok((Self { orders, words, grace: GRACE, thread: Some(thread) }, pipes))
    }

    /// What the child said last and how it ended, waiting for that a little.
    pub(crate) fn last_words(&mut self, program: &str, end: &SessionEnd) -> LastWords {
        if *end == SessionEnd::Silence {
            // It does nothing any more, so it will not end by itself either.
            self.grace = SILENT_GRACE;
        }
        let (answer, status) = channel();
        let status = match self.orders.send(Order::Await(self.grace, answer)) {
            Ok(()) => status.recv().unwrap_or(None),
            Err(_) => None,
        };
        // A process left in the background (an ssh master) may hold the pipe
        // open for ever, so the rest is waited for only briefly.
        let until = Instant::now() + Duration::from_millis(200);
        while !self.words().complete && Instant::now() < until {
            thread::sleep(POLL);
        }
        let lines = self.words().lines.iter().cloned().collect();
        LastWords { program: program.to_owned(), lines, status }
    }

    /// Lets the child end by itself for `grace`, then kills it; reaps it.
    pub(crate) fn end(&mut self, grace: Duration) {
        // The thread is there until it has been told to end.
        drop(self.orders.send(Order::End(grace)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AgentChild {
    fn drop(&mut self) {
        self.end(self.grace);
    }
}

fn start_child(command: &mut Command, words: &Arc<Mutex<Words>>) -> io::Result<(Child, Pipes)> {
    let mut child = command.spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("the child has no pipes"));
    };
    let words = Arc::clone(words);
    let collector = thread::Builder::new().name("agent-stderr".into()).spawn(move || collect(stderr, &words));
    if let Err(error) = collector {
        drop(child.kill().and_then(|()| child.wait()));
        return Err(error);
    }
    Ok((child, Pipes { stdin, stdout }))
}

/// Target of the lines that an agent of this process logged. They passed the
/// agent's filter, and are shown as they are.
pub const AGENT_LOG: &str = "agent";

/// The level of a line that begins with a time (RFC 3339, UTC) and a level: one
/// of the agent's log, and no reason why the agent ended.
fn log_level(text: &str) -> Option<Level> {
    let mut words = text.split_whitespace();
    words.next().filter(|word| word.ends_with('Z') && word.as_bytes().get(10) == Some(&b'T'))?;
    words.next()?.parse().ok()
}

/// Logs a line of an agent; the level of an event is a constant.
fn log_again(level: Level, text: &str) {
    match level {
        Level::ERROR => tracing::error!(target: AGENT_LOG, "{text}"),
        Level::WARN => tracing::warn!(target: AGENT_LOG, "{text}"),
        Level::INFO => tracing::info!(target: AGENT_LOG, "{text}"),
        Level::DEBUG => tracing::debug!(target: AGENT_LOG, "{text}"),
        Level::TRACE => tracing::trace!(target: AGENT_LOG, "{text}"),
    }
}

/// Keeps the last lines of standard error, but for lines of a log.
fn collect(stderr: ChildStderr, words: &Mutex<Words>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).unwrap_or(0);
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if count == 0 {
            words.complete = true;
            return;
        }
        let text: String =
            String::from_utf8_lossy(&line).trim().chars().filter(|c| !c.is_control()).collect();
        if text.is_empty() {
            continue;
        }
        if let Some(level) = log_level(&text) {
            drop(words);
            log_again(level, &text);
            continue;
        }
        if words.lines.len() == LINES {
            words.lines.pop_front();
        }
        words.lines.push_back(text);
    }
}

/// Owns the child until told to end it.
fn keep_child(mut child: Child, orders: &Receiver<Order>) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Await(patience, answer) => {
                let _ = answer.send(await_exit(&mut child, patience));
            }
            Order::End(grace) => {
                await_exit(&mut child, grace);
                break;
            }
        }
    }
    // Already reaped children answer with an error that changes nothing.
    drop(child.kill());
    drop(child.wait());
}

fn await_exit(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => thread::sleep(POLL),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

impl LastWords {
    /// Why the agent never came up: what ssh(1), a shell or the agent said.
    pub(crate) fn explain(&self, end: &SessionEnd) -> (StartCause, String) {
        let said = |needle: &str| {
            let line = self.lines.iter().rev().find(|line| line.contains(needle));
            line.map(|line| line.trim_end_matches('.').to_owned())
        };
        let first = |needles: &[&str]| needles.iter().find_map(|needle| said(needle));
        // ssh ends with 255 for troubles of its own, else with the status of
        // the remote command (ssh(1), EXIT STATUS).
        if self.code() == Some(255) {
            if let Some(line) = first(&["Could not resolve hostname"]) {
                return (StartCause::UnknownHost, format!("{line}: check the name or ~/.ssh/config"));
            }
            if let Some(line) = first(&["Host key verification failed", "HOST IDENTIFICATION HAS CHANGED"]) {
                return (
                    StartCause::HostKey,
                    format!("{line}: connect once with ssh to accept or mend the key"),
                );
            }
            if let Some(line) = first(&["Permission denied", "Too many authentication failures"]) {
                return (StartCause::Authentication, format!("{line}: `ssh` to this host must work first"));
            }
            let refused = ["Connection refused", "timed out", "No route to host", "Network is unreachable"];
            if let Some(line) = first(&refused) {
                return (StartCause::Connection, format!("{line}: is sshd running there, on this port?"));
            }
        }
        // Of the agent itself, as `Failure::of_system` words it.
        if let Some(line) = said("(`ulimit ") {
            return (StartCause::Limit, line.trim_start_matches("clearstream: ").to_owned());
        }
        if matches!(self.code(), Some(126 | 127)) {
            let line = self.lines.last().cloned().unwrap_or_else(|| "command not found".to_owned());
            let message = format!("{line}: install clearstream there or give the path of its program");
            return (StartCause::Program, message);
        }
        (StartCause::Other, self.append_to(&format!("{} did not start an agent: {end}", self.program)))
    }

    /// `reason` with how the child ended and what it said.
    pub(crate) fn append_to(&self, reason: &str) -> String {
        let mut text = reason.to_owned();
        if let Some(status) = self.status.filter(|status| !status.success()) {
            text.push_str(&format!(" ({status})"));
        }
        let tail = &self.lines[self.lines.len().saturating_sub(3)..];
        if !tail.is_empty() {
            text.push_str(&format!(": {}", tail.join(" | ")));
        }
        text
    }

    fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }
}
