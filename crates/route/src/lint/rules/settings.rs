//! What `tune lint` finds in the same host's sysctls.

use clearstream_lint::MuteList;
use clearstream_schema::tune::{Finding, Severity};
use clearstream_tune::lint;

use super::super::{Facts, View};

/// All findings of files; of a whole host the errors in its network sysctls,
/// because the others do not concern routes.
pub(super) fn sysctls(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let Some(state) = &host.subject.settings else { return };
    let findings = lint(state, None, &MuteList::default()).findings;
    let is_wanted = |finding: &Finding| {
        !host.is_whole() || finding.severity == Severity::Error && finding.key.starts_with("net.")
    };
    found.extend(findings.into_iter().filter(is_wanted).map(|mut finding| {
        finding.host = Some(host.subject.name.clone());
        finding
    }));
}
