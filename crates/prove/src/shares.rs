//! Load distribution over the gateways compared with their weights.
//!
//! A thousand flows that are hashed to six gateways give each of them 167 with a standard
//! deviation of 12, or 7 %: flows alone hardly detect a deviation below 10 % of the
//! weights. The kernels' lookups do: they take microseconds, and flows verify their
//! predictions.

use crate::document::{GatewayResult, RouteResult, ShareFit, VerificationFinding};
use clearstream_stats::{chance_deviation, goodness_of_fit};

use super::{decisions::Direction as Way, findings::error, flows::TRUSTED_RATIO, tested_route::TestedRoute};

/// A deviation is significant below this probability ...
const NO_CHANCE: f64 = 0.001;
/// ... and relevant above this fraction of the weight.
const SHARE_TOLERANCE: f64 = 0.10;
/// Probability with which chance exceeds `chance_deviation_ratio`.
const BY_CHANCE: f64 = 0.05;

/// Compares the counts of the gateways with their expected fractions.
pub(super) fn fit(counts: &[u64], ratios: &[f64]) -> Option<ShareFit> {
    let fit = goodness_of_fit(counts, ratios)?;
    let total: u64 = counts.iter().sum();
    let deviation = counts.iter().zip(ratios).map(|(count, ratio)| {
        let share = *count as f64 / total as f64;
        (share / ratio - 1.0).abs()
    });
    Some(ShareFit {
        flow_count: total,
        chi_square: fit.statistic,
        degrees_of_freedom: fit.degrees,
        p_value: fit.p_value,
        worst_deviation_ratio: deviation.fold(0.0, f64::max),
        chance_deviation_ratio: chance_deviation(total, ratios, BY_CHANCE)?,
    })
}

/// Number of flows with which half of the relevant deviation is distinguished from chance.
pub(super) fn enough_flows(ratios: &[f64]) -> u64 {
    // The deviation falls with the square root of the number.
    let of_one = chance_deviation(1, ratios, BY_CHANCE).unwrap_or(0.0);
    (of_one / (SHARE_TOLERANCE / 2.0)).powi(2).ceil() as u64
}

/// A fit and the ratio of a gateway that it compares.
type FitOf = (Option<ShareFit>, fn(&GatewayResult) -> Option<f64>);

/// Load distribution of one direction.
struct Direction {
    way: Way,
    opened: FitOf,
    lookups: FitOf,
}

/// Finds deviations of the load from the weights.
pub(super) fn find(
    route: &TestedRoute,
    proof: &RouteResult,
    why: &dyn Fn(Way) -> String,
) -> Vec<VerificationFinding> {
    let directions = [
        Direction {
            way: Way::Requests,
            opened: (proof.forward_fit, |gateway| gateway.forward_ratio),
            lookups: (proof.asked_forward_fit, |gateway| gateway.asked_forward_ratio),
        },
        Direction {
            way: Way::Replies,
            opened: (proof.reply_fit, |gateway| gateway.reply_ratio),
            lookups: (proof.asked_reply_fit, |gateway| gateway.asked_reply_ratio),
        },
    ];
    let [right, all] = proof.predicted_count;
    let trusted = all > 0 && right as f64 >= TRUSTED_RATIO * all as f64;
    let wrong = |fit: &ShareFit| fit.p_value < NO_CHANCE && fit.worst_deviation_ratio > SHARE_TOLERANCE;
    let mut findings = Vec::new();
    for direction in directions {
        // Where flows confirm the lookups, the larger sample of lookups decides.
        let ((fit, ratio), how) = match direction.lookups.0 {
            Some(_) if trusted => (direction.lookups, "by the kernels' lookups for"),
            _ => (direction.opened, "of"),
        };
        let Some(fit) = fit.filter(wrong) else { continue };
        findings.extend(finding(route, proof, &direction, why, fit, ratio, how));
    }
    findings
}

fn finding(
    route: &TestedRoute,
    proof: &RouteResult,
    direction: &Direction,
    why: &dyn Fn(Way) -> String,
    fit: ShareFit,
    ratio: fn(&GatewayResult) -> Option<f64>,
    how: &str,
) -> Option<VerificationFinding> {
    let deviations = proof.gateways.iter().filter_map(|gateway| {
        let share = ratio(gateway)?;
        Some((gateway, share, (share / gateway.expected_ratio - 1.0).abs()))
    });
    let (gateway, share, _) = deviations.max_by(|one, other| one.2.total_cmp(&other.2))?;
    let message = format!(
        "{} carries {:.1} % of the {} ({}, {how} {} flows), its weight requests {:.1} %; chance causes such a deviation once in {:.0} runs",
        gateway.gateway,
        share * 100.0,
        direction.way.name(),
        route.family(),
        fit.flow_count,
        gateway.expected_ratio * 100.0,
        (1.0 / fit.p_value.max(1e-9)).floor()
    );
    let correction = why(direction.way);
    Some(error("share", &gateway.gateway, message, correction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_flows_cannot_show_a_tenth_and_enough_can() {
        let six = [1.0 / 6.0; 6];
        // 12 of 167 is 7 %, which a gateway of six exceeds 2.6-fold now and then.
        let thousand = fit(&[150, 160, 170, 180, 190, 150], &six).unwrap();
        assert_eq!(thousand.flow_count, 1000);
        assert!((0.15..0.22).contains(&thousand.chance_deviation_ratio), "{thousand:?}");
        let enough = enough_flows(&six);
        let chance = chance_deviation(enough, &six, BY_CHANCE).unwrap();
        assert!((chance - 0.05).abs() < 1e-4, "{enough}: {chance}");
        assert!(enough_flows(&[1.0 / 64.0; 64]) > 10 * enough);
    }
}
