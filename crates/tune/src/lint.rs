//! Runs the rules and orders what they found.

use clearstream_schema::tune::{Finding, LINT_SCHEMA, LintReport, PathGoal};

use crate::{
    knowledge::Knowledge,
    mute::MuteList,
    rules::{self, Facts},
    state::HostState,
};

/// Version of the report.
const VERSION: u32 = 1;

/// Looks at a host's settings, for a path where one is given. Findings are
/// ordered by severity, then place, then id; each stands there once.
pub fn lint(state: &HostState, goal: Option<&PathGoal>, mute: &MuteList) -> LintReport {
    let facts = Facts { state, known: Knowledge::embedded(), goal };
    let mut findings = rules::run(&facts);
    findings.sort_by(|left, right| order(left).cmp(&order(right)));
    findings.dedup_by(|left, right| {
        left.id == right.id && left.place == right.place && left.interface == right.interface
    });
    let before = findings.len();
    findings.retain(|finding| !mute.holds(finding));
    LintReport {
        schema: LINT_SCHEMA.to_owned(),
        version: VERSION,
        subject: state.subject.clone(),
        kernel: state.release.clone(),
        goal: goal.copied(),
        setting_count: (state.values.len().max(state.given.len()) + state.options.len()) as u64,
        muted_count: (before - findings.len()) as u64,
        findings,
        missing: state.missing.clone(),
    }
}

/// Only what a given file's lines bring about: for a file that is looked at as
/// it would be on a host, whose own settings are not in question.
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

fn order(finding: &Finding) -> impl Ord + '_ {
    (std::cmp::Reverse(finding.severity), &finding.place, &finding.id, &finding.interface)
}
