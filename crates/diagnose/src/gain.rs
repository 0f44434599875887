//! Goodput that a flow may reach without its limit: at least that of an experiment of the
//! same run, at most what line, card or the next arithmetic limit
//! allows. Nothing is extrapolated from the load of a core: a thread that uses
//! a few per cent of one, or that is itself the limit, predicts nothing of the rest.

use clearstream_schema::{
    diagnosis::{BufferLimit, Cause, ExperimentKind, GainBound, GainRange, Verdict},
    human::{bytes, rate, time},
};

use crate::{
    FlowObservation,
    experiments::{best_requested_bps, described},
    facts::Facts,
    formulas, hosts,
};

/// A flow of some seconds repeats within this fraction of its rate.
const SCATTER: f64 = 0.85;
/// A smaller increase is not a gain.
const GAIN: f64 = 1.05;

/// The range; `None` when neither end is known, or there is no limit.
pub(crate) fn range(facts: &Facts<'_>, verdict: &Verdict) -> Option<GainRange> {
    let Verdict::Found(finding) = verdict else { return None };
    let at_least = reached(facts, &finding.cause);
    let lowest = at_least.as_ref().map_or(facts.goodput_bps, |bound| bound.rate_bps).max(facts.goodput_bps);
    // What was reached refutes a bound below it.
    let at_most = allowed(facts, &finding.cause)
        .into_iter()
        .min_by(|one, other| one.rate_bps.total_cmp(&other.rate_bps))
        .filter(|bound| bound.rate_bps >= lowest);
    let gains =
        at_least.is_some() || at_most.as_ref().is_some_and(|bound| bound.rate_bps > GAIN * facts.goodput_bps);
    gains.then_some(GainRange { at_least, at_most })
}

/// Goodput of an experiment in the same direction without the limit, or of flows over
/// the same path at the same time.
fn reached(facts: &Facts<'_>, cause: &Cause) -> Option<GainBound> {
    let counts = |flow: &&FlowObservation| {
        let same = flow.config.direction == facts.config.direction;
        let kind = match flow.kind {
            ExperimentKind::AsRequested
            | ExperimentKind::Repeat
            | ExperimentKind::Longer
            | ExperimentKind::Reverse => false,
            // Over microseconds several flows use more cores than one has.
            ExperimentKind::SeveralFlows => {
                flow.config.flows > facts.config.flows
                    && (!facts.is_local() || matches!(cause, Cause::UnevenFlows { .. }))
            }
            _ => true,
        };
        same && kind
    };
    let others = facts.evidence.flows.iter().filter(counts);
    let best = others.max_by(|one, other| one.goodput_bps().total_cmp(&other.goodput_bps()))?;
    let reached = best.goodput_bps();
    (SCATTER * reached > GAIN * best_requested_bps(facts)).then(|| GainBound {
        rate_bps: SCATTER * reached,
        basis: format!(
            "{} reached {} in this run, less 15 % of scatter",
            described(best, facts),
            rate(reached)
        ),
    })
}

/// Upper bounds: rates of the line, the cards and their PCIe links,
/// pacing, and buffers of a fixed size over a long path, as far as they are not
/// the limit itself.
fn allowed(facts: &Facts<'_>, cause: &Cause) -> Vec<GainBound> {
    let bound = |rate_bps: f64, basis: String| GainBound { rate_bps, basis };
    let mut bounds = Vec::new();
    if let Some(line) = facts.evidence.line_rate {
        bounds.push(bound(line.0 as f64, format!("the line between them has {}", rate(line.0 as f64))));
    }
    for part in facts.parts() {
        let Some(nic) = part.nic else { continue };
        if let (Some(speed), Some(most)) = (nic.line_rate_bps(), nic.goodput_max_bps()) {
            bounds.push(bound(most, format!("{} of {} on {}", rate(speed as f64), nic.name, part.name())));
        }
        if let Some(ceiling) = hosts::device(part.host, nic).and_then(|device| device.ceiling.as_ref())
            && !matches!(cause, Cause::Pcie { .. })
        {
            bounds
                .push(bound(ceiling.optimistic_bps, format!("PCIe link of {} on {}", nic.name, part.name())));
        }
    }
    if let Some(pacing) = facts.max_pacing_bps.filter(|_| !matches!(cause, Cause::Pacing { .. })) {
        bounds.push(bound(pacing * facts.flow_count, "SO_MAX_PACING_RATE of the sockets".to_owned()));
    }
    if !facts.is_local() {
        bounds.extend(buffers(facts, cause));
    }
    bounds
}

/// Every byte in flight is in the send buffer and in the receiver's window.
fn buffers(facts: &Facts<'_>, cause: &Cause) -> Vec<GainBound> {
    let rtt = facts.base_rtt_ns();
    let of = |size: f64, what: &str| GainBound {
        rate_bps: formulas::window_bps(size, rtt) * facts.flow_count,
        basis: format!("{} ({what}) over {}", bytes(size as u64), time(rtt)),
    };
    let most = |host, name| hosts::triple(host, name).map(|triple| triple[2] as f64);
    let explicit = matches!(
        cause,
        Cause::ReceiverWindow { held_by: BufferLimit::Explicit(_), .. }
            | Cause::SendBuffer { held_by: BufferLimit::Explicit(_), .. }
    );
    let config = facts.config;
    let mut bounds = Vec::new();
    let sends = matches!(cause, Cause::SendBuffer { .. });
    if let Some(size) = most(facts.sender.host, "net.ipv4.tcp_wmem").filter(|_| !sends || explicit)
        && (config.send_buffer.or(config.window).is_none() || explicit)
    {
        bounds.push(of(size, "the maximum of net.ipv4.tcp_wmem"));
    }
    let receives = matches!(cause, Cause::ReceiverWindow { .. });
    if let Some(size) = most(facts.receiver.host, "net.ipv4.tcp_rmem").filter(|_| !receives || explicit)
        && (config.receive_buffer.or(config.window).is_none() || explicit)
    {
        bounds.push(of(size, "the maximum of net.ipv4.tcp_rmem"));
    }
    bounds
}
