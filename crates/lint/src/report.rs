//! From what rules found to the report.

use std::cmp::Reverse;

use clearstream_schema::tune::{CheckedRouting, Finding, LINT_SCHEMA, LintReport, PathGoal};

use crate::mute::MuteList;

/// Version of the report.
const VERSION: u32 = 1;

/// Subject of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Host or file.
    pub subject: String,
    /// Kernel release.
    pub kernel: Option<String>,
    /// The assumed path.
    pub goal: Option<PathGoal>,
    /// Number of settings.
    pub setting_count: u64,
    /// The same by kind, of routing.
    pub routing: Option<CheckedRouting>,
    /// Parts that could not be read, with the reason.
    pub missing: Vec<String>,
}

/// The report of what rules found: ordered by severity, then host, place and id,
/// each finding once, without what is muted.
pub fn report(checked: Checked, mut findings: Vec<Finding>, mute: &MuteList) -> LintReport {
    findings.sort_by(|left, right| order(left).cmp(&order(right)));
    findings.dedup();
    let before = findings.len();
    findings.retain(|finding| !mute.holds(finding));
    LintReport {
        schema: LINT_SCHEMA.to_owned(),
        version: VERSION,
        subject: checked.subject,
        kernel: checked.kernel,
        goal: checked.goal,
        setting_count: checked.setting_count,
        checked: checked.routing,
        muted_count: (before - findings.len()) as u64,
        findings,
        missing: checked.missing,
    }
}

fn order(finding: &Finding) -> impl Ord + '_ {
    let Finding { severity, host, place, id, value, interface, .. } = finding;
    (Reverse(*severity), host, place, id, value, interface)
}
