//! What the path itself does: a full queue, drops above a rate, a congestion
//! control that does not get out of it what another one does.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, ExperimentKind, Finding, Remedy},
    human::{rate, time},
};

use super::transport::WINDOW_USED;
use crate::{
    FlowObservation,
    experiments::{BETTER, BETTER_THAN_TWO, best_asked_bps},
    facts::Facts,
    words::percent,
};

/// Time in queues / lowest round-trip time that shows a standing queue.
const STANDING_QUEUE: f64 = 0.3;
/// A queue holds this many segments of a flow at least, or [`QUEUED_BYTES`]: with
/// less in flight, delayed acknowledgements lengthen the round trip as well (RFC
/// 1122, 4.2.3.2: up to 0.5 s; Linux 40 ms and more).
const QUEUED_SEGMENTS: f64 = 10.0;
/// That much is a queue whatever the segments are.
const QUEUED_BYTES: f64 = 65_536.0;
/// A thread with work for this share of the time makes a queue of its own on a
/// path of microseconds: packets wait for the core that processes them.
const HOST_BUSY: f64 = 0.6;
/// Loss of a policer.
const POLICED_LOSS: f64 = 1e-4;
/// Sum of several flows / one flow of packets that are dropped above a rate.
const SAME_SUM: std::ops::RangeInclusive<f64> = 0.7..=1.5;

/// Data waits in front of the bottleneck, more than acknowledgements explain.
pub(super) fn has_queue(facts: &Facts<'_>) -> bool {
    let queue_ns = facts.queue_ns() as f64;
    let queued = facts.goodput_bps / 8.0 * queue_ns / 1e9 / facts.flow_count;
    let enough = (QUEUED_SEGMENTS * facts.mss_bytes).min(QUEUED_BYTES);
    queue_ns >= STANDING_QUEUE * facts.base_rtt_ns() as f64 && queued >= enough
}

/// A path of microseconds whose hosts are busy: what looks like a queue of the
/// path is packets that wait for a core.
pub(super) fn hosts_are_busy(facts: &Facts<'_>) -> bool {
    let incoming = facts.incoming_core.and_then(|(core, _)| facts.receiver.core_softirq(core));
    facts.is_local()
        && (facts.parts().iter().any(|part| part.runnable() >= HOST_BUSY)
            || incoming.is_some_and(|share| share >= HOST_BUSY))
}

/// A standing queue in front of the bottleneck: the path carries no more.
pub(super) fn path_capacity(facts: &Facts<'_>) -> Option<Finding> {
    let queue_ns = facts.queue_ns();
    let relative = queue_ns as f64 / facts.base_rtt_ns() as f64;
    let medians = &facts.medians;
    let held = medians.window_fill >= WINDOW_USED || (medians.not_sent > medians.in_flight && relative > 0.5);
    if !held || !has_queue(facts) || hosts_are_busy(facts) {
        return None;
    }
    let evidence = vec![
        facts.sampled(
            format!(
                "rtt {} against {} at least: {} of it in a queue",
                time(medians.rtt_ns as u64),
                time(facts.base_rtt_ns()),
                time(queue_ns)
            ),
            "median of tcpi_rtt, lowest of tcpi_min_rtt and probe",
        ),
        facts.sampled(
            format!("{} of the congestion window is in flight", percent(medians.window_fill)),
            "median of tcpi_unacked / tcpi_snd_cwnd",
        ),
        facts.sampled(
            format!("{:.4} % of the bytes were sent again", facts.loss_ratio() * 100.0),
            "change of tcpi_bytes_retrans / tcpi_bytes_sent",
        ),
    ];
    Some(Finding {
        cause: Cause::PathCapacity { rate_bps: facts.goodput_bps, queue_ns },
        sentence: format!(
            "path capacity: the bottleneck carries {} and has {} of data queued in front of it; no host is at fault",
            rate(facts.goodput_bps),
            time(queue_ns)
        ),
        fault: false,
        evidence,
        remedies: vec![Remedy::Physical {
            what: "a faster path, or less other traffic on it: hosts cannot give more".to_owned(),
        }],
    })
}

/// One flow and several have the same sum, lose packets and leave no queue:
/// something drops what is above a rate.
pub(super) fn policer(facts: &Facts<'_>) -> Option<Finding> {
    let loss = facts.recent_loss_ratio();
    if loss < POLICED_LOSS || has_queue(facts) || hosts_are_busy(facts) {
        return None;
    }
    let experiment = facts.experiment(ExperimentKind::SeveralFlows)?;
    let other = Facts::of_flow(facts.evidence, experiment);
    let ratio = other.goodput_bps / best_asked_bps(facts).max(1.0);
    let ratio = if other.flow_count > facts.flow_count { ratio } else { 1.0 / ratio.max(1e-9) };
    let alike = SAME_SUM.contains(&ratio) && other.recent_loss_ratio() >= POLICED_LOSS;
    if !alike || has_queue(&other) || hosts_are_busy(&other) {
        return None;
    }
    let allowed = other.goodput_bps.max(facts.goodput_bps);
    Some(Finding {
        cause: Cause::Policer { rate_bps: allowed, loss_ratio: loss },
        sentence: format!(
            "policer: packets above about {} are dropped and never queued; {} flow(s) have {} together, {} have {}",
            rate(allowed),
            facts.flow_count,
            rate(facts.goodput_bps),
            other.flow_count,
            rate(other.goodput_bps)
        ),
        fault: true,
        evidence: vec![
            facts.sampled(
                format!(
                    "{:.3} % of the bytes were sent again; in the experiment {:.3} %",
                    loss * 100.0,
                    other.recent_loss_ratio() * 100.0
                ),
                "change of tcpi_bytes_retrans / tcpi_bytes_sent",
            ),
            facts.sampled(
                format!(
                    "rtt {} against {} at least: nothing waits in a queue",
                    time(facts.medians.rtt_ns as u64),
                    time(facts.base_rtt_ns())
                ),
                "median of tcpi_rtt, lowest of tcpi_min_rtt and probe",
            ),
        ],
        remedies: vec![
            Remedy::Physical {
                what: "find the policer on the path (a firewall's limit, a port's rate), or have it shape instead"
                    .to_owned(),
            },
            Remedy::ChangeFlow {
                key: "pacing".to_owned(),
                value: format!("{:.0}Mb/s", (allowed / facts.flow_count / 1e6).max(1.0)).into(),
            },
        ],
    })
}

/// The congestion control that Linux sends with by default, where the sender
/// has it and uses another one.
pub(crate) fn other_congestion_control(facts: &Facts<'_>) -> Option<String> {
    let effective = facts.congestion_control.as_deref()?;
    let known = &facts.sender.host.kernel.congestion_controls;
    (effective != "cubic" && known.iter().any(|name| name == "cubic")).then(|| "cubic".to_owned())
}

/// Another congestion control carried clearly more over the same path.
pub(super) fn congestion_control(facts: &Facts<'_>) -> Option<Finding> {
    let name = facts.congestion_control.clone()?;
    let experiment = facts.experiment(ExperimentKind::OtherCongestionControl)?;
    let other = experiment.config.congestion_control.clone()?;
    let asked = best_asked_bps(facts);
    let gain = experiment.goodput_bps() / asked.max(1.0);
    let twice = facts.experiment(ExperimentKind::Again).is_some();
    let better = gain > if twice { BETTER_THAN_TWO } else { BETTER };
    // With cubic, loss or a short queue is why another one does better.
    if !better || name == "cubic" || name == other {
        return None;
    }
    Some(Finding {
        cause: Cause::CongestionControl {
            name: name.clone(),
            other: other.clone(),
            other_bps: experiment.goodput_bps(),
        },
        sentence: format!(
            "congestion control: {name} sends {} over this path, and {other} {}",
            rate(asked),
            rate(experiment.goodput_bps())
        ),
        // Some per cent are its price, and over loopback there is no path that a
        // congestion control could suit.
        fault: gain > BETTER && !facts.sender.over_loopback,
        evidence: congestion_evidence(facts, experiment, &name, &other),
        remedies: vec![Remedy::ChangeFlow { key: "congestion-control".to_owned(), value: other.into() }],
    })
}

fn congestion_evidence(
    facts: &Facts<'_>,
    experiment: &FlowObservation,
    name: &str,
    other: &str,
) -> Vec<EvidenceItem> {
    let with = Facts::of_flow(facts.evidence, experiment);
    let again = facts.experiment(ExperimentKind::Again);
    let runs = again.map_or_else(String::new, |again| format!(", and again {}", rate(again.goodput_bps())));
    vec![
        EvidenceItem {
            statement: format!(
                "{name}: {}{runs}; {other}: {}",
                rate(facts.goodput_bps),
                rate(experiment.goodput_bps())
            ),
            source: "goodput of the flow and of the experiment with another congestion control".to_owned(),
        },
        facts.sampled(
            format!(
                "{name} sent {:.4} % of the bytes again, {other} {:.4} %",
                facts.loss_ratio() * 100.0,
                with.loss_ratio() * 100.0
            ),
            "change of tcpi_bytes_retrans / tcpi_bytes_sent",
        ),
        facts.sampled(
            format!("the writer had work {} of the time", percent(facts.sender.runnable())),
            "schedstat of the sending thread",
        ),
    ]
}
