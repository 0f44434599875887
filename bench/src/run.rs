//! One run of one program: start, wait, read, and what it cost.

use std::{
    fs,
    io::{Read, Seek},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_sys::usage::{self, Reaped};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    error::BenchError,
    place::{Ground, Place},
    tool::{Settings, Shape, Tool, shown},
};

/// Time for a server to start listening. There is no common readiness signal,
/// so a client that is refused is restarted.
const SETTLE: Duration = Duration::from_millis(300);
const ATTEMPTS: u32 = 4;
/// Timeout of a run, beyond the length of the test.
const RUN_TIMEOUT: Duration = Duration::from_secs(20);
/// The same where a lab's hosts are set up and down.
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);

/// A measured run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    /// At the receiver.
    pub gbps: f64,
    /// CPU time of all processes of both ends per 10^9 bytes received.
    pub cpu_seconds_per_gb: f64,
}

/// A child whose output goes to a file, ended at the latest when dropped.
pub(crate) struct Running {
    child: Child,
    output: fs::File,
    errors: fs::File,
    reaped: Option<Reaped>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Result<Self, BenchError> {
        let program = shown(&command);
        let fail = |source| BenchError::Start { program: program.clone(), source };
        let output = tempfile::tempfile().map_err(fail)?;
        let errors = tempfile::tempfile().map_err(fail)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(fail)?)
            .stderr(errors.try_clone().map_err(fail)?);
        let child = command.spawn().map_err(fail)?;
        Ok(Self { child, output, errors, reaped: None })
    }

    /// Waits until it has ended or `until` has come.
    pub(crate) fn wait(&mut self, until: Instant) -> Option<Reaped> {
        while self.reaped.is_none() {
            self.reaped = usage::reap(&self.child).ok()?;
            if self.reaped.is_none() {
                if Instant::now() >= until {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.reaped
    }

    /// Ends it: SIGTERM, then SIGKILL.
    pub(crate) fn end(&mut self) -> Option<Reaped> {
        for signal in [Signal::TERM, Signal::KILL] {
            if self.reaped.is_none()
                && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
            {
                let _ = kill_process(pid, signal);
                self.wait(Instant::now() + Duration::from_secs(3));
            }
        }
        self.reaped
    }

    /// Process number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output.
    pub(crate) fn printed(&mut self) -> String {
        Self::text(&mut self.output)
    }

    /// The last line of its standard error.
    pub(crate) fn last_error(&mut self) -> String {
        Self::text(&mut self.errors).lines().last().unwrap_or_default().to_owned()
    }

    fn text(file: &mut fs::File) -> String {
        let mut bytes = Vec::new();
        // What cannot be read is an empty output, which no parser takes.
        let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a program that runs for `seconds` and some seconds more prints.
pub(crate) fn output_of(command: Command, seconds: u32) -> Result<String, BenchError> {
    reaped_output_of(command, seconds).map(|(output, _)| output)
}

/// The same, with the CPU time of it and of the processes it waited for.
pub(crate) fn reaped_output_of(command: Command, seconds: u32) -> Result<(String, Reaped), BenchError> {
    let line = shown(&command);
    let fail = |message: String| BenchError::Run { line: line.clone(), message };
    let mut running = Running::start(command)?;
    let until = Instant::now() + Duration::from_secs(seconds.into()) + SETUP_TIMEOUT;
    let Some(reaped) = running.wait(until) else { return Err(fail("did not end".to_owned())) };
    if !reaped.status.success() {
        return Err(fail(format!("{}; {}", reaped.status, running.last_error())));
    }
    Ok((running.printed(), reaped))
}

/// Runs a program once.
pub(crate) fn run(
    ground: &Ground,
    place: Place,
    tool: Tool,
    settings: Settings,
    shape: &Shape,
    stop: &AtomicBool,
) -> Result<Outcome, BenchError> {
    let mut last = None;
    for attempt in 1..=ATTEMPTS {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        match attempt_once(ground, place, tool, settings, shape, SETTLE * attempt) {
            Ok(outcome) => return Ok(outcome),
            Err(error) => last = Some(error),
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    Err(last.unwrap_or(BenchError::Interrupted))
}

fn attempt_once(
    ground: &Ground,
    place: Place,
    tool: Tool,
    settings: Settings,
    shape: &Shape,
    settle: Duration,
) -> Result<Outcome, BenchError> {
    let mut server = None;
    if let Some(command) = tool.server(settings, shape) {
        server = Some(Running::start(ground.receiving(place, command)?)?);
        std::thread::sleep(settle);
    }
    let command = tool.client(settings, shape);
    let line = shown(&command);
    let fail = |message: String| BenchError::Run { line: line.clone(), message };
    let mut client = Running::start(ground.sending(tool, command)?)?;
    let until = Instant::now() + Duration::from_secs(shape.seconds.into()) + RUN_TIMEOUT;
    let Some(sent) = client.wait(until) else {
        return Err(fail("did not end".to_owned()));
    };
    let mut cost = sent.user + sent.system;
    let mut server_output = String::new();
    if let Some(server) = &mut server {
        // One-shot servers end by themselves; the others are terminated, once
        // they have had the time to print.
        if server.wait(Instant::now() + Duration::from_millis(400)).is_none() {
            server.end();
        }
        cost += server.reaped.map_or(Duration::ZERO, |reaped| reaped.user + reaped.system);
        server_output = server.printed();
    }
    let output = client.printed();
    let goodput = tool
        .goodput(&output, &server_output)
        .map_err(|message| fail(format!("{message} {}", client.last_error()).trim().to_owned()))?;
    if !sent.status.success() {
        return Err(fail(format!("{}", sent.status)));
    }
    Ok(Outcome { gbps: goodput.bps / 1e9, cpu_seconds_per_gb: cost.as_secs_f64() / (goodput.bytes / 1e9) })
}
