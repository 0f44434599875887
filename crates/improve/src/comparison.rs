//! One change measured: baseline and treatment in pairs, each pair in a
//! random order, so that a drift of the machine is not mistaken for an effect.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use clearstream_schema::{
    flow::{FlowConfig, FlowSummary},
    improvement::{Candidate, Runs, Verdict},
};
use clearstream_stats::{PairedRatio, Random, median, paired_ratio};

use crate::{ImproveError, Testbed, kept::State};

/// Fewest pairs before an interim analysis. Fewer than [`PROVING_PAIRS`] prove nothing at the
/// first analysis, and show whether a second is worth its time.
pub(crate) const LEAST_PAIRS: u32 = 4;
/// Fewest pairs that can prove a difference: all seven have the same sign with
/// a two-sided probability of 2 in 2^7 = 0.0156, six with 0.031.
pub(crate) const PROVING_PAIRS: u32 = 7;
/// A gain that the runs show but do not prove is measured for as many more
/// pairs, up to this number of analyses.
pub(crate) const ANALYSES: u32 = 3;
/// A difference is proven at or below this probability. Three analyses
/// with 0.0221 each have the error rate of one with 0.05 (Pocock 1977,
/// Biometrika 64, table 1).
pub(crate) const LEVEL: f64 = 0.0221;
/// Costs (CPU time, retransmits, delay) below this ratio are ignored.
const NEGLIGIBLE_COST: f64 = 1.10;
/// From this gain on, delay under load is no cost: a flow that reaches the
/// path's capacity fills its queue, whatever the reason that it did not before.
const DELAY_GAIN: f64 = 1.10;

/// Outcome of a comparison.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) before: Runs,
    pub(crate) after: Runs,
    pub(crate) gain: Option<f64>,
    pub(crate) probability: Option<f64>,
    pub(crate) verdict: Verdict,
}

/// Rule of the measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) pairs: u32,
    /// A gain below it does not matter, 0.02 for 2 %.
    pub(crate) threshold: f64,
    pub(crate) seed: u64,
    /// No pair of runs is begun that would end later.
    pub(crate) until: Option<Instant>,
}

/// Measures a candidate against being without it. Afterwards it is effective if
/// it is to be kept, and reverted otherwise, also after an error.
/// `None` when it was stopped before the last run.
pub(crate) fn measure<B: Testbed>(
    state: &mut State<'_, B>,
    base: &FlowConfig,
    candidate: &Candidate,
    rule: Rule,
    stop: &AtomicBool,
    on_run: &mut dyn FnMut(u32, bool, &FlowSummary),
) -> Result<Option<Outcome>, ImproveError> {
    let changed = match crate::kept::with_options(base, candidate) {
        Ok(config) => config,
        Err(error) => return Ok(Some(failed(&error))),
    };
    let measured = pairs(state, (base, &changed), candidate, rule, stop, on_run);
    let outcome = match measured {
        Ok(Some(outcome)) => outcome,
        Ok(None) => {
            state.revert(candidate)?;
            return Ok(None);
        }
        Err(error) => {
            // A change that is still effective is worse news than why it failed.
            state.revert(candidate)?;
            return if error.is_of_the_candidate() { Ok(Some(failed(&error))) } else { Err(error) };
        }
    };
    if outcome.verdict == Verdict::Kept {
        state.apply(candidate)?;
        state.keep_all()?;
    } else {
        state.revert(candidate)?;
    }
    Ok(Some(outcome))
}

fn failed(error: &ImproveError) -> Outcome {
    Outcome {
        before: Runs::default(),
        after: Runs::default(),
        gain: None,
        probability: None,
        verdict: Verdict::Failed { reason: error.to_string() },
    }
}

/// Runs in pairs until they prove something, or show nothing to be proven.
fn pairs<B: Testbed>(
    state: &mut State<'_, B>,
    (base, changed): (&FlowConfig, &FlowConfig),
    candidate: &Candidate,
    rule: Rule,
    stop: &AtomicBool,
    on_run: &mut dyn FnMut(u32, bool, &FlowSummary),
) -> Result<Option<Outcome>, ImproveError> {
    let mut random = Random::new(rule.seed);
    let (mut before, mut after) = (Runs::default(), Runs::default());
    for analysis in 0..ANALYSES {
        for pair in analysis * rule.pairs..(analysis + 1) * rule.pairs {
            // Runs for which time does not suffice prove nothing, and less is shown.
            if !fits(state.testbed, base, rule) {
                return Ok(Some(decide(before, after, rule)));
            }
            let with_first = random.below(2) == 1;
            for with in [with_first, !with_first] {
                if with {
                    state.apply(candidate)?;
                } else {
                    state.revert(candidate)?;
                }
                let summary = state.testbed.flow(if with { changed } else { base }, stop)?;
                if stop.load(Ordering::Relaxed) || !summary.complete {
                    return Ok(None);
                }
                on_run(pair, with, &summary);
                add(if with { &mut after } else { &mut before }, &summary);
            }
        }
        let outcome = decide(before.clone(), after.clone(), rule);
        let shown = outcome.gain.is_some_and(|gain| gain >= 1.0 + rule.threshold);
        if outcome.verdict != Verdict::NotProven || !shown {
            return Ok(Some(outcome));
        }
    }
    Ok(Some(decide(before, after, rule)))
}

/// A pair of runs ends in time.
fn fits<B: Testbed>(testbed: &B, config: &FlowConfig, rule: Rule) -> bool {
    rule.until.is_none_or(|until| testbed.now() + 2 * testbed.run_time(config) <= until)
}

/// Adds what counts of a run.
pub(crate) fn add(runs: &mut Runs, summary: &FlowSummary) {
    let gigabytes = (summary.received_bytes as f64 / 1e9).max(1e-9);
    runs.goodput_bps.push(summary.goodput_bps);
    runs.cpu_seconds_per_gb.push(summary.client_cpu_seconds_per_gb + summary.server_cpu_seconds_per_gb);
    runs.retransmits_per_gb.push(summary.retransmit_count.unwrap_or(0) as f64 / gigabytes);
    runs.rtt_ns.push(summary.rtt_ns);
}

/// Verdict on the runs: kept when more goodput is proven, matters, and
/// has no cost that is proven and, in proportion, higher than the gain.
///
/// Baseline and treatment are run in pairs, in an order drawn for each
/// pair: the signed-rank test over the pairs is exact whatever the path does
/// from pair to pair, where a test of both sets would take its drift for scatter.
pub(crate) fn decide(before: Runs, after: Runs, rule: Rule) -> Outcome {
    // A run without any data is a rate too: a ratio needs positive ones.
    let positive = |rates: &[f64]| rates.iter().map(|rate| rate.max(1.0)).collect::<Vec<_>>();
    let found = paired(&positive(&before.goodput_bps), &positive(&after.goodput_bps));
    let verdict = match found {
        Some(found) if is_proven(&found) && found.value >= 1.0 + rule.threshold => {
            match cost(&before, &after, found.value) {
                Some(what) => Verdict::SideEffect { what },
                None => Verdict::Kept,
            }
        }
        Some(found) if is_proven(&found) && found.value <= 1.0 - rule.threshold => Verdict::Worse,
        _ => Verdict::NotProven,
    };
    Outcome {
        before,
        after,
        gain: found.map(|found| found.value),
        probability: found.map(|found| found.probability_ratio),
        verdict,
    }
}

/// The ratio of values that were measured in pairs.
fn paired(before: &[f64], after: &[f64]) -> Option<PairedRatio> {
    let pairs: Vec<(f64, f64)> = before.iter().copied().zip(after.iter().copied()).collect();
    paired_ratio(&pairs)
}

fn is_proven(found: &PairedRatio) -> bool {
    found.probability_ratio <= LEVEL
}

/// Pairs that a comparison needs to prove anything, in whole analyses.
pub(crate) fn proving_pairs(pairs: u32) -> u32 {
    pairs.saturating_mul(PROVING_PAIRS.div_ceil(pairs.max(1)))
}

/// The first cost that is too high, as text.
fn cost(before: &Runs, after: &Runs, gain: f64) -> Option<String> {
    let delay =
        |runs: &Runs| runs.rtt_ns.iter().map(|rtt| rtt.map(|ns| ns as f64 / 1e6)).collect::<Option<Vec<_>>>();
    let mut costs = vec![
        ("CPU seconds per GB", "", before.cpu_seconds_per_gb.clone(), after.cpu_seconds_per_gb.clone()),
        // One more is no doubling of none.
        (
            "retransmitted segments per GB",
            "",
            before.retransmits_per_gb.iter().map(|count| count + 1.0).collect(),
            after.retransmits_per_gb.iter().map(|count| count + 1.0).collect(),
        ),
    ];
    if let (Some(before), Some(after), true) = (delay(before), delay(after), gain < DELAY_GAIN) {
        costs.push(("round-trip time under load", " ms", before, after));
    }
    costs.into_iter().find_map(|(what, unit, before, after)| {
        let found = paired(&before, &after)?;
        let (without, with) = (median(&before)?, median(&after)?);
        (found.value > NEGLIGIBLE_COST.max(gain) && is_proven(&found)).then(|| {
            format!(
                "{what} rose from {without:.3}{unit} to {with:.3}{unit} for {:.0} % more goodput",
                (gain - 1.0) * 100.0
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { pairs: 7, threshold: 0.02, seed: 1, until: None };

    fn runs(goodput: &[f64], cpu: f64, retransmits: f64, rtt: u64) -> Runs {
        let count = goodput.len();
        Runs {
            goodput_bps: goodput.iter().map(|rate| rate * 1e9).collect(),
            cpu_seconds_per_gb: (0..count).map(|run| cpu * (1.0 + run as f64 / 1000.0)).collect(),
            retransmits_per_gb: vec![retransmits; count],
            rtt_ns: vec![Some(rtt); count],
        }
    }

    fn outcome(before: &[f64], after: &[f64]) -> Outcome {
        decide(runs(before, 0.2, 0.0, 17_000_000), runs(after, 0.2, 0.0, 17_000_000), RULE)
    }

    fn verdict(before: &[f64], after: &[f64]) -> Verdict {
        outcome(before, after).verdict
    }

    const SLOW: [f64; 7] = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0];
    const FAST: [f64; 7] = [2.0, 2.1, 1.9, 2.0, 2.2, 1.8, 2.0];

    #[test]
    fn a_gain_must_be_proven_and_must_matter() {
        assert_eq!(verdict(&SLOW, &FAST), Verdict::Kept);
        assert_eq!(verdict(&FAST, &SLOW), Verdict::Worse);
        assert_eq!(verdict(&SLOW, &[0.0; 7]), Verdict::Worse, "a change that stops the flow");
        // Three of seven pairs have the opposite sign.
        let (one, other) = ([1.0, 1.4, 0.9, 1.2, 1.1, 1.0, 1.2], [1.1, 1.3, 1.0, 1.25, 0.95, 1.1, 1.1]);
        assert_eq!(verdict(&one, &other), Verdict::NotProven);
        // Proven (every pair has the same sign), but one percent.
        let little = SLOW.map(|rate| rate * 1.01);
        assert_eq!(verdict(&SLOW, &little), Verdict::NotProven);
        assert!(outcome(&SLOW, &little).probability.unwrap() <= LEVEL);
        // Six pairs prove nothing at this level.
        assert_eq!(verdict(&SLOW[..6], &FAST[..6]), Verdict::NotProven);
        assert_eq!([4, 5, 7, 9].map(proving_pairs), [8, 10, 7, 9]);
    }

    #[test]
    fn probability_of_pairs_of_one_sign_is_two_of_all_signs() {
        let outcome = outcome(&SLOW, &FAST);
        assert!((outcome.probability.unwrap() - 2.0 / 128.0).abs() < 1e-12);
        assert!((outcome.gain.unwrap() - 2.0).abs() < 0.12);
    }

    /// The path loses half of its speed meanwhile: more than the change gains,
    /// so that the two sets of runs overlap, and every pair shows the same gain.
    #[test]
    fn drift_from_pair_to_pair_hides_no_gain() {
        let before: Vec<f64> = (0..7).map(|pair| 2.0 - 0.15 * f64::from(pair)).collect();
        let after: Vec<f64> = before.iter().map(|rate| rate * 1.08).collect();
        assert_eq!(verdict(&before, &after), Verdict::Kept);
        let sets = clearstream_stats::permutation_test(&before, &after, 1).unwrap();
        assert!(sets > 0.3, "a test of the sets sees nothing: {sets}");
    }

    #[test]
    fn a_cost_larger_than_the_gain_is_rejected_and_named() {
        let slow = [1.0, 1.01, 1.02, 1.0, 1.01, 1.02, 1.0];
        let (faster, little) = (slow.map(|rate| rate * 1.2), slow.map(|rate| rate * 1.05));
        let delayed =
            |with: &[f64]| decide(runs(&slow, 0.2, 0.0, 17), runs(with, 0.2, 0.0, 40), RULE).verdict;
        assert_eq!(delayed(&faster), Verdict::Kept, "a full path has a full queue");
        let verdict = delayed(&little);
        assert!(
            matches!(&verdict, Verdict::SideEffect { what } if what.contains("round-trip")),
            "{verdict:?}"
        );
        let after = |cpu, retransmits, rtt| {
            decide(runs(&slow, 0.2, 0.0, 17), runs(&faster, cpu, retransmits, rtt), RULE).verdict
        };
        assert_eq!(after(0.2, 0.0, 17), Verdict::Kept);
        assert_eq!(after(0.23, 0.0, 17), Verdict::Kept, "15 % dearer for 20 % more");
        for (cpu, retransmits, rtt, named) in [(0.3, 0.0, 17, "CPU"), (0.2, 50.0, 17, "retransmitted")] {
            let verdict = after(cpu, retransmits, rtt);
            assert!(matches!(&verdict, Verdict::SideEffect { what } if what.contains(named)), "{verdict:?}");
        }
    }
}
