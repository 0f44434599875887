//! Restores the settings saved in a journal.

use clearstream_schema::plan::{JournalState, Setting};

use crate::{
    Conflict, Event, Fault, Options, PlanError,
    apply::{ABSENT, write_and_read},
    confirm,
    journal::{Change, Journal, Mark},
    meaning::same_or_absent,
    pending,
    qdisc::is_default,
};

/// Maximum number of passes: writing one setting may change another (a device's
/// channels change its rings).
const PASS_COUNT: usize = 3;

/// Result of a restore.
#[derive(Debug)]
pub(crate) struct Restored {
    /// Settings that were written.
    pub(crate) count: u64,
    /// Why the journal could not be marked, or its files beside it not be removed.
    pub(crate) unmarked: Option<PlanError>,
}

/// Checks everything first, then restores every old value that is not effective.
/// Unless forced, refuses if a live value is neither old nor new.
///
/// The journal gets marks before and after, which is of use after a crash, but a
/// restore needs none: a full or read-only disk is when it is needed most.
pub(crate) fn restore(
    journal: &mut Journal,
    reason: Option<String>,
    force: bool,
    options: &Options,
) -> Result<Restored, PlanError> {
    let left_alone = check_restorable(journal, force, options)?;
    let mark = Mark::Reverting { reason, force, left_alone: left_alone.clone() };
    let mut unmarked = journal.mark(mark.clone()).err();
    options.emit(Event::Reverting);
    let count = restore_settings(journal, &left_alone, options, |journal, index| {
        if unmarked.is_none() {
            unmarked = journal.mark(Mark::Writing(index)).err();
        }
    })?;
    let begun = unmarked.map_or(Ok(()), |_| journal.mark(mark));
    let unmarked = begun.and_then(|()| end(journal, options)).err();
    options.emit(Event::Ended);
    Ok(Restored { count, unmarked })
}

/// Marks the end, and removes what waits beside the journal.
fn end(journal: &mut Journal, options: &Options) -> Result<(), PlanError> {
    if journal.state() != JournalState::Reverted {
        journal.mark(Mark::Reverted)?;
    }
    confirm::forget(&journal.name, options)?;
    pending::forget(&journal.name, options)
}

/// The marks of a restore that could not be written before.
pub(crate) fn mark_restored(
    journal: &mut Journal,
    reason: Option<String>,
    options: &Options,
) -> Result<(), PlanError> {
    if matches!(journal.state(), JournalState::Applying | JournalState::Applied) {
        journal.mark(Mark::Reverting { reason, force: true, left_alone: Vec::new() })?;
    }
    end(journal, options)
}

/// Checks everything before anything is written: settings that may not be restored,
/// live values that are neither old nor new (unless forced), what cannot be
/// written. Returns the indices of settings that others changed and now own.
pub(crate) fn check_restorable(
    journal: &Journal,
    force: bool,
    options: &Options,
) -> Result<Vec<usize>, PlanError> {
    for change in &journal.head.changes {
        options.check_touched(&change.setting)?;
    }
    // A begun revert has checked this already: values that are neither old nor new
    // now were changed by the kernel along with what was written since.
    if !force && journal.state() != JournalState::Reverting {
        let conflicts = conflicts(journal, options)?;
        if !conflicts.is_empty() {
            return Err(PlanError::Conflicts { journal: journal.name.clone(), conflicts });
        }
    }
    check_writable(journal, force, options)?;
    foreign(journal, options)
}

/// Live values that others wrote. For the change that was being written at a crash,
/// any value may be ours: the kernel may have rounded it.
fn conflicts(journal: &Journal, options: &Options) -> Result<Vec<Conflict>, PlanError> {
    let in_flight = journal.last_written().filter(|_| journal.is_interrupted());
    let mut conflicts = Vec::new();
    for (index, change) in journal.head.changes.iter().enumerate() {
        let Change { setting, old, new, .. } = change;
        if change.was_right() {
            continue;
        }
        let live = live(setting, options)?;
        let is = |text: &Option<String>| same_or_absent(setting, text.as_deref(), live.as_deref());
        if in_flight != Some(index) && !is(old) && !is(new) {
            let (setting, ours, old) = (setting.clone(), new.clone(), old.clone());
            conflicts.push(Conflict { setting, live, ours, old });
        }
    }
    Ok(conflicts)
}

/// Settings that needed no change and that others have changed since. While a plan
/// is half applied or half reverted there are no new ones: then the kernel changed
/// them along with what was written.
fn foreign(journal: &Journal, options: &Options) -> Result<Vec<usize>, PlanError> {
    if journal.is_interrupted() {
        return Ok(journal.left_alone());
    }
    let mut found = Vec::new();
    for (index, change) in journal.head.changes.iter().enumerate().filter(|(_, change)| change.was_right()) {
        match live(&change.setting, options) {
            Ok(live) if same_or_absent(&change.setting, change.old.as_deref(), live.as_deref()) => {}
            // Changed, or removed.
            Ok(_) => found.push(index),
            Err(PlanError::Unfit(error)) if error.is_absent() => found.push(index),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Checks that everything necessary can be written; forced, a setting that no
/// longer exists is omitted.
fn check_writable(journal: &Journal, force: bool, options: &Options) -> Result<(), PlanError> {
    for change @ Change { setting, old, .. } in &journal.head.changes {
        match live(setting, options) {
            _ if change.was_right() => {}
            Err(PlanError::Unfit(error)) if force && error.is_absent() => {}
            Err(error) => return Err(error),
            Ok(live) if same_or_absent(setting, old.as_deref(), live.as_deref()) => {}
            Ok(_) => {
                if let Some(old) = old {
                    options.target.check(setting, old).map_err(PlanError::Unfit)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes old values until all are effective; `before` is called at each write.
pub(crate) fn restore_settings(
    journal: &mut Journal,
    left_alone: &[usize],
    options: &Options,
    mut before: impl FnMut(&mut Journal, usize),
) -> Result<u64, PlanError> {
    // The last change first. A default qdisc comes after all others, because the
    // kernel recreates it from the sysctls and queues of that time.
    let changes = journal.head.changes.iter().cloned().enumerate().rev();
    let mut order: Vec<_> = changes.filter(|(index, _)| !left_alone.contains(index)).collect();
    order.sort_by_key(|(_, change)| {
        matches!(change.setting, Setting::Qdisc { .. }) && change.old.as_deref().is_some_and(is_default)
    });
    let mut written = 0;
    for _ in 0..PASS_COUNT {
        let mut is_quiet = true;
        for (index, Change { setting, old, .. }) in &order {
            let live = match live(setting, options) {
                // Only a forced revert gets here.
                Err(PlanError::Unfit(error)) if error.is_absent() => continue,
                other => other?,
            };
            if same_or_absent(setting, old.as_deref(), live.as_deref()) {
                continue;
            }
            is_quiet = false;
            before(journal, *index);
            write_and_read(setting, old.as_deref(), options).map_err(PlanError::Unfit)?;
            written += 1;
        }
        if is_quiet {
            return Ok(written);
        }
    }
    for (_, Change { setting, old, .. }) in &order {
        let found = live(setting, options)?;
        if !same_or_absent(setting, old.as_deref(), found.as_deref()) {
            let text = |text: Option<String>| text.unwrap_or_else(|| ABSENT.to_owned());
            let fault = Fault::Altered { wanted: text(old.clone()), found: text(found) };
            return Err(PlanError::Unfit(fault.of(setting)));
        }
    }
    Ok(written)
}

/// Current text; `None` only for a setting that may be absent.
fn live(setting: &Setting, options: &Options) -> Result<Option<String>, PlanError> {
    let live = options.target.read(setting).map_err(PlanError::Unfit)?;
    if live.is_none() && !setting.may_be_absent() {
        return Err(PlanError::Unfit(Fault::Absent.of(setting)));
    }
    Ok(live)
}
