//! Restores the settings saved in a journal.

use clearstream_schema::plan::{Gone, JournalState, Setting, Value};

use crate::{
    Conflict, Event, Fault, Needed, Options, PlanError,
    apply::write_and_read,
    confirm, error,
    families::{self, same_or_absent},
    gone::Tally,
    journal::{Change, Journal, Mark},
    pending,
};

/// Maximum number of passes: writing one setting may change another (a device's
/// channels change its rings).
const PASS_COUNT: usize = 3;

/// Result of a restore.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) written: Written,
    /// Why the journal could not be marked, or its files beside it not be removed.
    pub(crate) unmarked: Option<PlanError>,
}

/// What a restore did with the settings.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Settings that were written.
    pub(crate) count: u64,
    /// What is no more, and with it what was to be restored there.
    pub(crate) gone: Vec<Gone>,
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
    let written = restore_settings(journal, &left_alone, options, |journal, index| {
        if unmarked.is_none() {
            unmarked = journal.mark(Mark::Writing(index)).err();
        }
    })?;
    let begun = unmarked.map_or(Ok(()), |_| journal.mark(mark));
    let unmarked = begun.and_then(|()| end(journal, options)).err();
    options.emit(Event::Ended);
    Ok(Restored { written, unmarked })
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
    check_writable(journal, options)?;
    foreign(journal, options)
}

/// Live values that others wrote. For the change that was being written at a crash,
/// any value may be ours: the kernel may have rounded it.
fn conflicts(journal: &Journal, options: &Options) -> Result<Vec<Conflict>, PlanError> {
    let in_flight = journal.last_written().filter(|_| journal.is_interrupted());
    let mut conflicts = Vec::new();
    for (index, change) in journal.head.changes.iter().enumerate() {
        let Change { setting, old, new, .. } = change;
        if change.was_right() || in_flight == Some(index) {
            continue;
        }
        let live = match standing(journal, change, options)? {
            Standing::AsBefore | Standing::Gone(_) => continue,
            Standing::Replaces => options.target.read(setting).map_err(PlanError::Unfit)?,
            Standing::Otherwise { live, .. } => live,
        };
        let is_ours = same_or_absent(setting, new.as_ref(), live.as_ref());
        // The kernel has removed what we wrote, with what it needed.
        let went =
            || live.is_none() && new.as_ref().is_some_and(|new| needs(setting, new, options).is_some());
        if !is_ours && !went() {
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
        match standing(journal, change, options) {
            Ok(Standing::AsBefore) => {}
            // Changed, or removed.
            Ok(_) => found.push(index),
            Err(PlanError::Unfit(error)) if error.is_absent() => found.push(index),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Checks that everything necessary can be written.
fn check_writable(journal: &Journal, options: &Options) -> Result<(), PlanError> {
    for change in journal.head.changes.iter().filter(|change| !change.was_right()) {
        if let Standing::Otherwise { wanted: Some(old), .. } = standing(journal, change, options)? {
            options.target.check(&change.setting, &old).map_err(PlanError::Unfit)?;
        }
    }
    Ok(())
}

/// Writes old values until all are effective; `before` is called at each write. What is
/// absent at first may come back with another value, as queues do with channels.
pub(crate) fn restore_settings(
    journal: &mut Journal,
    left_alone: &[usize],
    options: &Options,
    mut before: impl FnMut(&mut Journal, usize),
) -> Result<Written, PlanError> {
    // The last change first.
    let changes = journal.head.changes.iter().cloned().enumerate().rev();
    let mut order: Vec<_> = changes.filter(|(index, _)| !left_alone.contains(index)).collect();
    order.sort_by_key(|(_, change)| is_last(&change.setting, change.old.as_ref()));
    let mut written = Written::default();
    for pass in 0..PASS_COUNT {
        let mut is_quiet = true;
        for (index, change) in &order {
            let wanted = match standing(journal, change, options) {
                Ok(Standing::Otherwise { wanted, .. }) => wanted,
                // What its old value needs may be restored by then.
                Ok(Standing::Replaces) if pass == 0 => {
                    is_quiet = false;
                    continue;
                }
                Ok(Standing::Replaces) => None,
                Ok(Standing::AsBefore | Standing::Gone(_)) => continue,
                Err(PlanError::Unfit(error)) if error.is_absent() => continue,
                Err(error) => return Err(error),
            };
            is_quiet = false;
            before(journal, *index);
            write_and_read(&change.setting, wanted.as_ref(), options).map_err(PlanError::Unfit)?;
            written.count += 1;
        }
        if is_quiet {
            break;
        }
    }
    written.gone = went(journal, &order, options)?;
    Ok(written)
}

/// Whether a value is restored after all others.
pub(crate) fn is_last(setting: &Setting, value: Option<&Value>) -> bool {
    value.is_some_and(|value| families::of(setting).is_restored_last(value))
}

/// What went of these changes. Fails for one that is neither as before nor gone.
fn went(journal: &Journal, changes: &[(usize, Change)], options: &Options) -> Result<Vec<Gone>, PlanError> {
    let mut tally = Tally::default();
    for (_, change) in changes {
        match standing(journal, change, options)? {
            _ if change.was_right() => {}
            Standing::AsBefore => tally.add_all(new_that_went(change, options)),
            Standing::Gone(needed) => tally.add_all(Some(needed)),
            Standing::Replaces => return Err(altered(change, None, change.new.clone())),
            Standing::Otherwise { live, wanted } => return Err(altered(change, wanted, live)),
        }
    }
    Ok(tally.all())
}

/// What took with it something that was not there before, so that it needs no removal.
fn new_that_went(change: &Change, options: &Options) -> Option<Needed> {
    let new = change.new.as_ref().filter(|_| change.old.is_none())?;
    needs(&change.setting, new, options)
}

fn altered(change: &Change, wanted: Option<Value>, found: Option<Value>) -> PlanError {
    let [wanted, found] = [wanted, found].map(|value| error::text(value.as_ref()));
    PlanError::Unfit(Fault::Altered { wanted, found }.of(&change.setting))
}

/// What is gone of a journal as things are now, and the indices of these changes.
pub(crate) fn gone(journal: &Journal, options: &Options) -> Result<(Vec<usize>, Vec<Gone>), PlanError> {
    let (mut indices, mut tally) = (Vec::new(), Tally::default());
    for (index, change) in journal.head.changes.iter().enumerate() {
        match standing(journal, change, options)? {
            Standing::Gone(needed) => {
                indices.push(index);
                tally.add_all(Some(needed).filter(|_| !change.was_right()));
            }
            Standing::AsBefore => tally.add_all(new_that_went(change, options)),
            Standing::Replaces | Standing::Otherwise { .. } => {}
        }
    }
    Ok((indices, tally.all()))
}

/// How a setting is, beside the value that it had before.
enum Standing {
    AsBefore,
    /// It is not there, and cannot have its old value again.
    Gone(Needed),
    /// It is there, in place of an old value that it cannot have again.
    Replaces,
    Otherwise {
        live: Option<Value>,
        /// To be written; `None` to remove the setting.
        wanted: Option<Value>,
    },
}

fn standing(journal: &Journal, change: &Change, options: &Options) -> Result<Standing, PlanError> {
    let Change { setting, old, .. } = change;
    let live = options.target.read(setting).map_err(PlanError::Unfit)?;
    let refuse_renamed = |was: &str| match renamed(journal, was, options) {
        Some(now) => Err(PlanError::Unfit(Fault::Renamed { was: was.to_owned(), now }.of(setting))),
        None => Ok(()),
    };
    if live.is_none() {
        setting.interface().map_or(Ok(()), |was| refuse_renamed(&was))?;
    }
    let is_as_before = same_or_absent(setting, old.as_ref(), live.as_ref());
    let needed = match (&live, old) {
        _ if is_as_before => return Ok(Standing::AsBefore),
        (None, _) if !setting.may_be_absent() => options.target.gone(setting, None),
        (_, Some(old)) => needs(setting, old, options),
        (_, None) => None,
    };
    if let Some(Needed::Interface(was)) = &needed {
        refuse_renamed(was)?;
    }
    match (needed, live) {
        (Some(needed), None) => Ok(Standing::Gone(needed)),
        (Some(_), Some(_)) => Ok(Standing::Replaces),
        (None, None) if !setting.may_be_absent() => Err(PlanError::Unfit(Fault::Absent.of(setting))),
        (None, live) => Ok(Standing::Otherwise { live, wanted: old.clone() }),
    }
}

/// What a setting that may be absent needs for a value, and what does not exist any more.
fn needs(setting: &Setting, value: &Value, options: &Options) -> Option<Needed> {
    if setting.may_be_absent() { options.target.gone(setting, Some(value)) } else { None }
}

/// The name that an interface of the journal has now.
fn renamed(journal: &Journal, was: &str, options: &Options) -> Option<String> {
    let known = journal.head.interfaces.get(was)?;
    let mut all = options.target.interfaces().into_iter();
    all.find(|(now, found)| found == known && now != was).map(|(now, _)| now)
}
