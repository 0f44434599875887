//! The command's end of a guardian: it starts the process, tells it what is about to
//! be changed, and changes nothing before the guardian has understood that.

use std::{
    io::{self, Write as _},
    iter,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use clearstream_sys::{lines::Lines, process::keep_descriptors_from};

use super::report::{Change, Kind, READY, Report};
use crate::{Begun, PlanError, confirm::Deadline};

/// Maximum time until the process has started and read its first report: a busy host
/// may need seconds.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The command's end of the pipes: the guardian acts when they close before
/// [`Guardian::done`].
#[derive(Debug)]
pub(super) struct Guardian {
    pipes: Arc<Mutex<Pipes>>,
}

/// Reports progress to the guardian.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    pipes: Arc<Mutex<Pipes>>,
}

#[derive(Debug)]
struct Pipes {
    reports: ChildStdin,
    /// Taken by the thread that waits for its answer.
    answers: Option<ChildStdout>,
}

impl Guardian {
    /// Starts the program.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // It may run until the plan is confirmed.
        keep_descriptors_from(&mut command);
        let mut child = command.spawn()?;
        let reports = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let answers = child.stdout.take();
        // The guardian may outlive the command; then init reaps it.
        drop(child);
        Ok(Self { pipes: Arc::new(Mutex::new(Pipes { reports, answers })) })
    }

    /// For use from steps of an apply.
    pub(super) fn reporter(&self) -> Reporter {
        Reporter { pipes: Arc::clone(&self.pipes) }
    }

    /// Apply or revert is complete.
    pub(super) fn done(self) {
        // If the guardian died the next start of the program finishes what it left.
        let _ = lock(&self.pipes).send(&Report::Done);
    }
}

impl Reporter {
    /// The journal is on disk; the first change comes next. Returns when the guardian
    /// has understood what it guards.
    pub(super) fn begin(&self, begun: &Begun<'_>, kind: Kind) -> Result<(), PlanError> {
        let change = Change { journal: begun.journal.to_owned(), head: begun.head.clone(), kind };
        let mut pipes = lock(&self.pipes);
        let sent = pipes.send(&Report::Begun(Box::new(change)));
        sent.and_then(|()| pipes.await_answer()).map_err(|source| PlanError::Guardian { source })
    }

    /// Everything is applied and waits for confirmation from now on.
    pub(super) fn waits(&self, deadline: Deadline) {
        // Without it the guardian acts at the earlier deadline that it knows.
        let _ = lock(&self.pipes).send(&Report::Waits(deadline));
    }
}

impl Pipes {
    fn send(&mut self, report: &Report) -> io::Result<()> {
        let line = clearstream_schema::json::to_string(report)?;
        writeln!(self.reports, "{line}")?;
        self.reports.flush()
    }

    /// Waits for the word of the guardian, not longer than [`START_TIMEOUT`].
    fn await_answer(&mut self) -> io::Result<()> {
        let answers = self.answers.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (sender, receiver) = mpsc::channel();
        // It ends with the pipe, that is, with the guardian at the latest.
        thread::spawn(move || {
            let mut lines = Lines::new(answers, READY.len());
            let mut words = iter::from_fn(|| {
                let line = lines.cut().ok().flatten()?;
                Some(line.bytes == READY.as_bytes() && !line.is_cut)
            });
            let _ = sender.send(words.any(|is_ready| is_ready));
        });
        match receiver.recv_timeout(START_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::Error::other("it ended at once")),
            Err(_) => {
                let seconds = START_TIMEOUT.as_secs();
                Err(io::Error::other(format!("it did not answer within {seconds} s")))
            }
        }
    }
}

fn lock(pipes: &Mutex<Pipes>) -> std::sync::MutexGuard<'_, Pipes> {
    pipes.lock().unwrap_or_else(PoisonError::into_inner)
}
