//! Synthetic measurements with a known truth, on a machine that drifts.

use clearstream_schema::outcome::Unit;
use clearstream_stats::Random;
use serde_json::json;

use super::*;
use crate::compare::runs::{self, Run};

/// A machine whose speed wanders from trial to trial and jumps between runs,
/// with skewed scatter: now and then a trial is slow.
struct Machine {
    random: Random,
    speed: f64,
    scatter: f64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), speed: 40e9, scatter: 0.02 }
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.below(1_000_000) as f64 / 1e6).sum::<f64>() - 6.0
    }

    fn trial(&mut self, ratio: f64) -> f64 {
        self.speed *= (0.005 * self.normal()).exp();
        let slow = if self.random.below(10) == 0 { 0.9 } else { 1.0 };
        self.speed * ratio * slow * (self.scatter * self.normal()).exp()
    }

    /// Time passes between two runs: 41 Gb/s become 36.
    fn rest(&mut self) {
        self.speed *= (0.06 * self.normal()).exp();
    }
}

fn goodput() -> Compared {
    Compared { name: "goodput".to_owned(), unit: Unit::BitsPerSecond, less_is_better: false }
}

fn observation(level: &str, flows: u32, repetition: u32, value: f64, started: String) -> Observation {
    Observation {
        experiment: "e".to_owned(),
        factors: [("mode".to_owned(), json!(level)), ("flows".to_owned(), json!(flows))].into(),
        metric: goodput(),
        repetition,
        value,
        is_delay_line_limited: false,
        started,
    }
}

/// One run, two levels in a random order in each repetition, with the ratio at each number of flows.
fn interleaved(machine: &mut Machine, repetitions: u32, ratios: &[f64]) -> Vec<Observation> {
    let mut all = Vec::new();
    for repetition in 0..repetitions {
        let mut order: Vec<(u32, f64, &str)> =
            (1..).zip(ratios).flat_map(|(flows, ratio)| [(flows, 1.0, "a"), (flows, *ratio, "b")]).collect();
        machine.random.shuffle(&mut order);
        for (flows, ratio, level) in order {
            let value = machine.trial(ratio);
            all.push(observation(level, flows, repetition, value, String::new()));
        }
    }
    all
}

fn of_levels(all: &[Observation], seed: u64) -> Comparison {
    compare(all, "mode", ["a", "b"], crate::PRACTICAL_RATIO, seed)
}

fn claims(found: &Comparison) -> bool {
    let claim = |verdict: Verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
    found.effects.iter().any(|effect| claim(effect.verdict))
        || found.cells.iter().any(|cell| claim(cell.verdict))
}

#[test]
fn within_one_run_the_same_is_not_called_different_and_intervals_hold_the_truth() {
    for (truth, repetitions) in [(1.0, 6), (1.0, 16), (1.05, 10), (0.9, 8), (1.2, 6)] {
        let (mut held, mut claimed, mut wrong) = (0, 0, 0);
        let rounds = 300;
        for seed in 0..rounds {
            let all = interleaved(&mut Machine::new(seed), repetitions, &[truth]);
            let found = of_levels(&all, seed);
            let effect = found.effects[0].effect.as_ref().unwrap();
            held += u32::from(effect.low_ratio <= truth && truth <= effect.high_ratio);
            claimed += u32::from(claims(&found));
            let worse = if truth < 1.0 { Verdict::Better } else { Verdict::Worse };
            wrong += u32::from(found.effects[0].verdict == worse);
        }
        assert!(held >= 279, "{truth} {repetitions}: {held} of {rounds} hold the truth");
        assert!(wrong <= 4, "{truth} {repetitions}: {wrong} claims of the wrong side");
        if truth == 1.0 {
            assert!(claimed <= 15, "{repetitions}: {claimed} false claims of {rounds}");
        }
        if (truth - 1.0f64).abs() >= 0.1 {
            assert!(claimed >= 255, "{truth} {repetitions}: found in {claimed} of {rounds}");
        }
    }
}

#[test]
fn an_interaction_is_found_and_not_pooled_and_one_effect_is_pooled() {
    let (mut found_opposite, mut found_equal) = (0, 0);
    for seed in 0..120 {
        let opposite = of_levels(&interleaved(&mut Machine::new(seed), 6, &[0.7, 2.16]), seed);
        let effect = &opposite.effects[0];
        found_opposite += u32::from(effect.effect.is_none() && effect.verdict == Verdict::Unknown);
        if let Some(on) = &effect.depends_on {
            assert_eq!(on.factor, "flows");
            let of = |flows: &str| on.levels.iter().find(|one| one.level.as_deref() == Some(flows)).unwrap();
            assert!(of("1").ratio < 0.8 && of("2").ratio > 1.8, "{on:?}");
        }
        let equal = of_levels(&interleaved(&mut Machine::new(seed), 6, &[1.2, 1.2]), seed);
        found_equal += u32::from(equal.effects[0].effect.is_none());
    }
    assert_eq!(found_opposite, 120);
    assert!(found_equal <= 6, "{found_equal} of 120 interactions that are none");
}

/// Nothing differs in any of four cells, and the scatter is as large as what would matter.
#[test]
fn many_cells_do_not_add_false_claims() {
    let (mut claimed, rounds) = (0, 200);
    for seed in 0..rounds {
        let mut machine = Machine { scatter: 0.1, ..Machine::new(seed) };
        let all = interleaved(&mut machine, 8, &[1.0; 4]);
        claimed += u32::from(claims(&of_levels(&all, seed)));
    }
    // 4 % are expected (8 runs, standard error 2.8): a rate above 5 % would show.
    assert!(claimed <= 14, "{claimed} of {rounds} runs claim something");
}

#[test]
fn three_repetitions_prove_nothing_and_are_reported_as_too_few() {
    let found = of_levels(&interleaved(&mut Machine::new(1), 3, &[3.0]), 1);
    assert!(!claims(&found));
    let notice = found.notices.iter().find(|notice| notice.id == "proves-nothing").unwrap();
    assert!(notice.message.contains("0.25 at least; 6 are needed"), "{}", notice.message);
    assert_eq!(found.cells[0].confidence_ratio, Some(0.75));
}

/// Many trials of one run prove no more than few.
const TRIALS: u32 = 5;

/// A whole run of one level, at an hour of its own.
fn run(machine: &mut Machine, hour: u32, ratio: f64) -> Run {
    machine.rest();
    let started = format!("2026-01-{:02}T{:02}:00:00Z", 1 + hour / 24, hour % 24);
    let all: Vec<Observation> = (0..TRIALS)
        .map(|repetition| observation("a", 1, repetition, machine.trial(ratio), started.clone()))
        .collect();
    Run::of(format!("run-{hour}"), &started, &all)
}

#[test]
fn two_runs_one_after_the_other_claim_nothing() {
    for seed in 0..60 {
        let mut machine = Machine::new(seed);
        for ratio in [1.0, 1.05] {
            let (one, other) = (run(&mut machine, 0, 1.0), run(&mut machine, 1, ratio));
            let found = runs::compare(&[one], &[other], crate::PRACTICAL_RATIO);
            assert!(found.cells.iter().all(|cell| cell.verdict == Verdict::Unknown), "{found:?}");
            let ids: Vec<&str> = found.notices.iter().map(|notice| notice.id.as_str()).collect();
            assert_eq!(ids, ["one-run-each", "no-overlap"]);
            assert!(found.cells[0].low_ratio.is_none(), "no interval without run-to-run scatter");
        }
        // Many of one side after all of the other are no better.
        let before: Vec<Run> = (0..5).map(|hour| run(&mut machine, hour, 1.0)).collect();
        let after: Vec<Run> = (5..10).map(|hour| run(&mut machine, hour, 1.0)).collect();
        let found = runs::compare(&before, &after, crate::PRACTICAL_RATIO);
        assert_eq!(found.cells[0].verdict, Verdict::Unknown);
        assert!(found.notices.iter().any(|notice| notice.id == "no-overlap"));
    }
}

#[test]
fn alternating_runs_are_pairs_and_hold_the_truth() {
    for truth in [1.0, 1.3] {
        let (mut held, mut claimed) = (0, 0);
        let rounds = 160;
        for seed in 0..rounds {
            let mut machine = Machine::new(seed);
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for pair in 0..8 {
                // A B, B A, A B, ...
                for second in if pair % 2 == 0 { [false, true] } else { [true, false] } {
                    let hour = 2 * pair + u32::from(second != (pair % 2 == 1));
                    let ratio = if second { truth } else { 1.0 };
                    if second { &mut after } else { &mut before }.push(run(&mut machine, hour, ratio));
                }
            }
            let found = runs::compare(&before, &after, crate::PRACTICAL_RATIO);
            let cell = &found.cells[0];
            assert_eq!(cell.pair_count, 8);
            held += u32::from(cell.low_ratio.unwrap() <= truth && truth <= cell.high_ratio.unwrap());
            claimed += u32::from(matches!(cell.verdict, Verdict::Better | Verdict::Worse));
            assert!(found.notices.is_empty(), "{:?}", found.notices);
        }
        assert!(held >= 149, "{truth}: {held} of {rounds}");
        assert!(if truth == 1.0 { claimed <= 8 } else { claimed >= 140 }, "{truth}: {claimed} of {rounds}");
    }
}
