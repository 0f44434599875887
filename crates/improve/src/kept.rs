//! Settings that the loop has changed on the hosts, and their reversal.

use clearstream_schema::{
    diagnosis::End,
    flow::FlowConfig,
    improvement::{Candidate, Change, KeptJournal},
    plan::Step,
};
use serde_json::Value;

use crate::{ImproveError, Testbed};

/// The hosts, and which changes are in effect on them.
pub(crate) struct State<'a, B> {
    pub(crate) testbed: &'a mut B,
    /// Candidates in effect, oldest first, each with its journals.
    applied: Vec<(String, Vec<KeptJournal>)>,
    /// Journals that are no longer pending.
    final_journals: Vec<(End, String)>,
}

impl<'a, B: Testbed> State<'a, B> {
    pub(crate) fn new(testbed: &'a mut B) -> Self {
        Self { testbed, applied: Vec::new(), final_journals: Vec::new() }
    }

    /// Journals in effect, oldest first.
    pub(crate) fn journals(&self) -> Vec<KeptJournal> {
        self.applied.iter().flat_map(|(_, journals)| journals.clone()).collect()
    }

    /// Applies the settings of a candidate; nothing when they are in effect.
    /// All hosts or none.
    pub(crate) fn apply(&mut self, candidate: &Candidate) -> Result<(), ImproveError> {
        if self.applied.iter().any(|(id, _)| *id == candidate.id) {
            return Ok(());
        }
        self.applied.push((candidate.id.clone(), Vec::new()));
        let names = self.testbed.names();
        for end in [End::Client, End::Server] {
            let steps: Vec<Step> = settings(candidate, end).cloned().collect();
            if steps.is_empty() {
                continue;
            }
            match self.testbed.apply(end, &steps) {
                Ok(Some(journal)) => {
                    let host = if end == End::Client { names.0.clone() } else { names.1.clone() };
                    if let Some((_, journals)) = self.applied.last_mut() {
                        journals.push(KeptJournal { end, host, journal });
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    self.revert(candidate)?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Commits the effective settings: until then they are restored when this program
    /// dies.
    pub(crate) fn keep_all(&mut self) -> Result<(), ImproveError> {
        for KeptJournal { end, journal, .. } in self.journals() {
            let entry = (end, journal);
            if !self.final_journals.contains(&entry) {
                self.testbed.keep(entry.0, &entry.1)?;
                self.final_journals.push(entry);
            }
        }
        Ok(())
    }

    /// Reverts the settings of a candidate; nothing when they are not effective.
    pub(crate) fn revert(&mut self, candidate: &Candidate) -> Result<(), ImproveError> {
        let Some(place) = self.applied.iter().position(|(id, _)| *id == candidate.id) else {
            return Ok(());
        };
        let (_, journals) = self.applied.remove(place);
        self.revert_journals(journals)
    }

    /// Reverts all changes, the newest first.
    pub(crate) fn revert_all(&mut self) -> Result<(), ImproveError> {
        while let Some((_, journals)) = self.applied.pop() {
            self.revert_journals(journals)?;
        }
        Ok(())
    }

    fn revert_journals(&mut self, journals: Vec<KeptJournal>) -> Result<(), ImproveError> {
        for KeptJournal { end, host, journal } in journals.into_iter().rev() {
            if let Err(source) = self.testbed.revert(end, &journal) {
                return Err(ImproveError::StillEffective { host, journal, source: Box::new(source) });
            }
        }
        Ok(())
    }
}

fn settings(candidate: &Candidate, of: End) -> impl Iterator<Item = &Step> {
    candidate.changes.iter().filter_map(move |change| match change {
        Change::Setting { end, step } if *end == of => Some(step),
        _ => None,
    })
}

/// The flow with the options of a candidate.
pub(crate) fn with_options(base: &FlowConfig, candidate: &Candidate) -> Result<FlowConfig, ImproveError> {
    let mut config = base.clone();
    for change in &candidate.changes {
        if let Change::Option { key, value } = change {
            config = config.with(key, value.clone())?;
        }
    }
    Ok(config)
}

/// All changes of several candidates as one; of two changes of the same place
/// the later counts.
pub(crate) fn together(candidates: &[Candidate], reason: &str) -> Candidate {
    let mut changes: Vec<Change> = Vec::new();
    for change in candidates.iter().flat_map(|candidate| &candidate.changes) {
        changes.retain(|earlier| place(earlier) != place(change));
        changes.push(change.clone());
    }
    let titles: Vec<&str> = candidates.iter().map(|candidate| candidate.title.as_str()).collect();
    Candidate {
        id: format!("together: {}", titles.join("; ")),
        title: titles.join("; "),
        reason: reason.to_owned(),
        changes,
    }
}

/// The candidates of [`together`] with the changes that count there, no two of the
/// same place; those of which nothing counts are left out.
pub(crate) fn each_alone(candidates: &[Candidate]) -> Vec<Candidate> {
    let alone = |(at, candidate): (usize, &Candidate)| {
        let later = candidates[at + 1..].iter().flat_map(|later| &later.changes);
        let counts = |change: &&Change| later.clone().all(|later| place(later) != place(change));
        let changes: Vec<Change> = candidate.changes.iter().filter(counts).cloned().collect();
        (!changes.is_empty()).then(|| Candidate { changes, ..candidate.clone() })
    };
    candidates.iter().enumerate().filter_map(alone).collect()
}

/// Key of a change, the same for the same place.
fn place(change: &Change) -> (Option<End>, Value) {
    match change {
        Change::Option { key, .. } => (None, Value::String(key.clone())),
        Change::Setting { end, step } => {
            (Some(*end), clearstream_schema::json::to_value(&step.setting).unwrap_or(Value::Null))
        }
    }
}
