//! Confirm-within: a plan is applied, and reverted at a deadline unless it is
//! confirmed. The deadline is in a file beside the journal, on the clock that
//! counts since boot, so that any process may act on it. Whoever holds the lock of
//! the folder decides: before the deadline the file may be renamed to one that says that
//! the change is kept, afterwards the change goes. A file that is missing says nothing:
//! somebody may be removing the folder.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use clearstream_schema::plan::JournalState;
use clearstream_sys::document;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{
    Options, PlanError, Reverted,
    folder::{self, Locked},
    journal::{Journal, Mark, storage, sync_folder_of},
    restore::restore,
    revert::is_here,
};

pub(crate) const WAITING: &str = "trial";
/// Of the name of a file that says that a change is kept which had to be confirmed or was
/// under test.
const KEPT: &str = "kept";
/// Maximum size of such a file, which holds two numbers.
const LARGEST_DEADLINE_BYTES: u64 = 4096;
/// Between two attempts to get the lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A plan that waits for confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The journal.
    pub journal: String,
    /// Time that is left; zero when it is overdue.
    pub left: Duration,
    /// The whole time.
    pub within: Duration,
}

/// Until when a plan has to be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Deadline {
    /// On `CLOCK_BOOTTIME`, nanoseconds.
    at_ns: u64,
    within_ns: u64,
}

impl Deadline {
    /// The whole time from now on.
    pub(crate) fn within(within: Duration) -> Self {
        let within_ns = nanoseconds(within);
        Self { at_ns: now_ns().saturating_add(within_ns), within_ns }
    }

    /// Time that is left; zero when it is overdue.
    pub(crate) fn left(self) -> Duration {
        Duration::from_nanos(self.at_ns.saturating_sub(now_ns()))
    }

    /// Whether it passed this time ago at least.
    pub(crate) fn has_passed_by(self, time: Duration) -> bool {
        self.at_ns.saturating_add(nanoseconds(time)) <= now_ns()
    }

    /// Reason of the revert at its end.
    pub(crate) fn reason(self) -> String {
        format!("not confirmed within {} s", Duration::from_nanos(self.within_ns).as_secs_f64())
    }
}

/// Sets the deadline of a journal of this host, or extends it to the whole time.
pub fn await_confirmation(journal: &str, within: Duration, options: &Options) -> Result<(), PlanError> {
    let path = path_of(options, journal);
    let text = clearstream_schema::json::to_string(&Deadline::within(within)).unwrap_or_default();
    let unfinished = path.with_extension("trial.new");
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    };
    write().map_err(storage("write the deadline", &path))?;
    sync_folder_of(&path)
}

/// Plans of this host and namespace that wait for confirmation, the oldest first.
pub fn unconfirmed(options: &Options) -> Result<Vec<Unconfirmed>, PlanError> {
    let here = options.target.identity()?;
    let mut found = Vec::new();
    for name in folder::unsettled(&options.journals)? {
        let Some(deadline) = deadline(&name, options)? else { continue };
        let Ok(journal) = folder::open(&options.journals, &name) else { continue };
        if !is_here(&journal.head.identity, &here) || journal.state() != JournalState::Applied {
            continue;
        }
        let within = Duration::from_nanos(deadline.within_ns);
        found.push(Unconfirmed { journal: name, left: deadline.left(), within });
    }
    Ok(found)
}

/// A plan that was confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    /// Its journal.
    pub journal: String,
    /// Time that was left.
    pub left: Duration,
    /// The journal that it reverts, if the plan was one [back](Options::reverting).
    pub reverted: Option<String>,
    /// Why the journals could not be marked so; the change stays all the same.
    pub unmarked: Option<String>,
}

/// Confirms the newest plan that waits for confirmation here. Fails when there is
/// none, and when it is overdue: it is reverted then.
pub fn confirm_newest(options: &Options) -> Result<Confirmed, PlanError> {
    let Some(Unconfirmed { journal, .. }) = unconfirmed(options)?.pop() else {
        return Err(PlanError::NothingToConfirm);
    };
    if let Some(confirmed) = confirm(&journal, options)? {
        return Ok(confirmed);
    }
    expire(&journal, options)?;
    // Another process may have confirmed it meanwhile.
    match folder::open(&options.journals, &journal)?.state() {
        JournalState::Applied => Err(PlanError::NothingToConfirm),
        _ => Err(PlanError::TooLate { journal }),
    }
}

/// Keeps a plan: its deadline is removed. `None` when it had no deadline, or was
/// too late.
pub fn confirm(journal: &str, options: &Options) -> Result<Option<Confirmed>, PlanError> {
    let left = |deadline: Option<Deadline>| deadline.map_or(Duration::ZERO, Deadline::left);
    let locked = loop {
        match (left(deadline(journal, options)?), Locked::existing(&options.journals)) {
            (Duration::ZERO, _) => return Ok(None),
            (_, Err(PlanError::Busy { .. })) => thread::sleep(RETRY_INTERVAL),
            (_, locked) => break locked?,
        }
    };
    let left = left(deadline(journal, options)?);
    if left.is_zero() {
        return Ok(None);
    }
    let opened = folder::open(&options.journals, journal)?;
    let path = path_of(options, journal);
    keep(journal, &path, options).map_err(|error| PlanError::NotKept {
        journal: journal.to_owned(),
        left,
        source: Box::new(error),
    })?;
    let reverted = opened.head.reverts.clone();
    let marked = reverted.as_ref().map_or(Ok(()), |first| end_both(first, opened, options));
    drop(locked);
    if reverted.is_some() && marked.is_ok() {
        // What it waited for is in both journals.
        let _ = forget(journal, options);
    }
    let unmarked = marked.err().map(|error| error.to_string());
    Ok(Some(Confirmed { journal: journal.to_owned(), left, reverted, unmarked }))
}

/// The first journal becomes reverted, and the one that reverted it is closed. A
/// crash between the two leaves the first one with the old values already restored.
fn end_both(first: &str, mut second: Journal, options: &Options) -> Result<(), PlanError> {
    let reason = Some(format!("by journal {}, which was confirmed", second.name));
    let mut first = folder::open(&options.journals, first)?;
    if first.state() != JournalState::Reverted {
        first.mark(Mark::Reverting { reason, force: false, left_alone: Vec::new() })?;
        first.mark(Mark::Reverted)?;
    }
    let reason = Some(format!("confirmed: journal {} is reverted", first.name));
    second.mark(Mark::Reverting { reason, force: false, left_alone: Vec::new() })?;
    second.mark(Mark::Reverted)
}

/// Whether a journal waits for confirmation.
pub(crate) fn is_unconfirmed(journal: &str, options: &Options) -> bool {
    path_of(options, journal).exists()
}

/// Reverts a plan that was not confirmed in time, whatever was changed since;
/// `None` when it was confirmed or has time left.
pub fn expire(journal: &str, options: &Options) -> Result<Option<Reverted>, PlanError> {
    let here = options.target.identity()?;
    let _locked = Locked::existing(&options.journals)?;
    let Some(deadline) = deadline(journal, options)?.filter(|deadline| deadline.left().is_zero()) else {
        return Ok(None);
    };
    let mut opened = folder::open(&options.journals, journal)?;
    if !is_here(&opened.head.identity, &here) || opened.state() == JournalState::Reverted {
        forget(journal, options)?;
        return Ok(None);
    }
    let restored = restore(&mut opened, Some(deadline.reason()), true, options)?;
    Ok(Some(Reverted::of(journal, restored)))
}

/// Keeps a change: the file that says that it waits becomes one that says that it does not.
/// That needs no space.
pub(crate) fn keep(journal: &str, waiting: &Path, options: &Options) -> Result<(), PlanError> {
    let kept = path_of(options, journal).with_extension(KEPT);
    fs::rename(waiting, &kept).map_err(storage("rename", waiting))?;
    sync_folder_of(&kept)
}

/// Whether a change was kept that had to be confirmed or was under test.
pub(crate) fn is_kept(journal: &str, options: &Options) -> bool {
    path_of(options, journal).with_extension(KEPT).exists()
}

/// Removes what is beside a journal that was reverted.
pub(crate) fn forget(journal: &str, options: &Options) -> Result<(), PlanError> {
    let path = path_of(options, journal);
    remove(&path)?;
    remove(&path.with_extension(KEPT))
}

pub(crate) fn remove(path: &Path) -> Result<(), PlanError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(storage("remove", path)(error)),
        _ => Ok(()),
    }
}

fn path_of(options: &Options, journal: &str) -> PathBuf {
    options.journals.join(format!("{journal}.{WAITING}"))
}

/// The deadline of a journal, `None` where it has none. One that is damaged has
/// passed: what is not known to be kept is restored.
pub(crate) fn deadline(journal: &str, options: &Options) -> Result<Option<Deadline>, PlanError> {
    let path = path_of(options, journal);
    match document::read_text(&path, LARGEST_DEADLINE_BYTES) {
        Ok(text) => {
            let passed = Deadline { at_ns: 0, within_ns: 0 };
            Ok(Some(clearstream_schema::json::from_str(&text).unwrap_or(passed)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(storage("read", &path)(error)),
    }
}

/// Time since boot, suspend included: setting a clock does not move deadlines.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    nanoseconds(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
