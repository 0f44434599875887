//! A lab's delay line that could not keep up: what it dropped or delayed is no
//! property of the path that it models.

use clearstream_schema::{
    diagnosis::{Cause, Experiment, ExperimentKind, SharedBy, Verdict},
    lab::DELAY_LINE_LIMIT_NOTICE,
    notice::Notice,
};

use crate::{Evidence, FlowObservation, experiments, facts::Facts};

fn limit(flow: &FlowObservation) -> Option<&Notice> {
    flow.summary.as_ref()?.notices.iter().find(|notice| notice.id == DELAY_LINE_LIMIT_NOTICE)
}

/// Notices about flows whose limit a delay line was, that of the flow diagnosed first.
pub(crate) fn notices(evidence: &Evidence) -> impl Iterator<Item = Notice> {
    evidence.flows.iter().filter_map(|flow| {
        let notice = limit(flow)?.clone();
        Some(match flow.kind {
            ExperimentKind::AsRequested => notice,
            kind => {
                let message = format!("experiment \"{}\": {}", experiments::name(kind), notice.message);
                Notice { message, ..notice }
            }
        })
    })
}

/// The verdict, unless it names as a property of the path what a delay line did.
pub(crate) fn judge(facts: &Facts<'_>, verdict: Verdict) -> Verdict {
    let Some(notice) = facts.evidence.flows.first().and_then(limit) else { return verdict };
    let Verdict::Found(finding) = &verdict else { return verdict };
    let is_of_the_path = matches!(
        finding.cause,
        Cause::PathCapacity { .. }
            | Cause::Loss { .. }
            | Cause::Reordering { .. }
            | Cause::Policer { .. }
            | Cause::CongestionControl { .. }
            | Cause::UnevenFlows { shared: SharedBy::Path | SharedBy::Unknown, .. }
    );
    if !is_of_the_path {
        return verdict;
    }
    Verdict::Unknown {
        because: notice.message.clone(),
        experiment: Box::new(Experiment {
            kind: ExperimentKind::Repeat,
            question: "repeat the flow over a link with a rate that the lab's machine can carry".to_owned(),
            flow: facts.config.clone(),
        }),
    }
}
