//! Guardian: a process that outlives the command. It recovers the journal when the
//! command dies half-way, and reverts what is not confirmed in time.

use std::{
    io::{self, Write as _},
    process::{ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use clearstream_sys::process::keep_descriptors_from;

use crate::{Options, PlanError, expire, is_under_test, recover, unconfirmed};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Between two attempts while another plan is being applied.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Polls of a change whose tester died: the kernel may release its lock after its
/// pipe.
const RELEASE_COUNT: u32 = 50;
const DONE: &str = "done";

/// The command's end of the pipe: the guardian acts when it closes before
/// [`Guardian::done`].
#[derive(Debug)]
pub(super) struct Guardian {
    pipe: Arc<Mutex<ChildStdin>>,
}

/// Reports progress to the guardian.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    pipe: Arc<Mutex<ChildStdin>>,
}

impl Guardian {
    /// Starts the program.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It may run until the plan is confirmed.
        keep_descriptors_from(&mut command);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // The guardian may outlive the command; then init reaps it.
        drop(child);
        Ok(Self { pipe: Arc::new(Mutex::new(pipe)) })
    }

    /// For use from events of an apply.
    pub(super) fn reporter(&self) -> Reporter {
        Reporter { pipe: Arc::clone(&self.pipe) }
    }

    /// Apply or revert is complete.
    pub(super) fn done(self) {
        send(&self.pipe, DONE);
    }
}

impl Reporter {
    /// The journal is on disk; the first change comes next.
    pub(super) fn journal(&self, name: &str) {
        send(&self.pipe, name);
    }
}

fn send(pipe: &Mutex<ChildStdin>, line: &str) {
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    // If the guardian died the journal can still be recovered by hand.
    let _ = writeln!(pipe, "{line}").and_then(|()| pipe.flush());
}

/// Main function of the guardian process: reads the reports of the command that
/// started it to their end, recovers its journal if it died half-way, and reverts
/// what is not confirmed in time.
pub fn guard_over(lines: impl Iterator<Item = String>, options: &Options) -> Result<(), PlanError> {
    let (mut journal, mut is_done) = (None, false);
    for line in lines {
        match line.as_str() {
            DONE => is_done = true,
            _ => journal = Some(line),
        }
    }
    // Without a journal nothing was changed: a journal of an earlier command belongs to
    // its own guardian, or to the operator.
    let Some(journal) = journal else { return Ok(()) };
    if !is_done {
        until_free(|| recover(options))?;
        for _ in 0..RELEASE_COUNT {
            if !is_under_test(&journal, options) {
                break;
            }
            thread::sleep(POLL_INTERVAL);
            until_free(|| recover(options))?;
        }
    }
    while let Some(change) = unconfirmed(options)?.into_iter().find(|change| change.journal == journal) {
        if change.left.is_zero() {
            until_free(|| expire(&journal, options))?;
            return Ok(());
        }
        thread::sleep(change.left.min(POLL_INTERVAL));
    }
    Ok(())
}

/// Retries while another process holds the journals.
fn until_free<T>(mut work: impl FnMut() -> Result<T, PlanError>) -> Result<T, PlanError> {
    loop {
        match work() {
            Err(PlanError::Busy { .. }) => thread::sleep(RETRY_INTERVAL),
            other => return other,
        }
    }
}
