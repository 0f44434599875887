//! Flows of one test that differ: what the slow ones share is the finding.

use clearstream_schema::{
    diagnosis::{Cause, ExperimentKind, Finding, Remedy, SharedBy},
    human::{rate, time},
};

use crate::{
    each::{EachFlow, divided},
    facts::Facts,
    series::median,
};

/// Loss of a flow that counts.
const LOSS: f64 = 1e-4;

/// Some of the requested flows are slow, which is a finding whatever they share.
/// Flows that send in bursts are slower on request.
pub(super) fn uneven(facts: &Facts<'_>) -> Option<Finding> {
    if facts.config.burst_flows > 0 {
        return None;
    }
    let (slow, fast) = divided(&facts.each)?;
    Some(finding(facts, &slow, &fast, shared(&slow, &fast).unwrap_or(SharedBy::Unknown)))
}

/// One flow was slow, and of several some are as slow and others are not: it
/// had the slow leg.
pub(super) fn uneven_experiment(facts: &Facts<'_>) -> Option<Finding> {
    let experiment = facts.experiment(ExperimentKind::SeveralFlows)?;
    let several = Facts::of_flow(facts.evidence, experiment);
    let (slow, fast) = divided(&several.each)?;
    let own = facts.goodput_bps / facts.flow_count;
    let as_slow = own < 3.0 * middle(&slow, |flow| flow.goodput_bps);
    let slower = own < 0.3 * middle(&fast, |flow| flow.goodput_bps);
    let shared = shared(&slow, &fast)?;
    (as_slow && slower).then(|| finding(&several, &slow, &fast, shared))
}

fn middle(flows: &[&EachFlow], of: fn(&EachFlow) -> f64) -> f64 {
    median(flows.iter().map(|flow| of(flow))).unwrap_or(0.0)
}

fn shared(slow: &[&EachFlow], fast: &[&EachFlow]) -> Option<SharedBy> {
    let rtts = (middle(slow, |flow| flow.rtt_ns), middle(fast, |flow| flow.rtt_ns));
    let least = (middle(slow, |flow| flow.min_rtt_ns), middle(fast, |flow| flow.min_rtt_ns));
    let losses = (middle(slow, |flow| flow.loss_ratio), middle(fast, |flow| flow.loss_ratio));
    // One burst, as at the end of slow start, is lost on any leg.
    let lost = middle(slow, |flow| flow.halves_loss_ratio.0.min(flow.halves_loss_ratio.1)) >= LOSS;
    let lossy = lost && losses.0 >= LOSS && losses.0 >= 10.0 * losses.1;
    let longer = least.0 >= 1.5 * least.1 && least.0 - least.1 >= 50_000.0;
    if lossy || longer || rtts.0 >= 5.0 * rtts.1 {
        return Some(SharedBy::Path);
    }
    let core = |of: fn(&EachFlow) -> Option<u32>| {
        let core = of(slow.first()?)?;
        let all = slow.iter().all(|flow| of(flow) == Some(core));
        let others = fast.iter().all(|flow| of(flow).is_some_and(|other| other != core));
        (all && others).then_some(core)
    };
    core(|flow| flow.receiver_core)
        .map(SharedBy::ReceiverCore)
        .or_else(|| core(|flow| flow.sender_core).map(SharedBy::SenderCore))
        .or_else(|| (rtts.0 >= 2.0 * rtts.1).then_some(SharedBy::Path))
}

fn finding(facts: &Facts<'_>, slow: &[&EachFlow], fast: &[&EachFlow], shared: SharedBy) -> Finding {
    let numbers: Vec<u32> = slow.iter().map(|flow| flow.number).collect();
    let rates = (middle(slow, |flow| flow.goodput_bps), middle(fast, |flow| flow.goodput_bps));
    let common = match shared {
        SharedBy::Path => format!(
            "the slow ones have a leg of the path in common (round trip {} against {}, {:.3} % lost against {:.3} %)",
            time(middle(slow, |flow| flow.rtt_ns) as u64),
            time(middle(fast, |flow| flow.rtt_ns) as u64),
            100.0 * middle(slow, |flow| flow.loss_ratio),
            100.0 * middle(fast, |flow| flow.loss_ratio)
        ),
        SharedBy::SenderCore(core) => format!("the slow ones share core {core} of {}", facts.sender.name()),
        SharedBy::ReceiverCore(core) => {
            format!("the slow ones share core {core} of {}", facts.receiver.name())
        }
        SharedBy::Unknown => {
            "neither a core, nor delay or loss, distinguishes the slow ones from the others".to_owned()
        }
    };
    let what = match shared {
        SharedBy::Path => {
            "compare the equal-cost legs of the path: their rates, queues and losses; a slow one takes every flow that is hashed to it"
        }
        SharedBy::SenderCore(_) | SharedBy::ReceiverCore(_) => "give each flow a core of its own",
        SharedBy::Unknown => {
            "repeat with other source ports: flows that stay slow by their number have a core or a queue in common, flows that stay slow by their ports a leg of the path"
        }
    };
    Finding {
        sentence: format!(
            "uneven flows: {} of {} have {} each and the others {}; {common}",
            slow.len(),
            slow.len() + fast.len(),
            rate(rates.0),
            rate(rates.1)
        ),
        cause: Cause::UnevenFlows { slow_flows: numbers, slow_bps: rates.0, fast_bps: rates.1, shared },
        // CUBIC flows of some seconds differ as much by chance: without a core or a leg
        // that the slow ones share, nothing is wrong yet.
        fault: shared != SharedBy::Unknown,
        evidence: vec![
            facts.sampled(
                facts
                    .each
                    .iter()
                    .map(|flow| {
                        format!(
                            "flow {}: {}, rtt {}",
                            flow.number,
                            rate(flow.goodput_bps),
                            time(flow.rtt_ns as u64)
                        )
                    })
                    .collect::<Vec<_>>()
                    .join("; "),
                "bytes that reached each reader, median of tcpi_rtt",
            ),
        ],
        remedies: vec![Remedy::Physical { what: what.to_owned() }],
    }
}
