//! What the tool that is to load a file, or the kernel behind it, does not take: the readers of the
//! formats know that, and the rest of the host is checked as if it were not there.

use clearstream_schema::{
    routing::files::Loader,
    tune::{Finding, FindingClass, Severity},
};

use super::super::{Facts, View, With, finding};

pub(super) fn refused(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for refused in &host.routing.files.refused {
        let (class, cause) = match refused.severity {
            Severity::Note => (FindingClass::Unverifiable, "depends-on-release"),
            _ if matches!(refused.place.by, Loader::Command | Loader::Conditional) => {
                (FindingClass::Range, "refused")
            }
            _ => (FindingClass::NoOp, "not-taken"),
        };
        found.push(
            finding(host, refused.what, class, cause, refused.severity, refused.reason.clone())
                .of(refused.text.clone())
                .at(Some(&refused.place))
                .advise(refused.advice.clone())
                .sourced(refused.source),
        );
    }
}
