//! Whether a run can be resumed: its inputs must be unchanged, or its trials
//! could not be compared with each other.

use std::{collections::BTreeSet, path::Path};

use clearstream_record::Reader;
use clearstream_schema::{
    CoreList, TimeSpan,
    host::HostReport,
    lab::LabFile,
    record::{RunDocument, RunHost, Treatments},
    study::StudyFile,
};

use crate::{Mode, StudyError};

/// Options that decide which trials a run has, as far as they were given for resuming it.
#[derive(Debug, Clone, Default)]
pub struct ResumeOptions {
    /// Mode.
    pub mode: Option<Mode>,
    /// Seed of the order of trials.
    pub seed: Option<u64>,
    /// Only these experiments; empty: not given.
    pub only: Vec<String>,
    /// Time for the whole run.
    pub budget: Option<TimeSpan>,
}

impl ResumeOptions {
    /// Checks them against the record of a run: a resumed run has the trials that it was
    /// started with. Options that were not given are those of the record.
    ///
    /// # Errors
    /// [`StudyError::OtherOptions`] names the difference; the record cannot be read.
    pub fn check(&self, folder: &Path) -> Result<(), StudyError> {
        let reader = Reader::open(folder)?;
        let changes = self.changes(reader.run());
        if changes.is_empty() {
            return Ok(());
        }
        Err(StudyError::OtherOptions { folder: folder.to_owned(), changes })
    }

    fn changes(&self, run: &RunDocument) -> Vec<String> {
        let mut changes = Vec::new();
        if let Some(mode) = self.mode.filter(|mode| mode.to_string() != run.mode) {
            changes.push(format!("it ran in mode {}, not {mode}", run.mode));
        }
        if let Some(seed) = self.seed.filter(|seed| *seed != run.seed) {
            changes.push(format!("it ran with --seed {}, not {seed}", run.seed));
        }
        let named = |names: &[String]| {
            names.iter().map(|name| format!("--experiment {name}")).collect::<Vec<_>>().join(" ")
        };
        let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<String>>();
        if !self.only.is_empty() && set(&self.only) != set(&run.only) {
            let before = if run.only.is_empty() { "all experiments".to_owned() } else { named(&run.only) };
            changes.push(format!("it ran {before}, not {}", named(&self.only)));
        }
        if let Some(budget) = self.budget.filter(|budget| Some(*budget) != run.budget) {
            changes.push(match run.budget {
                Some(before) => format!("it ran with --budget {before}, not {budget}"),
                None => format!("it ran without --budget, not with {budget}"),
            });
        }
        changes
    }
}

/// Differences from the run, as text; empty when none matters.
pub(crate) fn changes(
    run: &RunDocument,
    study: Option<&StudyFile>,
    (lab, treatments): (Option<&LabFile>, Option<&Treatments>),
    hosts: &[RunHost],
) -> Vec<String> {
    let mut changes = Vec::new();
    if let Some(study) = study {
        study_changes(&run.study, study, &mut changes);
    }
    if run.treatments.as_ref() != treatments {
        changes.push(match &run.treatments {
            Some(before) => {
                format!("it ran with --before '{}' --after '{}'", before.before, before.after)
            }
            None => "it ran without --before and --after".to_owned(),
        });
    }
    match (&run.lab, lab) {
        (Some(before), Some(now)) if before == now => {}
        (None, None) => {}
        (Some(before), Some(now)) if before.name == now.name => {
            changes.push(format!("the lab {} is not as it was", now.name));
        }
        (before, now) => {
            let name = |lab: Option<&LabFile>| {
                lab.map_or("on real hosts".to_owned(), |lab| format!("in the lab {}", lab.name))
            };
            changes.push(format!("it ran {}, not {}", name(before.as_ref()), name(now)));
        }
    }
    let roles = |hosts: &[RunHost]| hosts.iter().map(|host| host.role.clone()).collect::<Vec<_>>();
    if roles(&run.hosts) == roles(hosts) {
        for (place, (before, now)) in run.hosts.iter().zip(hosts).enumerate() {
            host_changes(&called(&run.hosts, place), &before.report, &now.report, &mut changes);
        }
    } else {
        let named = |host: &RunHost| format!("{} ({})", host.name, host.role);
        let all = |hosts: &[RunHost]| hosts.iter().map(named).collect::<Vec<_>>().join(", ");
        changes.push(format!("it ran on {}, not on {}", all(&run.hosts), all(hosts)));
    }
    changes
}

/// A host in a message: by its role, or by its name where others have that role, too.
pub(crate) fn called(hosts: &[RunHost], place: usize) -> String {
    let host = &hosts[place];
    match hosts.iter().filter(|other| other.role == host.role).count() {
        1 => format!("the {}", host.role),
        _ => host.name.clone(),
    }
}

fn study_changes(before: &StudyFile, now: &StudyFile, changes: &mut Vec<String>) {
    if before == now {
        return;
    }
    if before.name != now.name {
        return changes.push(format!("it is a run of study {}, not of {}", before.name, now.name));
    }
    let mut found = Vec::new();
    for experiment in &before.experiments {
        match now.experiments.iter().find(|other| other.name == experiment.name) {
            None => found.push(format!("experiment {} is gone", experiment.name)),
            Some(other) if other != experiment => {
                found.push(format!("experiment {} was changed", experiment.name))
            }
            Some(_) => {}
        }
    }
    for experiment in &now.experiments {
        if !before.experiments.iter().any(|other| other.name == experiment.name) {
            found.push(format!("experiment {} is new", experiment.name));
        }
    }
    if before.options != now.options {
        found.push("the options that all experiments share were changed".to_owned());
    }
    if found.is_empty() {
        found.push("the order of the experiments or the text about them was changed".to_owned());
    }
    changes.push(format!("study {}: {}", now.name, found.join(", ")));
}

fn host_changes(host: &str, before: &HostReport, now: &HostReport, changes: &mut Vec<String>) {
    let mut differs = |what: &str, before: String, now: String| {
        if before != now {
            changes.push(format!("{host}'s {what} was {before}, is {now}"));
        }
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let online = |host: &HostReport| {
        let cores =
            host.processing_units.iter().filter(|unit| unit.online && unit.allowed).map(|unit| unit.core);
        CoreList(cores.collect()).to_string()
    };
    let nics = |host: &HostReport| {
        let names = host.nics.iter().map(|nic| match &nic.driver {
            Some(driver) => format!("{} ({driver})", nic.name),
            None => nic.name.clone(),
        });
        names.collect::<Vec<_>>().join(" ")
    };
    differs("name", before.name.clone(), now.name.clone());
    differs("processor", text(&before.cpu_model), text(&now.cpu_model));
    differs("set of cores", online(before), online(now));
    differs("kernel", text(&before.kernel.release), text(&now.kernel.release));
    differs("set of interfaces", nics(before), nics(now));
}
