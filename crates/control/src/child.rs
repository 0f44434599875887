//! An agent that runs as a child process (directly, in a lab, or behind ssh): its pipes, captured standard
//! error, and graceful termination.

use std::{
    collections::VecDeque,
    io::{self, Read},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_sys::{interruption, lines::Lines};
use tracing::Level;

use crate::{
    error::StartCause,
    session::SessionEnd,
    ssh::{Login, is_noise, is_ssh},
};

/// Lines of standard error kept.
const LINES: usize = 20;
/// Maximum length of a line in bytes: the agent's log has some of this length.
const LINE_BYTES: usize = 4 << 10;
/// Characters of a line that are kept.
const LINE_CHARS: usize = 500;
/// Poll interval while waiting for a child to exit.
const POLL: Duration = Duration::from_millis(10);

/// Grace period for a child to exit by itself.
const GRACE: Duration = Duration::from_secs(1);
/// Grace period for a child that has timed out: everything is to be over within 5 s.
const SILENT_GRACE: Duration = Duration::from_millis(100);
/// Maximum time for a killed child to be gone.
const KILLED_TIMEOUT: Duration = Duration::from_secs(5);

/// A running child. Ends and reaps it when dropped.
pub(crate) struct AgentChild {
    pid: u32,
    orders: Sender<Order>,
    stderr_capture: Arc<Mutex<StderrCapture>>,
    grace: Duration,
    thread: Option<thread::JoinHandle<()>>,
}

/// The child's two pipes.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

/// Commands to the thread that owns the child.
enum Order {
    /// Wait up to this long for it to exit by itself and report its exit status.
    Await(Duration, Sender<Option<ExitStatus>>),
    /// Wait this long, then kill and reap it.
    End(Duration),
}

#[derive(Default)]
struct StderrCapture {
    lines: VecDeque<String>,
    complete: bool,
    /// ssh has logged in.
    login: Option<Login>,
}

/// Captured standard error and exit status of a child.
#[derive(Debug, Clone)]
pub(crate) struct ChildExit {
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
        let stderr_capture = Arc::new(Mutex::new(StderrCapture::default()));
        let captured = Arc::clone(&stderr_capture);
        let thread = thread::Builder::new().name("agent-child".into()).spawn(move || {
            match start_child(&mut command, &captured) {
                Ok((child, pipes)) => {
                    // The maker waits for this.
                    drop(started.send(Ok((child.id(), pipes))));
                    keep_child(child, &inbox);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        let (pid, pipes) =
            result.recv().map_err(|_| io::Error::other("the thread of the child has ended"))??;
        Ok((Self { pid, orders, stderr_capture, grace: GRACE, thread: Some(thread) }, pipes))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The login of ssh, once it has reported it.
    pub(crate) fn login(&self) -> Option<Login> {
        self.stderr_capture().login
    }

    /// Returns the captured standard error and exit status, after a short wait for the exit.
    pub(crate) fn exit_report(&mut self, program: &str, end: &SessionEnd) -> ChildExit {
        if *end == SessionEnd::PeerTimeout {
            // It no longer responds, so it will not exit by itself either.
            self.grace = SILENT_GRACE;
        }
        let (reply, status) = channel();
        let grace = interruption::bounded(self.grace);
        let status = match self.orders.send(Order::Await(grace, reply)) {
            Ok(()) => status.recv().unwrap_or(None),
            Err(_) => None,
        };
        // A process left in the background (an ssh master) may hold the pipe open for ever, so the wait for
        // the remaining output is bounded.
        let until = Instant::now() + Duration::from_millis(200);
        while !self.stderr_capture().complete && Instant::now() < until {
            thread::sleep(POLL);
        }
        let lines = self.stderr_capture().lines.iter().cloned().collect();
        ChildExit { program: program.to_owned(), lines, status }
    }

    /// Lets the child end by itself for `grace`, then kills it; reaps it.
    pub(crate) fn end(&mut self, grace: Duration) {
        // The thread runs until it receives `Order::End`.
        drop(self.orders.send(Order::End(interruption::bounded(grace))));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }

    fn stderr_capture(&self) -> std::sync::MutexGuard<'_, StderrCapture> {
        self.stderr_capture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AgentChild {
    fn drop(&mut self) {
        self.end(self.grace);
    }
}

fn start_child(
    command: &mut Command,
    stderr_capture: &Arc<Mutex<StderrCapture>>,
) -> io::Result<(Child, Pipes)> {
    let mut child = command.spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("the child has no pipes"));
    };
    let stderr_capture = Arc::clone(stderr_capture);
    let collector =
        thread::Builder::new().name("agent-stderr".into()).spawn(move || collect(stderr, &stderr_capture));
    if let Err(error) = collector {
        drop(child.kill().and_then(|()| child.wait()));
        return Err(error);
    }
    Ok((child, Pipes { stdin, stdout }))
}

/// Log target of lines written by an agent of this process. They already passed the agent's filter and are
/// shown unchanged.
pub const AGENT_LOG: &str = "agent";

/// Returns the level of a line that begins with a timestamp (RFC 3339, UTC) and a level: a line of the
/// agent's log, not a reason why the agent ended.
fn log_level(text: &str) -> Option<Level> {
    let mut fields = text.split_whitespace();
    fields.next().filter(|field| field.ends_with('Z') && field.as_bytes().get(10) == Some(&b'T'))?;
    fields.next()?.parse().ok()
}

/// Logs a line of the agent at its own level; a tracing event's level must be a constant.
fn log_agent_line(level: Level, text: &str) {
    match level {
        Level::ERROR => tracing::error!(target: AGENT_LOG, "{text}"),
        Level::WARN => tracing::warn!(target: AGENT_LOG, "{text}"),
        Level::INFO => tracing::info!(target: AGENT_LOG, "{text}"),
        Level::DEBUG => tracing::debug!(target: AGENT_LOG, "{text}"),
        Level::TRACE => tracing::trace!(target: AGENT_LOG, "{text}"),
    }
}

/// Captures the last lines of standard error, except lines of a log.
fn collect(stderr: impl Read, stderr_capture: &Mutex<StderrCapture>) {
    let mut lines = Lines::new(stderr, LINE_BYTES);
    loop {
        let line = lines.cut().ok().flatten().map(|line| line.text());
        let mut stderr_capture = stderr_capture.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = line else {
            stderr_capture.complete = true;
            return;
        };
        let text: String = line.trim().chars().filter(|c| !c.is_control()).collect();
        if text.is_empty() {
            continue;
        }
        if let Some(level) = log_level(&text) {
            drop(stderr_capture);
            log_agent_line(level, &text);
            continue;
        }
        if let Some(login) = Login::read(&text) {
            stderr_capture.login = Some(login);
            continue;
        }
        if is_noise(&text) {
            continue;
        }
        if stderr_capture.lines.len() == LINES {
            stderr_capture.lines.pop_front();
        }
        stderr_capture.lines.push_back(text.chars().take(LINE_CHARS).collect());
    }
}

/// Owns the child until commanded to end it.
fn keep_child(mut child: Child, orders: &Receiver<Order>) {
    while let Ok(order) = orders.recv() {
        match order {
            Order::Await(timeout, reply) => {
                let _ = reply.send(await_exit(&mut child, timeout));
            }
            Order::End(grace) => {
                await_exit(&mut child, grace);
                break;
            }
        }
    }
    // For a child already reaped these return an error without effect. One that stands in a system call of a
    // file system that does not respond ends when the kernel gives up the call, and is not waited for.
    drop(child.kill());
    await_exit(&mut child, interruption::bounded(KILLED_TIMEOUT));
}

fn await_exit(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => thread::sleep(POLL),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

impl ChildExit {
    /// The exit of a command that has ended.
    pub(crate) fn of_command(program: &str, lines: Vec<String>, status: ExitStatus) -> Self {
        Self { program: program.to_owned(), lines, status: Some(status) }
    }

    /// Derives why the agent never came up from the messages of ssh(1), a shell or the agent. `name` is the
    /// host's name in messages, `text` what its shell printed instead of starting an agent.
    pub(crate) fn explain(&self, name: &str, end: &SessionEnd, text: Option<&str>) -> (StartCause, String) {
        let find_line = |needle: &str| {
            let line = self.lines.iter().rev().find(|line| line.contains(needle));
            line.map(|line| line.trim_end_matches('.').to_owned())
        };
        let first = |needles: &[&str]| needles.iter().find_map(|needle| find_line(needle));
        // ssh ends with 255 for errors of its own, else with the status of the remote command (ssh(1), EXIT
        // STATUS).
        if self.code() == Some(255) {
            if let Some(line) = first(&["Could not resolve hostname"]) {
                return (StartCause::UnknownHost, format!("{line}: check the name or ~/.ssh/config"));
            }
            if let Some(line) = first(&["Host key verification failed", "HOST IDENTIFICATION HAS CHANGED"]) {
                return (
                    StartCause::HostKey,
                    format!("{line}: connect once with ssh to accept or correct the key"),
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
        // Of the agent itself, in the wording of `Failure::of_system`.
        if let Some(line) = find_line("(`ulimit ") {
            return (StartCause::Limit, line.trim_start_matches("clearstream: ").to_owned());
        }
        if matches!(self.code(), Some(126 | 127)) {
            let line = self.lines.last().cloned().unwrap_or_else(|| "command not found".to_owned());
            let offer = match self.is_ssh() {
                true => format!(
                    ": `clearstream deploy {name}` copies this program there; where it is there already, give its \
                     path with --remote-program"
                ),
                false => ": install clearstream there or give the path of its program".to_owned(),
            };
            return (StartCause::Program, line + &offer);
        }
        if let Some(text) = text {
            let message = format!(
                "the remote host wrote text instead of starting an agent (\"{text}\"; {end}): does `ssh {name} true` \
                 print it, and does it end?"
            );
            return (StartCause::NotAnAgent, self.append_to(&message));
        }
        (StartCause::Other, self.append_to(&format!("{} did not start an agent: {end}", self.program)))
    }

    /// Appends the exit status and the last lines of standard error to `reason`.
    pub(crate) fn append_to(&self, reason: &str) -> String {
        let mut text = reason.to_owned();
        if let Some(status) = self.status.filter(|status| !status.success()) {
            text.push_str(&format!(" ({status})"));
        }
        let (_, tail) = self.lines.split_at(self.lines.len().saturating_sub(3));
        if !tail.is_empty() {
            text.push_str(&format!(": {}", tail.join(" | ")));
        }
        text
    }

    /// Whether the agent was started through ssh.
    pub(crate) fn is_ssh(&self) -> bool {
        is_ssh(&self.program)
    }

    fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_prints_without_end_takes_no_memory_and_hides_nothing_after_it() {
        let endless = io::repeat(b'x').take(16 << 20);
        let captured = Mutex::new(StderrCapture::default());
        collect(endless.chain("\nthe cause\n".as_bytes()), &captured);
        let captured = captured.into_inner().unwrap();
        assert!(captured.complete);
        assert_eq!(captured.lines, ["x".repeat(LINE_CHARS), "the cause".to_owned()]);
    }
}
