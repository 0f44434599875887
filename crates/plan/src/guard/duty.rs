//! The guardian process: it outlives the command, recovers what a command that died
//! left half-way, and reverts what is not confirmed in time.
//!
//! It knows from its first report what has to be restored. Files are read where they
//! can be, to learn of a confirmation, and marked where they can be; a restore needs
//! neither them nor their lock, and is tried again after every error.

use std::{
    io::Read,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::plan::JournalState;
use clearstream_sys::lines::Lines;

use super::report::{self, Change, Kind, Report};
use crate::{
    Event, Options, PlanError,
    confirm::{self, Deadline},
    folder::{self, Locked},
    is_under_test,
    journal::Journal,
    pending,
    restore::{Restored, Written, mark_restored, restore},
};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Between two attempts to restore: doubled up to the second.
const RETRY_INTERVALS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];
/// Time that another process may hold the lock when something has to be restored, which
/// is longer than an apply takes. One that was stopped would hold it for ever.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// Time in which marks are tried again after a restore. The next start of the program
/// marks it otherwise.
const MARK_PATIENCE: Duration = Duration::from_secs(60);
/// Time beyond its first deadline that a command may need to apply everything: the time to
/// confirm it counts from there, and only a command that hangs takes longer.
const APPLY_PATIENCE: Duration = Duration::from_secs(60);

/// Where the guardian's reports come from, and what reaches it from outside.
pub struct Duty<'a, R> {
    /// What the command that started it writes, to its end.
    pub reports: R,
    /// Answers the first report.
    pub answer: &'a dyn Fn(&str),
    /// It was told to end, as at a shutdown: what is not kept yet is restored at once.
    pub told_to_end: &'a AtomicBool,
    /// Receives why something is not restored or not marked yet.
    pub problem: &'a dyn Fn(&str),
}

impl<R: Read + Send + 'static> Duty<'_, R> {
    /// Guards until nothing is left to do.
    pub fn run(self, options: &Options) {
        let Self { reports, answer, told_to_end, problem } = self;
        let mut lines = Lines::new(reports, report::LARGEST_BYTES);
        let (sender, reports) = mpsc::channel();
        thread::spawn(move || {
            while let Ok(Some(line)) = lines.whole() {
                let report = clearstream_schema::json::from_slice(line.bytes);
                if report.is_ok_and(|report: Report| sender.send(report).is_err()) {
                    break;
                }
            }
        });
        let mut watch: Option<Watch> = None;
        let (mut is_open, mut is_done) = (true, false);
        loop {
            match reports.recv_timeout(POLL_INTERVAL) {
                Ok(Report::Begun(change)) => {
                    watch = Some(Watch { change: *change, is_applied: false });
                    answer(report::READY);
                }
                Ok(Report::Waits(deadline)) => {
                    if let Some(watch) = &mut watch {
                        watch.change.kind = Kind::Confirmed(deadline);
                        watch.is_applied = true;
                    }
                }
                Ok(Report::Done) => is_done = true,
                Err(RecvTimeoutError::Timeout) => {}
                // Without a pause of its own from here on.
                Err(RecvTimeoutError::Disconnected) if is_open => is_open = false,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL_INTERVAL),
            }
            let Some(watch) = &watch else {
                // Nothing was changed: a journal of an earlier command has its own guardian.
                if is_open { continue } else { return }
            };
            match watch.next(is_open, is_done, told_to_end.load(Ordering::Relaxed), options) {
                Next::Wait => {}
                Next::Leave => return,
                Next::Restore(reason) => return watch.restore(&reason, options, problem),
            }
        }
    }
}

/// What to do now.
enum Next {
    Wait,
    Leave,
    /// For this reason.
    Restore(String),
}

/// What the files say of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It is applied, and nothing waits.
    Kept,
    /// It is applied, and waits for confirmation or the end of a test.
    Waiting(Option<Deadline>),
    /// It is half applied or half reverted.
    Interrupted,
    Reverted,
    /// They cannot be read, or do not say.
    Unknown,
}

struct Watch {
    change: Change,
    /// Its time to be confirmed has begun.
    is_applied: bool,
}

impl Watch {
    fn next(&self, is_open: bool, is_done: bool, is_told: bool, options: &Options) -> Next {
        let found = self.found(options);
        if found == Found::Reverted && !is_open {
            return Next::Leave;
        }
        let told = || Next::Restore("its guardian was told to end".to_owned());
        match self.change.kind {
            Kind::Confirmed(_) if found == Found::Kept && is_done => Next::Leave,
            Kind::Confirmed(known) => {
                // The command says its deadline before it is in the file.
                let deadline = if let Found::Waiting(Some(found)) = found { found.max(known) } else { known };
                let patience = if is_open && !self.is_applied { APPLY_PATIENCE } else { Duration::ZERO };
                match () {
                    () if deadline.has_passed_by(patience) => Next::Restore(deadline.reason()),
                    () if is_told => told(),
                    () if is_open || is_done || matches!(found, Found::Waiting(_)) => Next::Wait,
                    () if found == Found::Kept => Next::Leave,
                    () => Next::Restore("applying was interrupted".to_owned()),
                }
            }
            Kind::Tested if is_told && !is_done => told(),
            _ if is_open => Next::Wait,
            _ if is_done => Next::Leave,
            Kind::Reverted { .. } => Next::Restore("reverting was interrupted".to_owned()),
            Kind::Tested if found != Found::Kept => Next::Restore(pending::REASON.to_owned()),
            Kind::Applied if found != Found::Kept => Next::Restore("applying was interrupted".to_owned()),
            Kind::Tested | Kind::Applied => Next::Leave,
        }
    }

    fn found(&self, options: &Options) -> Found {
        let name = &self.change.journal;
        let Ok(journal) = folder::open(&options.journals, name) else { return Found::Unknown };
        match (journal.state(), confirm::deadline(name, options)) {
            (JournalState::Reverted, _) => Found::Reverted,
            (JournalState::Applied, Err(_)) => Found::Unknown,
            (JournalState::Applied, Ok(deadline)) if deadline.is_some() || is_under_test(name, options) => {
                Found::Waiting(deadline)
            }
            (JournalState::Applied, Ok(_)) => match self.change.kind {
                // Somebody may be removing the folder, file by file.
                Kind::Confirmed(_) | Kind::Tested if !confirm::is_kept(name, options) => Found::Unknown,
                _ => Found::Kept,
            },
            _ => Found::Interrupted,
        }
    }

    /// Restores until everything is restored, then marks it where that is possible.
    fn restore(&self, reason: &str, options: &Options, problem: &dyn Fn(&str)) {
        let name = &self.change.journal;
        let mut pause = RETRY_INTERVALS[0];
        options.emit(Event::Due);
        let unmarked = loop {
            match self.attempt(reason, options) {
                Ok(restored) => {
                    for gone in restored.written.gone {
                        problem(&format!("journal {name}: {gone}"));
                    }
                    break restored.unmarked;
                }
                // What others have written since is theirs: the operator decides.
                Err(error @ PlanError::Conflicts { .. }) => return problem(&error.to_string()),
                Err(error) => problem(&format!("journal {name} is not restored yet: {error}")),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(RETRY_INTERVALS[1]);
        };
        let Some(error) = unmarked else { return };
        problem(&format!("journal {name} is restored, but not marked so: {error}"));
        let until = Instant::now() + MARK_PATIENCE;
        while Instant::now() < until && self.mark(reason, options).is_err() {
            thread::sleep(RETRY_INTERVALS[0]);
        }
    }

    fn attempt(&self, reason: &str, options: &Options) -> Result<Restored, PlanError> {
        let _locked = lock(options);
        let Change { journal: name, head, kind } = &self.change;
        // Kept between the decision and the lock.
        let nothing = Restored { written: Written::default(), unmarked: None };
        if self.found(options) == Found::Kept && !matches!(kind, Kind::Reverted { .. }) {
            return Ok(nothing);
        }
        let read = folder::open(&options.journals, name);
        let force = match kind {
            Kind::Confirmed(_) => true,
            Kind::Reverted { force } => *force,
            // Without its marks nobody knows which value was being written.
            Kind::Applied | Kind::Tested => read.is_err(),
        };
        let mut journal = read.unwrap_or_else(|_| Journal::remembered(name, &options.journals, head.clone()));
        if journal.state() == JournalState::Reverted {
            return Ok(nothing);
        }
        restore(&mut journal, Some(reason.to_owned()), force, options)
    }

    /// Fails where it may be tried again.
    fn mark(&self, reason: &str, options: &Options) -> Result<(), PlanError> {
        let locked = Locked::existing(&options.journals);
        match folder::open(&options.journals, &self.change.journal) {
            // There is nothing to mark.
            Err(PlanError::NoJournal { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(mut journal) => {
                locked.and_then(|_locked| mark_restored(&mut journal, Some(reason.to_owned()), options))
            }
        }
    }
}

/// The lock, but not at any price.
fn lock(options: &Options) -> Option<Locked> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match Locked::existing(&options.journals) {
            Err(PlanError::Busy { .. }) if Instant::now() < until => {}
            other => return other.ok(),
        }
    }
}
