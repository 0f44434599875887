//! Bottlenecks that one flow alone does not show: queues too short to build up, and
//! other traffic in front of the same link. The sum of several flows distinguishes them
//! from losses that each flow has for itself.

use clearstream_schema::{
    diagnosis::{Cause, EvidenceItem, Finding, Remedy},
    human::{rate, time},
};

use super::path::{fills_a_queue, has_queue, hosts_are_busy};
use crate::{
    FlowObservation,
    experiments::{SHARED, exceeding, several},
    facts::Facts,
};

/// Sum of several flows / one flow from which on they have a common limit: a sum below
/// it is another limit.
const SAME_SUM_LEAST: f64 = 0.7;
/// Excess over the lowest round-trip time, relative to it, of a queue that never empties.
const NEVER_EMPTY: f64 = 0.3;
/// The same of a path on which nothing of ours runs, with the least time that is no
/// jitter of hosts.
const IDLE_QUEUE: f64 = 0.1;
const IDLE_QUEUE_LEAST_NS: f64 = 2e6;
/// Congestion window in use, from which on it is what holds the flow.
const HELD: f64 = 0.7;

/// Congestion windows and round trip rise together by this much where the windows
/// fill a queue (Spearman).
const RISES_TOGETHER: f64 = 0.5;
/// Smallest fraction of the base round trip, and smallest time, that counts as a queue.
const SHORT_QUEUE: f64 = 0.03;
const SHORT_QUEUE_LEAST_NS: f64 = 300_000.0;
/// The same of a short queue that never empties (AQM with a window that stays).
const STANDS: f64 = 0.05;
const STANDS_LEAST_NS: f64 = 1e6;

/// The peaks of the round trip are those of a queue that the flow fills: they rise
/// with its congestion window, or the queue never empties. Jitter of hosts does not
/// depend on the window.
pub(super) fn peaks_are_a_queue(facts: &Facts<'_>) -> bool {
    let base = facts.base_rtt_ns() as f64;
    let (low, high) = (facts.medians.rtt_low_ns - base, facts.medians.rtt_high_ns - base);
    let queued = facts.goodput_bps / 8.0 * high / 1e9;
    let peaks = high >= (SHORT_QUEUE * base).max(SHORT_QUEUE_LEAST_NS) && queued >= 65_536.0;
    let stands = low >= (STANDS * base).max(STANDS_LEAST_NS);
    !facts.is_local() && peaks && (stands || facts.window_to_rtt.is_some_and(|rank| rank >= RISES_TOGETHER))
}

/// One flow and several carry the same sum over a path whose short queue they fill,
/// as behind a switch with small buffers or an AQM (CoDel, RFC 8289: 5 ms): the
/// losses are how TCP finds the rate of such a link.
pub(super) fn short_full_queue(facts: &Facts<'_>) -> Option<Finding> {
    let medians = &facts.medians;
    let (other, ratio) = several(facts)?;
    let held = medians.window_fill >= HELD || medians.not_sent > medians.in_flight;
    let queue = fills_a_queue(facts) || fills_a_queue(&other);
    let same = (SAME_SUM_LEAST..SHARED).contains(&ratio);
    if !held || !queue || !same || hosts_are_busy(facts) || hosts_are_busy(&other) {
        return None;
    }
    let base = facts.base_rtt_ns();
    let peak = (medians.rtt_high_ns.max(other.medians.rtt_high_ns) as u64).saturating_sub(base);
    let carried = facts.goodput_bps.max(other.goodput_bps);
    Some(Finding {
        cause: Cause::PathCapacity { rate_bps: carried, queue_ns: peak },
        sentence: format!(
            "path capacity: {} flow(s) carry {} and {} carry {}: the bottleneck carries no more, and its queue holds up to {}; no host is at fault",
            facts.flow_count,
            rate(facts.goodput_bps),
            other.flow_count,
            rate(other.goodput_bps),
            time(peak)
        ),
        fault: false,
        evidence: vec![
            sums(facts, &other),
            round_trips(facts),
            facts.sampled(
                format!(
                    "{:.4} % of the bytes were retransmitted: less than several flows with losses of their own would allow",
                    facts.recent_loss_ratio() * 100.0
                ),
                "change of tcpi_bytes_retrans / tcpi_bytes_sent",
            ),
        ],
        remedies: vec![Remedy::Physical {
            what: "a faster path, or less other traffic on it: hosts cannot help".to_owned(),
        }],
    })
}

/// A queue that this flow does not cause: it never empties, or it persists while
/// nothing of ours runs; and several flows get a larger part of the link.
pub(super) fn other_traffic(facts: &Facts<'_>) -> Option<Finding> {
    let more = exceeding(facts)?;
    let several_flows = more.config.flows > facts.config.flows;
    let base = facts.base_rtt_ns();
    let never_empty = has_queue(facts) && facts.medians.rtt_low_ns >= (1.0 + NEVER_EMPTY) * base as f64;
    let before = queue_before(facts);
    if facts.is_local() || !several_flows || (!never_empty && before.is_none()) {
        return None;
    }
    let low = (facts.medians.rtt_low_ns as u64).saturating_sub(base);
    let why = match before {
        Some(queue) if !never_empty => {
            format!("{} of data was in its queue before this flow started", time(queue))
        }
        _ => format!("at least {} of data is in its queue nine tenths of the time", time(low)),
    };
    Some(Finding {
        cause: Cause::PathCapacity { rate_bps: more.goodput_bps(), queue_ns: facts.queue_ns() },
        sentence: format!(
            "path capacity, shared with other traffic (or of several legs): {why}, and {} flows carry {} where {} had {}; no host is at fault",
            more.config.flows,
            rate(more.goodput_bps()),
            facts.flow_count,
            rate(facts.goodput_bps)
        ),
        fault: false,
        evidence: evidence_of_others(facts, more),
        remedies: vec![Remedy::Physical {
            what: "repeat the measurement without the other traffic, or give this one a dedicated capacity (a queue, a class): hosts cannot help"
                .to_owned(),
        }],
    })
}

/// Queue that the probe met before any flow ran: the middle of its delays above the least.
fn queue_before(facts: &Facts<'_>) -> Option<u64> {
    let probe = facts.probed()?;
    let delays = probe.udp.iter().chain(&probe.tcp);
    let base = facts.base_rtt_ns();
    let queue = delays.map(|stats| stats.p50_ns.saturating_sub(base)).min()?;
    (queue as f64 >= (IDLE_QUEUE * base as f64).max(IDLE_QUEUE_LEAST_NS)).then_some(queue)
}

fn evidence_of_others(facts: &Facts<'_>, more: &FlowObservation) -> Vec<EvidenceItem> {
    let mut evidence = vec![sums(facts, &Facts::of_flow(facts.evidence, more)), round_trips(facts)];
    if let Some(queue) = queue_before(facts) {
        evidence.push(EvidenceItem {
            statement: format!("half of the probes waited {} and more while no flow ran", time(queue)),
            source: "probe: median of the round trips, less the lowest".to_owned(),
        });
    }
    evidence
}

fn sums(facts: &Facts<'_>, other: &Facts<'_>) -> EvidenceItem {
    EvidenceItem {
        statement: format!(
            "{} flow(s): {}; {} flow(s): {}",
            facts.flow_count,
            rate(facts.goodput_bps),
            other.flow_count,
            rate(other.goodput_bps)
        ),
        source: "goodput of the flow and of the experiment with another number of flows".to_owned(),
    }
}

fn round_trips(facts: &Facts<'_>) -> EvidenceItem {
    let medians = &facts.medians;
    facts.sampled(
        format!(
            "rtt {} to {} (a tenth of the samples below and above), {} at least",
            time(medians.rtt_low_ns as u64),
            time(medians.rtt_high_ns as u64),
            time(facts.base_rtt_ns())
        ),
        "percentiles of tcpi_rtt, lowest of tcpi_min_rtt and probe",
    )
}
