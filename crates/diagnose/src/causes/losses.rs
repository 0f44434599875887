//! Lost packets that keep the congestion window small.

use clearstream_schema::{
    diagnosis::{Cause, ExperimentKind, Finding, LossModel, Remedy},
    human::{bytes, rate, time},
};
use serde_json::Value;

use super::path::{fills_a_queue, has_queue, hosts_are_busy};
use crate::{
    experiments::{BETTER, best_requested_bps, exceeding},
    facts::Facts,
    format::percent,
    formulas,
    stages::{goal_bps, goal_text},
};

/// Losses below this ratio are noise, of one or two packets.
const RESENT_MIN: f64 = 2e-6;
/// Fewer reordering events than this are noise.
const REORDERINGS_MIN: u64 = 10;
/// Reordering events / segments retransmitted from which on the one explains the other.
const REORDERED: f64 = 0.2;
/// Loss of a paced flow / of the same unpaced where bursts were lost.
const SPARED: f64 = 0.1;
/// Losses that a paced flow must have escaped to prove that.
const EXPECTED_MIN: f64 = 20.0;
/// Loss from which on timeouts matter.
const TIMEOUT_LOSS: f64 = 3e-3;

/// Lost packets without a full queue.
pub(crate) fn loss(facts: &Facts<'_>) -> Option<Finding> {
    if has_queue(facts) { None } else { explained(facts) }
}

/// Lost packets of a queue that is too short: several flows carry more.
pub(super) fn short_queue(facts: &Facts<'_>) -> Option<Finding> {
    exceeding(facts)?;
    // One that is as long as the round trip is not short: other traffic fills it.
    if facts.queue_ns() >= facts.base_rtt_ns() { None } else { explained(facts) }
}

/// The rate that the loss allows is the one measured: a much higher bound would
/// not hold it, and a much lower one does not describe these losses (they come
/// in bursts, as a policer's do).
fn explained(facts: &Facts<'_>) -> Option<Finding> {
    let loss = facts.recent_loss_ratio();
    if loss < RESENT_MIN || hosts_are_busy(facts) {
        return None;
    }
    let (rtt, mss) = ((facts.medians.rtt_ns as u64).max(facts.base_rtt_ns()), facts.mss_bytes);
    let bound_of = |loss: f64| {
        let per_flow = |of: fn(f64, u64, f64) -> f64| of(mss, rtt, loss) * facts.flow_count;
        let (mathis, cubic) = (per_flow(formulas::mathis_bps), per_flow(formulas::cubic_bps));
        if cubic > mathis { (cubic, LossModel::Cubic) } else { (mathis, LossModel::Mathis) }
    };
    // Lost bytes count a burst by its segments, samples with losses count what
    // came within one as one: the truth lies between.
    let events = facts.loss_event_ratio().max(RESENT_MIN);
    let (lowest, highest) = (bound_of(loss), bound_of(events));
    let (bound, model) = if lowest.0 >= facts.goodput_bps { lowest } else { highest };
    let bound = if lowest.0 < facts.goodput_bps { bound.min(facts.goodput_bps).max(lowest.0) } else { bound };
    let held = facts.medians.window_fill >= 0.7 || facts.medians.not_sent > facts.medians.in_flight;
    let slow_start = facts.resent_bytes == 0 && facts.growth.is_some_and(|(_, slow_start)| slow_start);
    let rates = (lowest.0 / facts.goodput_bps.max(1.0), highest.0 / facts.goodput_bps.max(1.0));
    if !held || slow_start || !explains(facts, rates) {
        return None;
    }
    let goal = goal_bps(facts);
    let tolerable = match model {
        LossModel::Mathis => formulas::mathis_loss_ratio(mss, rtt, goal / facts.flow_count),
        LossModel::Cubic => formulas::cubic_loss_ratio(mss, rtt, goal / facts.flow_count),
    };
    let formula = match model {
        _ if lowest.0 < facts.goodput_bps => {
            "the higher of Mathis, MSS / rtt * 1.22 / sqrt(p), and CUBIC, 1.054 * rtt^0.75 / p^0.75 segments"
        }
        LossModel::Mathis => "Mathis: MSS / rtt * 1.22 / sqrt(p)",
        LossModel::Cubic => "CUBIC: 1.054 * rtt^0.75 / p^0.75 segments",
    };
    let mut sentence = format!(
        "loss: {:.4} % of the bytes were lost {}, which allows {} ({formula}); {} tolerate {:.1e} %",
        loss * 100.0,
        if fills_a_queue(facts) {
            "in a queue too short for one flow, or shared with other traffic"
        } else {
            "without a queue to overflow"
        },
        if lowest.0 >= facts.goodput_bps {
            rate(lowest.0)
        } else {
            format!(
                "{} one by one, and {} in bursts of one loss event each ({:.4} %)",
                rate(lowest.0),
                rate(highest.0),
                events * 100.0
            )
        },
        goal_text(facts),
        tolerable * 100.0
    );
    let mut remedies = loss_remedies(facts);
    if let Some((text, pacing)) = in_bursts(facts, loss) {
        sentence.push_str(&text);
        remedies.insert(0, pacing);
    }
    Some(Finding {
        cause: Cause::Loss {
            loss_ratio: loss,
            bound_bps: bound,
            model,
            tolerable_ratio: tolerable,
            goal_bps: goal,
        },
        sentence,
        // A queue that overflows is the path's own, and other traffic may fill it.
        fault: !fills_a_queue(facts),
        evidence: vec![
            facts.sampled(
                if facts.resent_bytes > 0 {
                    format!("{} of {} retransmitted", bytes(facts.resent_bytes), bytes(facts.sent_bytes))
                } else {
                    format!(
                        "{} of {} retransmitted since the connection started; the window has not recovered",
                        bytes(facts.ever.resent_bytes),
                        bytes(facts.ever.sent_bytes)
                    )
                },
                "tcpi_bytes_retrans and tcpi_bytes_sent",
            ),
            facts.sampled(
                format!("{} of the congestion window is in flight", percent(facts.medians.window_fill)),
                "median of tcpi_unacked / tcpi_snd_cwnd",
            ),
            facts.sampled(
                format!(
                    "rtt {} against {} at least",
                    time(facts.medians.rtt_ns as u64),
                    time(facts.base_rtt_ns())
                ),
                "median of tcpi_rtt, lowest of tcpi_min_rtt and probe",
            ),
        ],
        remedies,
    })
}

/// A flow whose packets are paced carries more and loses next to nothing: what drops them has
/// room for fewer packets than a window sends at once, as a token bucket (RFC 2697) or a queue of
/// a few packets; which of the two does not show from outside. Random losses would have hit the
/// paced flow, too.
fn in_bursts(facts: &Facts<'_>, loss: f64) -> Option<(String, Remedy)> {
    let paced = Facts::of_flow(facts.evidence, facts.experiment(ExperimentKind::Paced)?);
    let expected = loss * paced.sent_bytes as f64 / paced.mss_bytes.max(1.0);
    let spared = paced.loss_ratio() <= SPARED * loss && expected >= EXPECTED_MIN;
    if !spared || paced.goodput_bps < BETTER * best_requested_bps(facts) {
        return None;
    }
    let text = format!(
        "; paced to {}, {:.4} % were lost: what drops them has room for a few packets only (the burst of a policer, a short queue)",
        rate(paced.goodput_bps),
        paced.loss_ratio() * 100.0
    );
    let each = paced.goodput_bps / facts.flow_count / 1e6;
    let value = format!("{:.0}Mb/s", each.max(1.0)).into();
    Some((text, Remedy::ChangeFlow { key: "pacing".to_owned(), value }))
}

/// Packets that overtake each other: the sender takes them for lost, cuts its window
/// and retransmits them (RFC 5681, section 3.2; RFC 8985, section 6.2).
pub(super) fn reordering(facts: &Facts<'_>) -> Option<Finding> {
    let segments = facts.resent_bytes as f64 / facts.mss_bytes.max(1.0);
    let loss = facts.loss_ratio();
    // Segments that were received, and nothing else, make such an event: among real
    // losses there is hardly any (net/ipv4/tcp_input.c, tcp_check_sack_reordering).
    let events = facts.reorderings as f64;
    let ratio = events / segments.max(1.0);
    let often = facts.reorderings >= REORDERINGS_MIN && ratio >= REORDERED;
    let held = facts.medians.window_fill >= 0.7 || facts.medians.not_sent > facts.medians.in_flight;
    if !often || !held || loss < RESENT_MIN || has_queue(facts) || hosts_are_busy(facts) {
        return None;
    }
    Some(Finding {
        cause: Cause::Reordering { event_count: facts.reorderings, resent_ratio: loss },
        sentence: format!(
            "reordering: packets overtake each other on the path ({} times in {:.1} s), and the sender treats them as lost: {:.4} % of the bytes were retransmitted",
            facts.reorderings,
            facts.seconds,
            loss * 100.0
        ),
        fault: true,
        evidence: vec![
            facts.sampled(
                format!("{} reordering events, {ratio:.1} per retransmitted segment", facts.reorderings),
                "change of tcpi_reord_seen, tcpi_bytes_retrans / tcpi_snd_mss",
            ),
            facts.sampled(
                format!("{} of the congestion window is in flight", percent(facts.medians.window_fill)),
                "median of tcpi_unacked / tcpi_snd_cwnd",
            ),
        ],
        remedies: vec![
            Remedy::Physical {
                what: "find what spreads the packets of one flow over several links (round-robin bonding, load balancing by packet) and have it keep a flow on one of them"
                    .to_owned(),
            },
            Remedy::ChangeFlow {
                key: "flows".to_owned(),
                value: facts.config.flows.saturating_mul(4).min(64).into(),
            },
        ],
    })
}

/// Whether bounds of these many times the rate describe the losses.
fn explains(facts: &Facts<'_>, (lowest, highest): (f64, f64)) -> bool {
    // With few segments in flight a loss takes a timeout, which the models
    // leave out (Padhye, Firoiu, Towsley, Kurose 1998); over microseconds the
    // recovery takes longer than the round trip.
    let most = if facts.recent_loss_ratio() > TIMEOUT_LOSS || facts.is_local() { 8.0 } else { 3.0 };
    highest >= 1.0 / 3.0 && lowest <= most
}

fn loss_remedies(facts: &Facts<'_>) -> Vec<Remedy> {
    let change = |key: &str, value: Value| Remedy::ChangeFlow { key: key.to_owned(), value };
    let mut remedies = vec![Remedy::Physical {
        what: "find where packets are lost: optics, a damaged cable, a policer, a switch with small buffers"
            .to_owned(),
    }];
    remedies.push(change("flows", (facts.config.flows.saturating_mul(4).min(64)).into()));
    if facts.sender.host.kernel.congestion_controls.iter().any(|name| name == "bbr") {
        remedies.push(change("congestion-control", "bbr".into()));
    }
    remedies
}
