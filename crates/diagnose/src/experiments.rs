//! What the experiments of a run say against a verdict.

use clearstream_schema::{
    diagnosis::{Cause, ExperimentKind, Finding},
    human::rate,
};

use crate::{FlowObservation, facts::Facts};

/// A result this much higher is no scatter.
pub(crate) const BETTER: f64 = 1.25;
/// The same where the requested flow was measured twice and both runs are below.
pub(crate) const BETTER_THAN_TWO: f64 = 1.1;

/// The requested flow, in all its runs.
fn is_the_same(kind: ExperimentKind) -> bool {
    matches!(kind, ExperimentKind::AsAsked | ExperimentKind::Again | ExperimentKind::Longer)
}

/// The best run of the requested flow: a machine has slow spells, and what
/// is higher than one of those only shows nothing.
pub(crate) fn best_asked_bps(facts: &Facts<'_>) -> f64 {
    let runs = facts.evidence.flows.iter().filter(|flow| is_the_same(flow.kind));
    runs.map(FlowObservation::goodput_bps).fold(facts.goodput_bps, f64::max)
}

/// The best experiment in the same direction.
pub(crate) fn best<'a>(facts: &Facts<'a>) -> Option<&'a FlowObservation> {
    let others = facts.evidence.flows.iter().filter(|flow| {
        !is_the_same(flow.kind)
            && flow.kind != ExperimentKind::Reverse
            && flow.config.direction == facts.config.direction
    });
    others.max_by(|one, other| one.goodput_bps().total_cmp(&other.goodput_bps()))
}

/// An experiment in the same direction that carried clearly more than the flow
/// in its best run.
pub(crate) fn exceeding<'a>(facts: &Facts<'a>) -> Option<&'a FlowObservation> {
    best(facts).filter(|flow| flow.goodput_bps() > BETTER * best_asked_bps(facts))
}

/// Another run of the same flow that carried clearly more: the machine changed.
fn steadier<'a>(facts: &Facts<'a>) -> Option<&'a FlowObservation> {
    let runs = facts.evidence.flows.iter();
    runs.filter(|flow| matches!(flow.kind, ExperimentKind::Again | ExperimentKind::Longer))
        .find(|flow| flow.goodput_bps() > BETTER * facts.goodput_bps)
}

/// Why a finding cannot be the limit: an experiment carried what it excludes.
pub(crate) fn contradiction(facts: &Facts<'_>, finding: &Finding) -> Option<String> {
    let changed = |again: &FlowObservation| {
        format!(
            "the same flow gave {} and then {}: the machine or the path changed meanwhile",
            rate(facts.goodput_bps),
            rate(again.goodput_bps())
        )
    };
    match &finding.cause {
        Cause::PathCapacity { .. } | Cause::Policer { .. } => steadier(facts).map(changed).or_else(|| {
            let more = exceeding(facts)?;
            Some(format!(
                "{} carried {} over the same path where this flow had {}: the path is not full",
                described(more, facts),
                rate(more.goodput_bps()),
                rate(best_asked_bps(facts))
            ))
        }),
        Cause::Cpu { .. } | Cause::InterruptCollision { .. } | Cause::Loss { .. } => {
            steadier(facts).map(changed)
        }
        Cause::SenderApplication { .. } if facts.config.burst_flows == 0 => steadier(facts).map(changed),
        _ => None,
    }
}

/// The experiment as the subject of a sentence.
pub(crate) fn described(flow: &FlowObservation, facts: &Facts<'_>) -> String {
    match flow.kind {
        ExperimentKind::SeveralFlows if flow.config.flows > facts.config.flows => {
            format!("{} flows", flow.config.flows)
        }
        ExperimentKind::SeveralFlows => "one flow".to_owned(),
        ExperimentKind::OtherCongestionControl => {
            flow.config.congestion_control.clone().unwrap_or_else(|| "another congestion control".to_owned())
        }
        ExperimentKind::WithoutWindow => "the flow without an explicit window".to_owned(),
        ExperimentKind::WithoutPacing => "the flow without pacing".to_owned(),
        ExperimentKind::WithoutPauses => "the flow without pauses".to_owned(),
        ExperimentKind::OtherReceiverCore => "the reader on another core".to_owned(),
        ExperimentKind::OtherSenderCore => "the writer on another core".to_owned(),
        ExperimentKind::Reverse => "the other direction".to_owned(),
        ExperimentKind::AsAsked | ExperimentKind::Again | ExperimentKind::Longer => {
            "the same flow".to_owned()
        }
    }
}

/// What an experiment is called in messages.
pub(crate) fn name(kind: ExperimentKind) -> &'static str {
    match kind {
        ExperimentKind::AsAsked => "the requested flow",
        ExperimentKind::Longer => "the same, longer",
        ExperimentKind::SeveralFlows => "another number of flows",
        ExperimentKind::Reverse => "the other way",
        ExperimentKind::WithoutWindow => "without an explicit window",
        ExperimentKind::WithoutPacing => "without pacing",
        ExperimentKind::WithoutPauses => "without pauses",
        ExperimentKind::OtherReceiverCore => "the reader on another core",
        ExperimentKind::OtherSenderCore => "the writer on another core",
        ExperimentKind::OtherCongestionControl => "another congestion control",
        ExperimentKind::Again => "the same flow again",
    }
}
