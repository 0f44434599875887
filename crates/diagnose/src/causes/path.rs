//! Causes in the path itself: a full queue, drops above a rate, a congestion
//! control that carries less over it than an alternative.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, ExperimentKind, Finding, Remedy},
    human::{rate, time},
};

use super::{
    bottleneck,
    transport::{FULL, MOST_OF_THE_TIME, WINDOW_USED},
};
use crate::{
    FlowObservation,
    experiments::{BETTER, BETTER_THAN_TWO, SHARED, best_requested_bps, several},
    facts::Facts,
    format::percent,
};

/// Time in queues / lowest round-trip time that shows a standing queue.
const STANDING_QUEUE: f64 = 0.3;
/// A queue holds this many segments of a flow at least, or [`QUEUED_BYTES`]: with
/// less in flight, delayed acknowledgements lengthen the round trip as well (RFC
/// 1122, 4.2.3.2: up to 0.5 s; Linux 40 ms and more).
const QUEUED_SEGMENTS: f64 = 10.0;
/// That much is a queue whatever the segments are.
const QUEUED_BYTES: f64 = 65_536.0;
/// Window / round trip beyond which a window is not the limit of busy hosts.
const BUSY_MULTIPLE: f64 = 4.0;
/// A thread with work for this fraction of the time makes a queue of its own on a
/// path of microseconds: packets wait for the core that processes them.
const HOST_BUSY: f64 = 0.6;
/// Loss of a policer.
const POLICED_LOSS: f64 = 1e-4;
/// Losses of several flows / of one where they crowd each other out.
const MORE_LOSS: f64 = 2.0;
/// Part of the proportional sum that flows with losses of their own reach at least.
const OWN_LOSSES: f64 = 0.7;
/// Peaks of the round trip above the base that are no queue.
const NO_PEAK: f64 = 0.015;
/// From this share on a line is full.
const LINE_FULL: f64 = 0.85;
/// Sum of several flows / one flow of packets that are dropped above a rate.
const SAME_SUM: std::ops::RangeInclusive<f64> = 0.7..=SHARED;

/// Data waits in front of the bottleneck, more than acknowledgements explain.
pub(super) fn has_queue(facts: &Facts<'_>) -> bool {
    let queue_ns = facts.queue_ns() as f64;
    let queued = facts.goodput_bps / 8.0 * queue_ns / 1e9 / facts.flow_count;
    let enough = (QUEUED_SEGMENTS * facts.mss_bytes).min(QUEUED_BYTES);
    queue_ns >= STANDING_QUEUE * facts.base_rtt_ns() as f64 && queued >= enough
}

/// Data waits in front of the bottleneck, always or at the peaks of the window.
pub(super) fn fills_a_queue(facts: &Facts<'_>) -> bool {
    has_queue(facts) || bottleneck::peaks_are_a_queue(facts)
}

/// A window or buffer that would carry clearly more than was measured, over the idle
/// path, behind a standing queue: it bounds the queue of a full path and not the rate.
pub(super) fn bounds_the_queue(facts: &Facts<'_>, allowed_bps: f64) -> bool {
    // On a path of microseconds packets that wait for a busy core are a queue as well.
    let multiple = if hosts_are_busy(facts) { BUSY_MULTIPLE } else { 1.0 + STANDING_QUEUE };
    has_queue(facts) && allowed_bps > multiple * facts.goodput_bps
}

/// A path of microseconds whose hosts are busy: an apparent queue of the
/// path is packets that wait for a core.
pub(crate) fn hosts_are_busy(facts: &Facts<'_>) -> bool {
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
    // A window or buffer that ends the growth of the queue keeps the socket full, too.
    let held = medians.window_fill >= WINDOW_USED
        || (medians.not_sent > medians.in_flight && relative > 0.5)
        || medians.window_limited >= MOST_OF_THE_TIME
        || medians.buffer_fill.is_some_and(|fill| fill >= FULL);
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
            format!("{:.4} % of the bytes were retransmitted", facts.loss_ratio() * 100.0),
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
            what: "a faster path, or less other traffic on it: hosts cannot help".to_owned(),
        }],
    })
}

fn no_queue(facts: &Facts<'_>) -> EvidenceItem {
    facts.sampled(
        format!(
            "rtt {} against {} at least: nothing waits in a queue",
            time(facts.medians.rtt_ns as u64),
            time(facts.base_rtt_ns())
        ),
        "median of tcpi_rtt, lowest of tcpi_min_rtt and probe",
    )
}

fn policer_remedies(facts: &Facts<'_>, allowed_bps: f64) -> Vec<Remedy> {
    vec![
        Remedy::Physical {
            what:
                "find the policer on the path (a firewall's limit, a port's rate), or have it shape instead"
                    .to_owned(),
        },
        Remedy::ChangeFlow {
            key: "pacing".to_owned(),
            value: format!("{:.0}Mb/s", (allowed_bps / facts.flow_count / 1e6).max(1.0)).into(),
        },
    ]
}

/// One flow and several have the same sum, lose packets and leave no queue:
/// something drops what is above a rate.
pub(super) fn policer(facts: &Facts<'_>) -> Option<Finding> {
    let loss = facts.recent_loss_ratio();
    if loss < POLICED_LOSS || fills_a_queue(facts) || hosts_are_busy(facts) {
        return None;
    }
    let (other, ratio) = several(facts)?;
    let same = SAME_SUM.contains(&ratio) || crowded(facts, &other, ratio);
    let lossy = other.recent_loss_ratio() >= POLICED_LOSS;
    if !same || !lossy || fills_a_queue(&other) || hosts_are_busy(&other) {
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
                    "{:.3} % of the bytes were retransmitted; in the experiment {:.3} %",
                    loss * 100.0,
                    other.recent_loss_ratio() * 100.0
                ),
                "change of tcpi_bytes_retrans / tcpi_bytes_sent",
            ),
            no_queue(facts),
        ],
        remedies: policer_remedies(facts, allowed),
    })
}

/// A bucket of a few segments: one flow leaves much of it, several flows fill it,
/// and their losses grow with their number, which those of a damaged line do not.
/// No queue shows, not even at the peaks, and the sum is not that of a known line.
fn crowded(facts: &Facts<'_>, other: &Facts<'_>, ratio: f64) -> bool {
    let (fewer, more) = if other.flow_count > facts.flow_count { (facts, other) } else { (other, facts) };
    let denser = more.recent_loss_ratio() >= MORE_LOSS * fewer.recent_loss_ratio();
    let alone = ratio < OWN_LOSSES * more.flow_count / fewer.flow_count;
    let peak = |facts: &Facts<'_>| facts.medians.rtt_high_ns / facts.base_rtt_ns() as f64 - 1.0;
    let line = facts.evidence.line_rate.is_some_and(|line| more.goodput_bps >= LINE_FULL * line.0 as f64);
    let flat = peak(facts) <= NO_PEAK && peak(other) <= NO_PEAK;
    ratio > SHARED && alone && denser && flat && !line && !facts.is_local()
}

/// The congestion control that Linux sends with by default, where the sender
/// has it and uses another.
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
    let requested = best_requested_bps(facts);
    let gain = experiment.goodput_bps() / requested.max(1.0);
    let twice = facts.experiment(ExperimentKind::Repeat).is_some();
    let better = gain > if twice { BETTER_THAN_TWO } else { BETTER };
    // With cubic, loss or a short queue explains that another does better.
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
            rate(requested),
            rate(experiment.goodput_bps())
        ),
        // Some per cent are its cost, and over loopback there is no path that a
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
    let repeated = facts.experiment(ExperimentKind::Repeat);
    let runs = repeated
        .map_or_else(String::new, |repeated| format!(", and repeated {}", rate(repeated.goodput_bps())));
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
                "{name} retransmitted {:.4} % of the bytes, {other} {:.4} %",
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
