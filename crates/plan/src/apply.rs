//! Reading settings, and applying a plan: everything is checked, then the journal
//! is on disk, then each step is written and read back; the first failure restores
//! everything.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use clearstream_schema::plan::{PLAN_SCHEMA, Plan, Setting, Value, Values};
use jiff::Timestamp;

use crate::{
    Begun, Event, Fault, Identity, Options, PlanError, SettingError, error,
    families::same_or_absent,
    folder::Locked,
    journal::{Change, Head, Journal, Mark, SCHEMA, VERSION},
    restore,
    revert::end_unfinished,
};

/// Supported version of plans.
pub(crate) const PLAN_VERSION: u32 = 1;

/// Result of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Name of the journal; absent when everything was as desired already.
    pub journal: Option<String>,
    /// Indices of the steps that changed something.
    pub changed: Vec<usize>,
}

/// Values of settings; those that are not on this host are omitted.
pub fn read(settings: &[Setting], options: &Options) -> Result<Values, PlanError> {
    let mut values = Values::new();
    for setting in settings {
        options.check_touched(setting)?;
        if let Some(value) = options.target.read(setting).map_err(PlanError::Unfit)? {
            values.insert(setting.clone(), value);
        }
    }
    Ok(values)
}

/// Refuses a plan that names a setting, or gives it a value, which is not
/// permitted; no setting is read.
pub fn check_settings(plan: &Plan, options: &Options) -> Result<(), PlanError> {
    plan.steps.iter().try_for_each(|step| options.check_named(&step.setting))?;
    plan.steps.iter().try_for_each(|step| match &step.desired {
        Some(value) => options.check_given(&step.setting, value),
        None => Ok(()),
    })
}

/// Applies a plan in the order of its steps, all or nothing. Steps whose
/// setting holds the desired value already are left alone, so that applying
/// twice changes nothing the second time and leaves no second journal.
pub fn apply(plan: &Plan, options: &Options) -> Result<Applied, PlanError> {
    let identity = options.target.identity()?;
    check_fits(plan, &identity)?;
    let locked = Locked::lock(&options.journals)?;
    locked.sweep()?;
    end_unfinished(&identity, options)?;
    let changes = changes(plan, options)?;
    let changed: Vec<usize> = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| !change.was_right())
        .map(|(index, _)| index)
        .collect();
    if changed.is_empty() {
        return Ok(Applied { journal: None, changed });
    }
    let now = Timestamp::now();
    let (name, path) = locked.next_name(now)?;
    let head = Head {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        time: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        purpose: plan.purpose.clone(),
        identity,
        reverts: options.reverts.clone(),
        interfaces: interfaces_of(&changes, options),
        changes,
    };
    let mut journal = Journal::create(path, name.clone(), head, || options.emit(Event::JournalBegun))?;
    options.emit(Event::Journaled { journal: &name });
    if let Err(error) = (options.before_changes)(&Begun { journal: &name, head: &journal.head }) {
        // Nothing was changed: what stays of it is a journal that says so.
        drop(restore::restore(&mut journal, Some(error.to_string()), true, options));
        return Err(error);
    }
    for &index in &changed {
        journal.mark(Mark::Writing(index)).or_else(|error| undo_unwritten(&mut journal, error, options))?;
        let change = journal.head.changes.get(index);
        let written = change.map(|it| write_and_read(&it.setting, it.new.as_ref(), options));
        if let Some(Err(source)) = written {
            return undo(&mut journal, index + 1, source, options);
        }
    }
    // A later step may have changed a setting that an earlier one wrote or left as
    // it was.
    for (index, change) in journal.head.changes.clone().iter().enumerate() {
        if let Err(source) = holds(&change.setting, change.new.as_ref(), options) {
            return undo(&mut journal, index + 1, source, options);
        }
    }
    journal.mark(Mark::Applied).or_else(|error| undo_unwritten(&mut journal, error, options))?;
    options.emit(Event::Ended);
    Ok(Applied { journal: Some(name), changed })
}

/// A name alone does not tell an interface that is gone from one that is called otherwise.
fn interfaces_of(changes: &[Change], options: &Options) -> BTreeMap<String, String> {
    let named: BTreeSet<String> =
        changes.iter().filter_map(|change| change.setting.interface().map(Cow::into_owned)).collect();
    let mut all = if named.is_empty() { BTreeMap::new() } else { options.target.interfaces() };
    all.retain(|name, _| named.contains(name));
    all
}

fn check_fits(plan: &Plan, here: &Identity) -> Result<(), PlanError> {
    if plan.schema != PLAN_SCHEMA || plan.version != PLAN_VERSION {
        return Err(PlanError::OtherSchema { schema: plan.schema.clone(), version: plan.version });
    }
    if plan.host.name != here.name {
        return Err(PlanError::OtherHost { wanted: plan.host.name.clone(), found: here.name.clone() });
    }
    // A plan may name the version without the distribution's suffix.
    let is_version_of = |release: &str| {
        release
            .strip_prefix(plan.host.kernel.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if plan.host.kernel.is_empty() || !is_version_of(&here.kernel) {
        return Err(PlanError::OtherKernel { wanted: plan.host.kernel.clone(), found: here.kernel.clone() });
    }
    let mut seen = BTreeSet::new();
    match plan.steps.iter().find(|step| !seen.insert(&step.setting)) {
        Some(step) => Err(PlanError::Twice { setting: step.setting.clone() }),
        None => Ok(()),
    }
}

/// Every step with the current value. Checks, without writing, that all necessary
/// writes are possible in both directions.
fn changes(plan: &Plan, options: &Options) -> Result<Vec<Change>, PlanError> {
    let target = &options.target;
    let mut changes = Vec::new();
    check_settings(plan, options)?;
    for step in &plan.steps {
        let setting = step.setting.clone();
        let new = step.desired.clone();
        if new.is_none() && !setting.may_be_absent() {
            let reason = "cannot be removed: give the text that it is to hold".to_owned();
            return Err(PlanError::Unfit(Fault::Invalid { reason }.of(&setting)));
        }
        let old = target.read(&setting).map_err(PlanError::Unfit)?;
        if old.is_none() && !setting.may_be_absent() {
            return Err(PlanError::Unfit(Fault::Absent.of(&setting)));
        }
        let change = Change { setting, old, new, effect: step.effect };
        if !change.was_right() {
            for value in [&change.new, &change.old].into_iter().flatten() {
                target.check(&change.setting, value).map_err(PlanError::Unfit)?;
            }
        }
        changes.push(change);
    }
    Ok(changes)
}

/// Writes one value, or removes the setting, and reads it back.
pub(crate) fn write_and_read(
    setting: &Setting,
    value: Option<&Value>,
    options: &Options,
) -> Result<(), SettingError> {
    options.emit(Event::Writing { setting });
    match value {
        Some(value) => options.target.write(setting, value)?,
        None => options.target.remove(setting)?,
    }
    options.emit(Event::Written { setting });
    holds(setting, value, options)?;
    options.emit(Event::ReadBack { setting });
    Ok(())
}

fn holds(setting: &Setting, wanted: Option<&Value>, options: &Options) -> Result<(), SettingError> {
    let found = options.target.read(setting)?;
    if same_or_absent(setting, wanted, found.as_ref()) {
        return Ok(());
    }
    match found {
        None => Err(Fault::Absent.of(setting)),
        Some(found) => {
            let [wanted, found] = [wanted, Some(&found)].map(error::text);
            Err(Fault::Altered { wanted, found }.of(setting))
        }
    }
}

/// Restores what the steps up to the failed one wrote.
fn undo(
    journal: &mut Journal,
    step: usize,
    source: SettingError,
    options: &Options,
) -> Result<Applied, PlanError> {
    let reason = format!("step {step} failed: {source}");
    match restore::restore(journal, Some(reason.clone()), true, options) {
        Ok(_) => Err(PlanError::StepFailed { step, source }),
        Err(error) => Err(not_restored(journal, reason, error)),
    }
}

/// The same without marks, when the journal itself cannot be written.
fn undo_unwritten(journal: &mut Journal, error: PlanError, options: &Options) -> Result<(), PlanError> {
    let left_alone = journal.left_alone();
    match restore::restore_settings(journal, &left_alone, options, |_, _| ()) {
        Ok(_) => Err(PlanError::JournalFailed { source: Box::new(error) }),
        Err(inner) => Err(not_restored(journal, error.to_string(), inner)),
    }
}

fn not_restored(journal: &Journal, reason: String, error: PlanError) -> PlanError {
    match error {
        PlanError::Unfit(source) => {
            PlanError::NotRestored { reason, journal: journal.name.clone(), source: Box::new(source) }
        }
        other => other,
    }
}
