//! A running job: lines of both outputs, timeouts, and the end of all processes.

use std::{
    io::Read,
    process::{Child, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::control::{Failure, FailureKind};
use clearstream_sys::{interruption, lines::Lines, process::bind_child_to_parent};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    failure::Text,
    iwarp,
    launcher::Prepared,
    lines::{Line, Started},
};

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time of the launcher for ending ranks after one has failed.
const FAILED_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum time between the last result and the end of the launcher.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between SIGTERM and SIGKILL.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum length of a line of results: that of the ranks has some hundred bytes for each of them.
const RESULT_BYTES: usize = 1 << 20;
/// Bytes that are kept of a line of text.
const TEXT_BYTES: usize = 4 << 10;
/// Lines that wait to be taken; then the launcher waits.
const LINES_WAITING: usize = 256;

/// A job to run.
#[derive(Debug)]
pub(crate) struct Job<P> {
    pub(crate) command: Prepared,
    pub(crate) read: fn(&str) -> Option<Line<P>>,
    /// Hosts of the ranks; none when all are on this one.
    pub(crate) hosts: Vec<String>,
    pub(crate) start_timeout: Duration,
    pub(crate) point_timeout: Duration,
    /// What does not come then.
    pub(crate) awaited: String,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With all results.
    Finished,
    /// With all results, but `mpirun` did not end by itself.
    Forced,
    /// On request.
    Stopped,
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) ranks: Option<Started>,
    /// Connections that the verbs library reported.
    pub(crate) rdma_connection_count: u64,
    /// What a rank had reported when the job was stopped.
    pub(crate) reported: Option<Failure>,
}

/// A line of an output.
enum Output<P> {
    Result(Line<P>),
    Text(String),
}

/// The launcher; dropping it ends it, and with it its ranks.
struct Running(Child);

impl Running {
    /// Ends the job: the launcher ends its ranks when it is asked to. If it is
    /// killed, the kernel ends them with it (prctl(2), PR_SET_PDEATHSIG).
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.0.try_wait()? {
            return Ok(status);
        }
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended meanwhile; it is waited for below.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + interruption::bounded(TERMINATE_TIMEOUT);
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.0.kill()?;
        self.0.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What is known of a job so far.
struct Progress {
    ranks: Option<Started>,
    rdma_connection_count: u64,
    is_finished: bool,
    text: Text,
    deadline: Instant,
    /// What the deadline is of.
    awaited: String,
}

impl Progress {
    fn ended(self, ending: Ending) -> Ended {
        let reported = (ending == Ending::Stopped && self.text.has_report()).then(|| {
            let (kind, message) = self.text.cause("a rank failed");
            Failure::new(kind, message)
        });
        Ended { ending, ranks: self.ranks, rdma_connection_count: self.rdma_connection_count, reported }
    }
}

impl<P: Send + 'static> Job<P> {
    /// Runs the job until its end, or until `stop` is set.
    pub(crate) fn run(mut self, stop: &AtomicBool, on_point: &mut dyn FnMut(P)) -> Result<Ended, Failure> {
        let command = &mut self.command.command;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        bind_child_to_parent(command);
        let spawned = command.spawn();
        let child = spawned.map_err(|failed| {
            Failure::new(FailureKind::Unsupported, format!("mpirun cannot be started: {failed}"))
        })?;
        let mut running = Running(child);
        let lines = read(&mut running.0, self.read);
        let mut progress = Progress {
            ranks: None,
            rdma_connection_count: 0,
            is_finished: false,
            text: Text::default(),
            deadline: Instant::now() + self.start_timeout,
            awaited: self.not_started(),
        };
        loop {
            if stop.load(Relaxed) && !progress.is_finished {
                return Ok(progress.ended(Ending::Stopped));
            }
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok(output) => self.take(output, &mut progress, on_point),
                Err(RecvTimeoutError::Timeout) if Instant::now() > progress.deadline => {
                    return expired(&mut running, &lines, progress);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return finish(&mut running, progress),
            }
        }
    }

    /// The launcher does not say whose ranks it waits for.
    fn not_started(&self) -> String {
        let seconds = self.start_timeout.as_secs();
        let what = format!("the ranks have not all started within {seconds} s");
        match self.hosts.len() {
            0 | 1 => what,
            _ => format!("{what}: see whether {} are up and reach each other", self.hosts.join(", ")),
        }
    }

    fn take(&self, output: Output<P>, progress: &mut Progress, on_point: &mut dyn FnMut(P)) {
        let line = match output {
            Output::Result(line) => line,
            Output::Text(text) => {
                progress.rdma_connection_count += iwarp::connection_count(&text).unwrap_or(0);
                let is_first = !progress.text.has_report();
                progress.text.push(text);
                if is_first && progress.text.has_report() {
                    progress.deadline = progress.deadline.min(Instant::now() + FAILED_TIMEOUT);
                }
                return;
            }
        };
        let timeout = match line {
            Line::Ranks(started) => {
                progress.text.keep_ranks(&started.ranks);
                progress.ranks = Some(started);
                self.point_timeout
            }
            Line::Point(point) => {
                on_point(*point);
                self.point_timeout
            }
            Line::Running => self.point_timeout,
            Line::Result(point) => {
                on_point(*point);
                progress.is_finished = true;
                FINALIZE_TIMEOUT
            }
            Line::End => {
                progress.is_finished = true;
                FINALIZE_TIMEOUT
            }
        };
        progress.deadline = Instant::now() + timeout;
        let what = if progress.is_finished { "end" } else { &self.awaited };
        progress.awaited = format!("no {what} within {} s", timeout.as_secs());
    }
}

/// A deadline has passed: everything is ended, and what was printed until then may have the cause.
/// Results are kept when all of them are there.
fn expired<P>(
    running: &mut Running,
    lines: &Receiver<Output<P>>,
    mut progress: Progress,
) -> Result<Ended, Failure> {
    let _ = running.end();
    if progress.is_finished && !progress.text.has_report() {
        return Ok(progress.ended(Ending::Forced));
    }
    while let Ok(output) = lines.try_recv() {
        if let Output::Text(text) = output {
            progress.text.push(text);
        }
    }
    let (kind, message) = progress.text.cause(&progress.awaited);
    Err(Failure::new(kind, message))
}

/// Both outputs are closed.
fn finish(running: &mut Running, progress: Progress) -> Result<Ended, Failure> {
    let deadline = Instant::now() + FINALIZE_TIMEOUT;
    let status = loop {
        match running.0.try_wait() {
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL / 10),
            Ok(None) => break running.end(),
            Ok(Some(status)) => break Ok(status),
            Err(failed) => break Err(failed),
        }
    };
    let status = status.map_err(|failed| Failure::of_system("wait for mpirun", &failed))?;
    if status.success() && progress.is_finished {
        return Ok(progress.ended(Ending::Finished));
    }
    let (kind, message) = progress.text.cause(&format!("mpirun ended with {status}"));
    Err(Failure::new(kind, message))
}

/// Reads both outputs until all who hold them have closed them.
fn read<P: Send + 'static>(child: &mut Child, line: fn(&str) -> Option<Line<P>>) -> Receiver<Output<P>> {
    let (sender, receiver) = sync_channel(LINES_WAITING);
    if let Some(stdout) = child.stdout.take() {
        start_reader(stdout, line, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        start_reader(stderr, line, sender);
    }
    receiver
}

fn start_reader<P: Send + 'static>(
    stream: impl Read + Send + 'static,
    read_line: fn(&str) -> Option<Line<P>>,
    sender: SyncSender<Output<P>>,
) {
    thread::spawn(move || {
        let mut lines = Lines::new(stream, RESULT_BYTES);
        while let Ok(Some(line)) = lines.cut() {
            let result = if line.is_cut { None } else { read_line(&String::from_utf8_lossy(line.bytes)) };
            let text = || Output::Text(line.shortened(TEXT_BYTES).text());
            if sender.send(result.map_or_else(text, Output::Result)).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Lines of a program: text, a result, and what never ends.
    fn read_all(text: impl Read + Send + 'static) -> Vec<Output<u64>> {
        let (sender, receiver) = sync_channel(1);
        start_reader(text, |line| line.trim().parse().ok().map(Box::new).map(Line::Point), sender);
        receiver.iter().collect()
    }

    #[test]
    fn lines_without_end_are_cut_and_results_come_after_them() {
        let endless = io::repeat(b'7').take(RESULT_BYTES as u64 * 4);
        let outputs = read_all("5\n".as_bytes().chain(endless).chain("\n6\nthe end".as_bytes()));
        let shown: Vec<String> = outputs
            .into_iter()
            .map(|output| match output {
                Output::Text(text) => text,
                Output::Result(Line::Point(point)) => format!("point {point}"),
                Output::Result(other) => format!("{other:?}"),
            })
            .collect();
        let cut = format!("{} [cut after {TEXT_BYTES} bytes]", "7".repeat(TEXT_BYTES));
        assert_eq!(shown, ["point 5", &cut, "point 6", "the end"]);
    }
}
