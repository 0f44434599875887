//! One change measured: runs with and without it in pairs, each pair in a
//! random order, so that a drift of the machine does not look like an effect.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use clearstream_schema::{
    flow::{FlowConfig, FlowSummary},
    improvement::{Candidate, Runs, Verdict},
};
use clearstream_stats::{Random, median, permutation_test};

use crate::{Bench, ImproveError, kept::State};

/// Fewest pairs before a look. Four without overlap have a two-sided probability
/// of 2 in 70 = 0.029 and take a second look; five have 2 in 252 = 0.008.
pub(crate) const LEAST_PAIRS: u32 = 4;
/// A gain that the runs show but do not prove is measured for as many pairs
/// again, so that the runs are looked at this many times at most.
pub(crate) const LOOKS: u32 = 3;
/// A difference is proven at or below this probability. Looking three times
/// with 0.0221 each errs as often as looking once with 0.05 (Pocock 1977,
/// Biometrika 64, table 1).
pub(crate) const LEVEL: f64 = 0.0221;
/// Prices (CPU time, retransmits, delay) below this ratio are not looked at.
const NEGLIGIBLE_PRICE: f64 = 1.10;
/// From this gain on, delay under load is no price: a flow that reaches the
/// path's capacity fills its queue, whatever the reason that it did not before.
const DELAY_GAIN: f64 = 1.10;

/// What a trial gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) before: Runs,
    pub(crate) after: Runs,
    pub(crate) gain: Option<f64>,
    pub(crate) probability: Option<f64>,
    pub(crate) verdict: Verdict,
}

/// How it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) pairs: u32,
    /// A gain below it does not matter, 0.02 for 2 %.
    pub(crate) threshold: f64,
    pub(crate) seed: u64,
    /// No pair of runs is begun that would end later.
    pub(crate) until: Option<Instant>,
}

/// Measures a candidate against being without it. Afterwards it is in force if
/// it is to be kept, and taken back otherwise, also after an error.
/// `None` when it was stopped before the last run.
pub(crate) fn measure<B: Bench>(
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
            state.take_back(candidate)?;
            return Ok(None);
        }
        Err(error) => {
            // What is still in force is worse news than why it failed.
            state.take_back(candidate)?;
            return if error.is_of_the_candidate() { Ok(Some(failed(&error))) } else { Err(error) };
        }
    };
    if outcome.verdict == Verdict::Kept {
        state.put_in_force(candidate)?;
        state.keep_all()?;
    } else {
        state.take_back(candidate)?;
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
fn pairs<B: Bench>(
    state: &mut State<'_, B>,
    (base, changed): (&FlowConfig, &FlowConfig),
    candidate: &Candidate,
    rule: Rule,
    stop: &AtomicBool,
    on_run: &mut dyn FnMut(u32, bool, &FlowSummary),
) -> Result<Option<Outcome>, ImproveError> {
    let mut random = Random::new(rule.seed);
    let (mut before, mut after) = (Runs::default(), Runs::default());
    for look in 0..LOOKS {
        for pair in look * rule.pairs..(look + 1) * rule.pairs {
            // Runs for which time does not suffice prove nothing, and less is shown.
            if !fits(state.bench, base, rule) {
                return Ok(Some(decide(before, after, rule)));
            }
            let with_first = random.below(2) == 1;
            for with in [with_first, !with_first] {
                if with {
                    state.put_in_force(candidate)?;
                } else {
                    state.take_back(candidate)?;
                }
                let summary = state.bench.flow(if with { changed } else { base }, stop)?;
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
fn fits<B: Bench>(bench: &B, config: &FlowConfig, rule: Rule) -> bool {
    rule.until.is_none_or(|until| bench.now() + 2 * bench.run_time(config) <= until)
}

/// Adds what counts of a run.
pub(crate) fn add(runs: &mut Runs, summary: &FlowSummary) {
    let gigabytes = (summary.received_bytes as f64 / 1e9).max(1e-9);
    runs.goodput_bps.push(summary.goodput_bps);
    runs.cpu_seconds_per_gb.push(summary.client_cpu_seconds_per_gb + summary.server_cpu_seconds_per_gb);
    runs.retransmits_per_gb.push(summary.retransmit_count.unwrap_or(0) as f64 / gigabytes);
    runs.rtt_ns.push(summary.rtt_ns);
}

/// What follows from the runs: kept when more goodput is proven, matters, and
/// has no price that is proven and, in proportion, higher than the gain.
pub(crate) fn decide(before: Runs, after: Runs, rule: Rule) -> Outcome {
    let ratios: Vec<f64> =
        before.goodput_bps.iter().zip(&after.goodput_bps).map(|(without, with)| with / without).collect();
    let gain = median(&ratios).filter(|gain| gain.is_finite());
    let probability = permutation_test(&before.goodput_bps, &after.goodput_bps, rule.seed);
    let proven = probability.is_some_and(|probability| probability <= LEVEL);
    let verdict = match gain {
        Some(gain) if proven && gain >= 1.0 + rule.threshold => match price(&before, &after, gain, rule.seed)
        {
            Some(what) => Verdict::SideEffect { what },
            None => Verdict::Kept,
        },
        Some(gain) if proven && gain <= 1.0 - rule.threshold => Verdict::Worse,
        _ => Verdict::NotProven,
    };
    Outcome { before, after, gain, probability, verdict }
}

/// The first price that is too high, in words.
fn price(before: &Runs, after: &Runs, gain: f64, seed: u64) -> Option<String> {
    let delay =
        |runs: &Runs| runs.rtt_ns.iter().map(|rtt| rtt.map(|ns| ns as f64 / 1e6)).collect::<Option<Vec<_>>>();
    let mut looked_at = vec![
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
        looked_at.push(("round-trip time under load", " ms", before, after));
    }
    looked_at.into_iter().find_map(|(what, unit, before, after)| {
        let (without, with) = (median(&before)?, median(&after)?);
        let ratio = with / without;
        let too_high = ratio > NEGLIGIBLE_PRICE.max(gain);
        let proven = permutation_test(&before, &after, seed).is_some_and(|probability| probability <= LEVEL);
        (too_high && proven).then(|| {
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

    const RULE: Rule = Rule { pairs: 5, threshold: 0.02, seed: 1, until: None };

    fn runs(goodput: &[f64], cpu: f64, retransmits: f64, rtt: u64) -> Runs {
        let count = goodput.len();
        Runs {
            goodput_bps: goodput.to_vec(),
            cpu_seconds_per_gb: (0..count).map(|run| cpu * (1.0 + run as f64 / 1000.0)).collect(),
            retransmits_per_gb: vec![retransmits; count],
            rtt_ns: vec![Some(rtt); count],
        }
    }

    fn verdict(before: &[f64], after: &[f64]) -> Verdict {
        decide(runs(before, 0.2, 0.0, 17_000_000), runs(after, 0.2, 0.0, 17_000_000), RULE).verdict
    }

    #[test]
    fn a_gain_must_be_proven_and_must_matter() {
        assert_eq!(verdict(&[1.0, 1.1, 0.9, 1.0, 1.05], &[2.0, 2.1, 1.9, 2.0, 2.2]), Verdict::Kept);
        assert_eq!(verdict(&[2.0, 2.1, 1.9, 2.0, 2.2], &[1.0, 1.1, 0.9, 1.0, 1.05]), Verdict::Worse);
        // Overlapping: C(10,5) deals, far from the tails.
        assert_eq!(verdict(&[1.0, 1.4, 0.9, 1.2, 1.1], &[1.1, 1.3, 1.0, 1.25, 0.95]), Verdict::NotProven);
        // Proven (every value above every other), but one percent.
        assert_eq!(
            verdict(&[1.0, 1.001, 1.002, 1.003, 1.004], &[1.011, 1.012, 1.013, 1.014, 1.015]),
            Verdict::NotProven
        );
    }

    #[test]
    fn probability_of_full_separation_is_two_of_all_deals() {
        let outcome = decide(
            runs(&[1.0, 1.1, 0.9, 1.0, 1.05], 0.2, 0.0, 1),
            runs(&[2.0, 2.1, 1.9, 2.0, 2.2], 0.2, 0.0, 1),
            RULE,
        );
        // 10! / (5! 5!) = 252
        assert!((outcome.probability.unwrap() - 2.0 / 252.0).abs() < 1e-12);
        assert!((outcome.gain.unwrap() - 2.0).abs() < 0.12);
    }

    #[test]
    fn a_price_larger_than_the_gain_is_refused_and_named() {
        let slow = [1.0, 1.01, 1.02, 1.0, 1.01];
        let (faster, little) = ([1.2, 1.21, 1.22, 1.2, 1.21], [1.05, 1.06, 1.07, 1.05, 1.06]);
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
