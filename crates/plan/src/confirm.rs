//! Confirm-within: a plan is applied, and reverted at a deadline unless it is
//! confirmed. The deadline is in a file beside the journal, on the clock that
//! counts since boot, so that any process may act on it; the first process that
//! renames the file decides.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clearstream_schema::plan::JournalState;
use clearstream_sys::document;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{
    Options, PlanError, Reverted,
    folder::{self, Locked},
    journal::{Mark, storage, sync_folder_of},
    restore::restore,
    revert::is_here,
};

const WAITING: &str = "trial";
const EXPIRED: &str = "expired";
/// Maximum size of such a file, which holds two numbers.
const LARGEST_DEADLINE_BYTES: u64 = 4096;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Deadline {
    /// On `CLOCK_BOOTTIME`, nanoseconds.
    at_ns: u64,
    within_ns: u64,
}

/// Sets the deadline of a journal of this host, or extends it to the whole time.
pub fn await_confirmation(journal: &str, within: Duration, options: &Options) -> Result<(), PlanError> {
    let within_ns = nanoseconds(within);
    let deadline = Deadline { at_ns: now_ns().saturating_add(within_ns), within_ns };
    let path = path_of(options, journal, WAITING);
    let text = clearstream_schema::json::to_string(&deadline).unwrap_or_default();
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
    for name in folder::names(&options.journals)? {
        let waiting = deadline(&path_of(options, &name, WAITING));
        // The process that began to revert it did not finish.
        let begun = deadline(&path_of(options, &name, EXPIRED)).map(|begun| Deadline { at_ns: 0, ..begun });
        let Some(deadline) = waiting.or(begun) else { continue };
        let Ok(journal) = folder::open(&options.journals, &name) else { continue };
        if !is_here(&journal.head.identity, &here) || journal.state() != JournalState::Applied {
            continue;
        }
        let left = Duration::from_nanos(deadline.at_ns.saturating_sub(now_ns()));
        found.push(Unconfirmed { journal: name, left, within: Duration::from_nanos(deadline.within_ns) });
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
    /// The journal that it reverts, if the plan was one [back](crate::apply_back).
    pub reverted: Option<String>,
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
    Err(PlanError::TooLate { journal })
}

/// Keeps a plan: its deadline is removed. `None` when it had no deadline, or was
/// too late.
pub fn confirm(journal: &str, options: &Options) -> Result<Option<Confirmed>, PlanError> {
    let waiting = path_of(options, journal, WAITING);
    let Some(deadline) = deadline(&waiting) else { return Ok(None) };
    let left = deadline.at_ns.saturating_sub(now_ns());
    if left == 0 {
        return Ok(None);
    }
    let kept = path_of(options, journal, "kept");
    match fs::rename(&waiting, &kept) {
        Ok(()) => {
            let reverted = folder::open(&options.journals, journal)?.head.reverts;
            if let Some(first) = &reverted {
                end_both(first, journal, options)?;
            }
            remove(&kept)?;
            sync_folder_of(&kept)?;
            let journal = journal.to_owned();
            Ok(Some(Confirmed { journal, left: Duration::from_nanos(left), reverted }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(storage("confirm", &waiting)(error)),
    }
}

/// The first journal becomes reverted, and the one that reverted it is closed. A
/// crash between the two leaves the first one with the old values already restored.
fn end_both(first: &str, second: &str, options: &Options) -> Result<(), PlanError> {
    let _locked = Locked::lock(&options.journals)?;
    let reason = Some(format!("by journal {second}, which was confirmed"));
    let mut first = folder::open(&options.journals, first)?;
    if first.state() != JournalState::Reverted {
        first.mark(Mark::Reverting { reason, force: false, left_alone: Vec::new() })?;
        first.mark(Mark::Reverted)?;
    }
    let mut second = folder::open(&options.journals, second)?;
    let reason = Some(format!("confirmed: journal {} is reverted", first.name));
    second.mark(Mark::Reverting { reason, force: false, left_alone: Vec::new() })?;
    second.mark(Mark::Reverted)
}

/// Whether a journal waits for confirmation.
pub(crate) fn is_unconfirmed(journal: &str, options: &Options) -> bool {
    [WAITING, EXPIRED].iter().any(|extension| path_of(options, journal, extension).exists())
}

/// Reverts a plan that was not confirmed in time, whatever was changed since;
/// `None` when it was confirmed or has time left.
pub fn expire(journal: &str, options: &Options) -> Result<Option<Reverted>, PlanError> {
    let waiting = path_of(options, journal, WAITING);
    let expired = path_of(options, journal, EXPIRED);
    let deadline = match (deadline(&waiting), deadline(&expired)) {
        (Some(deadline), _) if deadline.at_ns > now_ns() => return Ok(None),
        (Some(deadline), _) => {
            match fs::rename(&waiting, &expired) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(storage("rename", &waiting)(error)),
            }
            deadline
        }
        (None, Some(begun)) => begun,
        (None, None) => return Ok(None),
    };
    let here = options.target.identity()?;
    let locked = Locked::lock(&options.journals)?;
    let mut opened = folder::open(&options.journals, journal)?;
    let is_open = is_here(&opened.head.identity, &here) && opened.state() != JournalState::Reverted;
    let mut done = None;
    if is_open {
        let seconds = Duration::from_nanos(deadline.within_ns).as_secs_f64();
        let reason = Some(format!("not confirmed within {seconds} s"));
        let restored_count = restore(&mut opened, reason, true, options)?;
        done = Some(Reverted { journal: journal.to_owned(), restored_count });
    }
    remove(&expired)?;
    drop(locked);
    Ok(done)
}

/// Removes the deadline of a journal that was reverted by hand.
pub(crate) fn forget(journal: &str, options: &Options) -> Result<(), PlanError> {
    remove(&path_of(options, journal, WAITING))?;
    remove(&path_of(options, journal, EXPIRED))
}

pub(crate) fn remove(path: &Path) -> Result<(), PlanError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(storage("remove", path)(error)),
        _ => Ok(()),
    }
}

fn path_of(options: &Options, journal: &str, extension: &str) -> PathBuf {
    options.journals.join(format!("{journal}.{extension}"))
}

fn deadline(path: &Path) -> Option<Deadline> {
    clearstream_schema::json::from_str(&document::read_text(path, LARGEST_DEADLINE_BYTES).ok()?).ok()
}

/// Time since boot, suspend included: setting a clock does not move deadlines.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    nanoseconds(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
