//! Comparison of the experiments of a run with a verdict.

use clearstream_schema::{
    diagnosis::{Cause, ExperimentKind, Finding, Role},
    flow::FlowConfig,
    human::rate,
};

use crate::{
    FlowObservation,
    causes::{hosts_are_busy, losses},
    facts::Facts,
};

/// A result this much higher is no scatter.
pub(crate) const BETTER: f64 = 1.25;
/// The same where the requested flow was measured twice and both runs are below.
pub(crate) const BETTER_THAN_TWO: f64 = 1.1;

/// Losses, reordering or a window that each flow has for itself let several flows
/// carry as many times as much; below this multiple of one flow they share the limit.
pub(crate) const SHARED: f64 = 1.5;

/// Without its limit a flow carries this many times as much at least.
const REMOVAL_MIN: f64 = 1.05;

/// The requested flow, in all its runs.
fn is_the_same(kind: ExperimentKind) -> bool {
    matches!(kind, ExperimentKind::AsRequested | ExperimentKind::Repeat | ExperimentKind::Longer)
}

/// The best run of the requested flow: a machine has slow spells, and what
/// is higher than one of those only shows nothing.
pub(crate) fn best_requested_bps(facts: &Facts<'_>) -> f64 {
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
    best(facts).filter(|flow| flow.goodput_bps() > BETTER * best_requested_bps(facts))
}

/// Another run of the same flow that carried clearly more: the machine changed.
fn steadier<'a>(facts: &Facts<'a>) -> Option<&'a FlowObservation> {
    let runs = facts.evidence.flows.iter();
    runs.filter(|flow| matches!(flow.kind, ExperimentKind::Repeat | ExperimentKind::Longer))
        .find(|flow| flow.goodput_bps() > BETTER * facts.goodput_bps)
}

/// Contradiction of a finding: an experiment carried what it excludes.
pub(crate) fn contradiction(facts: &Facts<'_>, finding: &Finding) -> Option<String> {
    let changed = |repeated: &FlowObservation| {
        format!(
            "the same flow reached {} and then {}: the machine or the path changed meanwhile",
            rate(facts.goodput_bps),
            rate(repeated.goodput_bps())
        )
    };
    match &finding.cause {
        // One flow alone leaves some of what a policer or a short queue lets through.
        Cause::PathCapacity { rate_bps, .. } | Cause::Policer { rate_bps, .. } => {
            steadier(facts).map(changed).or_else(|| {
                not_full(facts, exceeding(facts).filter(|more| more.goodput_bps() > BETTER * rate_bps)?)
            })
        }
        Cause::Cpu { .. } => steadier(facts).map(changed).or_else(|| faster_elsewhere(facts)),
        // Random losses of a few seconds differ: another run that they explain is not a path change.
        Cause::Loss { .. } => steadier(facts)
            .filter(|repeated| losses::loss(&Facts::of_flow(facts.evidence, repeated)).is_none())
            .map(changed)
            .or_else(|| shared(facts, SHARED)),
        Cause::Reordering { .. } => steadier(facts).map(changed).or_else(|| shared(facts, SHARED)),
        Cause::ReceiverWindow { .. } | Cause::SendBuffer { .. } => {
            match facts.experiment(ExperimentKind::WithoutWindow) {
                Some(_) => removed_in_vain(facts, &finding.cause),
                None => shared(facts, REMOVAL_MIN),
            }
        }
        Cause::InterruptCollision { .. } => {
            steadier(facts).map(changed).or_else(|| removed_in_vain(facts, &finding.cause))
        }
        Cause::SenderApplication { .. } if facts.config.burst_flows == 0 => steadier(facts).map(changed),
        cause => removed_in_vain(facts, cause),
    }
}

/// Several flows over the same path, and how many times as much they carry as the
/// fewer ones in their best run.
pub(crate) fn several<'a>(facts: &Facts<'a>) -> Option<(Facts<'a>, f64)> {
    let other = Facts::of_flow(facts.evidence, facts.experiment(ExperimentKind::SeveralFlows)?);
    let ratio = other.goodput_bps / best_requested_bps(facts).max(1.0);
    let ratio = if other.flow_count > facts.flow_count { ratio } else { 1.0 / ratio.max(1e-9) };
    Some((other, ratio))
}

/// Several flows carry less than this multiple of one: what each of them has for
/// itself, as its window or its losses, is not the limit. Busy hosts are a limit of
/// their own.
fn shared(facts: &Facts<'_>, multiple: f64) -> Option<String> {
    let (other, ratio) = several(facts)?;
    let limited = other.flow_count == facts.flow_count || hosts_are_busy(&other);
    (ratio < multiple && !limited).then(|| {
        format!(
            "{} flow(s) carried {} together and {} {}: they have a common limit, not one per flow",
            other.flow_count,
            rate(other.goodput_bps),
            facts.flow_count,
            rate(best_requested_bps(facts))
        )
    })
}

/// An experiment carried more over the same path.
fn not_full(facts: &Facts<'_>, more: &FlowObservation) -> Option<String> {
    Some(format!(
        "{} carried {} over the same path where this flow had {}: the path is not full, or shared with other traffic",
        described(more, facts),
        rate(more.goodput_bps()),
        rate(best_requested_bps(facts))
    ))
}

/// As many flows on another core did what "one core does no more" excludes.
fn faster_elsewhere(facts: &Facts<'_>) -> Option<String> {
    let kinds = [ExperimentKind::OtherReceiverCore, ExperimentKind::OtherSenderCore];
    let more = kinds
        .into_iter()
        .filter_map(|kind| facts.experiment(kind))
        .find(|flow| flow.goodput_bps() > BETTER * best_requested_bps(facts))?;
    Some(format!(
        "{} carried {} where this flow had {}: a core does more",
        described(more, facts),
        rate(more.goodput_bps()),
        rate(best_requested_bps(facts))
    ))
}

/// The experiment without the cause carried no more than the flow with it.
fn removed_in_vain(facts: &Facts<'_>, cause: &Cause) -> Option<String> {
    let kind = confirming(cause, facts.config)?;
    let least = match kind {
        ExperimentKind::WithoutWindow | ExperimentKind::WithoutPacing | ExperimentKind::WithoutPauses => {
            REMOVAL_MIN
        }
        // The other core is no better one where the peer of the flow has it.
        ExperimentKind::OtherReceiverCore if !matches!(cause, Cause::SharedCore { .. }) => 1.0,
        ExperimentKind::OtherSenderCore => 1.0,
        _ => return None,
    };
    let without = facts.experiment(kind)?;
    let cores = |config: &FlowConfig| (config.sender_cores.clone(), config.receiver_cores.clone());
    let (senders, receivers) = cores(&without.config);
    let together = facts.one_machine && senders.is_some() && senders == receivers;
    (!together && without.goodput_bps() < least * facts.goodput_bps).then(|| {
        format!(
            "{} carried {} where this flow had {}: that was not the limit",
            described(without, facts),
            rate(without.goodput_bps()),
            rate(facts.goodput_bps)
        )
    })
}

/// The experiment that takes a cause away, or shows it once more.
pub(crate) fn confirming(cause: &Cause, requested: &FlowConfig) -> Option<ExperimentKind> {
    let explicit = requested.window.or(requested.send_buffer).or(requested.receive_buffer).is_some();
    match cause {
        Cause::ReceiverWindow { .. } | Cause::SendBuffer { .. } if explicit => {
            Some(ExperimentKind::WithoutWindow)
        }
        Cause::ReceiverWindow { .. } | Cause::SendBuffer { .. } => Some(ExperimentKind::LargerBuffer),
        Cause::Pacing { by_socket: true, .. } => Some(ExperimentKind::WithoutPacing),
        Cause::ReceiverApplication { .. } => {
            requested.receiver_pause.or(requested.receiver_work).map(|_| ExperimentKind::WithoutPauses)
        }
        Cause::SenderApplication { .. } => {
            (requested.burst_flows > 0).then_some(ExperimentKind::WithoutPauses)
        }
        Cause::InterruptCollision { .. }
        | Cause::SharedCore { .. }
        | Cause::NumaRemote { role: Role::Receiver, .. } => Some(ExperimentKind::OtherReceiverCore),
        Cause::NumaRemote { .. } => Some(ExperimentKind::OtherSenderCore),
        Cause::StillRamping { .. } => Some(ExperimentKind::Longer),
        Cause::Contention { .. } => Some(ExperimentKind::Repeat),
        // Losses of a policer stay when there are more flows, and the sum too.
        Cause::Loss { .. } | Cause::Reordering { .. } => Some(ExperimentKind::SeveralFlows),
        // No flow can be requested without them.
        Cause::PathMtu { .. }
        | Cause::MemoryPressure { .. }
        | Cause::Pcie { .. }
        | Cause::LineRate { .. }
        | Cause::InterfaceLoss { .. }
        | Cause::PauseFrames { .. }
        | Cause::Pacing { by_socket: false, .. }
        | Cause::Policer { .. }
        | Cause::CongestionControl { .. }
        | Cause::UnevenFlows { .. }
        | Cause::CpuQuota { .. }
        | Cause::PathCapacity { .. }
        | Cause::Cpu { .. }
        | Cause::ReceiveOverrun { .. } => None,
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
        ExperimentKind::Paced => "the flow, paced,".to_owned(),
        ExperimentKind::LargerBuffer => "the flow with a larger buffer".to_owned(),
        ExperimentKind::WithoutPauses => "the flow without pauses".to_owned(),
        ExperimentKind::OtherReceiverCore => "the reader on another core".to_owned(),
        ExperimentKind::OtherSenderCore => "the writer on another core".to_owned(),
        ExperimentKind::Reverse => "the other direction".to_owned(),
        ExperimentKind::AsRequested | ExperimentKind::Repeat | ExperimentKind::Longer => {
            "the same flow".to_owned()
        }
    }
}

/// Name of an experiment in messages.
pub(crate) fn name(kind: ExperimentKind) -> &'static str {
    match kind {
        ExperimentKind::AsRequested => "the requested flow",
        ExperimentKind::Longer => "the same, longer",
        ExperimentKind::SeveralFlows => "another number of flows",
        ExperimentKind::Reverse => "the opposite direction",
        ExperimentKind::WithoutWindow => "without an explicit window",
        ExperimentKind::WithoutPacing => "without pacing",
        ExperimentKind::Paced => "paced above the measured rate",
        ExperimentKind::LargerBuffer => "with a larger buffer",
        ExperimentKind::WithoutPauses => "without pauses",
        ExperimentKind::OtherReceiverCore => "the reader on another core",
        ExperimentKind::OtherSenderCore => "the writer on another core",
        ExperimentKind::OtherCongestionControl => "another congestion control",
        ExperimentKind::Repeat => "the same flow repeated",
    }
}
