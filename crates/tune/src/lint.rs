//! Entry points of the linter.

use std::collections::BTreeSet;

use clearstream_lint::{Checked, MuteList, report};
use clearstream_schema::tune::{LintReport, PathGoal};

use crate::{
    knowledge::Knowledge,
    rules::{self, Facts},
    state::HostState,
};

/// Checks a host's settings, for a path where one is given. Duplicate findings of
/// several rules are merged.
pub fn lint(state: &HostState, goal: Option<&PathGoal>, mute: &MuteList) -> LintReport {
    let facts = Facts { state, known: Knowledge::embedded(), goal };
    let mut findings = rules::run(&facts);
    let mut seen = BTreeSet::new();
    findings.retain(|it| seen.insert((it.severity, it.id.clone(), it.place.clone(), it.interface.clone())));
    let checked = Checked {
        subject: state.subject.clone(),
        kernel: state.release.clone(),
        goal: goal.copied(),
        setting_count: (state.values.len().max(state.given.len()) + state.options.len()) as u64,
        routing: None,
        missing: state.missing.clone(),
    };
    report(checked, findings, mute)
}

/// Checks a file as if applied to a host, and returns only findings that the
/// file causes.
pub fn of_given_lines(mut report: LintReport, state: &HostState) -> LintReport {
    let files: Vec<&str> = state.given.iter().map(|given| given.place.file.as_str()).collect();
    report.findings.retain(|finding| {
        let is_given = finding.place.as_ref().is_some_and(|place| {
            files.contains(&place.file.as_str()) || state.slips.iter().any(|(file, _)| *file == place.file)
        });
        is_given || finding.key == "flows"
    });
    report
}
