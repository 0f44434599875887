//! Decisions of the adaptive warm-up, from what both ends read in the turns of each candidate.
//!
//! A candidate replaces what is in effect when it moved more in nearly every round, and by more than the stage asks for; where
//! none does, one that moves as much with less CPU time. The best of many candidates is often one that only chance made the
//! best, so it has to hold once more: what the stages found and what the confirmation finds count alike.

use clearstream_schema::{
    ByteCount,
    flow::{
        AdaptationStage, AdaptationTrial, AdaptedSettings, FlowAdaptation, FlowConfig, FlowSettings,
        SocketSettings,
    },
};
use clearstream_stats::median;

use super::{Side, receivers};
use crate::{
    adapt::{Candidate, Open, Turn, candidates, turns},
    calls::{Adopt, Reading, Tried},
};

/// Transfers in a turn below which the path is the limit, and not how they are copied.
const TRANSFERS_MIN: f64 = 4.0;
/// Part of the goodput that one with less CPU time may lack.
const AS_MUCH: f64 = 0.99;
/// Gain over both, the stages and their confirmation (geometric mean).
const CONFIRMED: f64 = 1.02;

/// The state of the warm-up of one test.
#[derive(Debug)]
pub(super) struct Adaptation {
    config: FlowConfig,
    open: Open,
    first: Candidate,
    current: Candidate,
    /// The receivers' own low-water mark.
    low_water: Option<u64>,
    tried: [Option<Tried>; 2],
    trials: Vec<AdaptationTrial>,
    /// Gain of what the stages before the confirmation adopted, other than a placement.
    found: f64,
    /// Goodput of what is in effect, in the stage before.
    last_bps: f64,
    /// Why nothing is tried, or what the last stage found.
    reason: Option<String>,
    is_over: bool,
}

impl Adaptation {
    /// `reason`: why nothing is tried.
    pub(super) fn new(config: &FlowConfig, open: Open, reason: Option<String>) -> Self {
        let first = Candidate::first(config);
        Self {
            config: config.clone(),
            open,
            first,
            current: first,
            low_water: None,
            tried: [None, None],
            trials: Vec::new(),
            found: 1.0,
            last_bps: 0.0,
            is_over: reason.is_some(),
            reason,
        }
    }

    /// Effective settings of a side at the start.
    pub(super) fn starts(&mut self, side: Side, settings: &FlowSettings) {
        if self.low_water.is_none() && receivers(self.config.direction).contains(&side) {
            let first = settings.flows.first();
            self.low_water = first.map(|socket: &SocketSettings| socket.receive_low_water_bytes);
        }
    }

    /// Adds what one side tried; returns what both are to adopt, once both have tried it.
    pub(super) fn tried(&mut self, side: Side, test: u64, tried: Tried) -> Option<Adopt> {
        if self.is_over {
            return None;
        }
        if let Some(reason) = tried.reason {
            self.reason = Some(reason);
            self.is_over = true;
            return None;
        }
        self.tried[usize::from(side == Side::Server)] = Some(tried);
        let [Some(client), Some(server)] = &self.tried else { return None };
        let (stage, readings) = (client.stage?, both(&client.readings, &server.readings));
        self.tried = [None, None];
        let candidate = self.decide(stage, &readings);
        Some(Adopt { test, stage, candidate })
    }

    /// The candidate of a stage to adopt.
    fn decide(&mut self, stage: AdaptationStage, readings: &[Option<Together>]) -> usize {
        let turns: Vec<Turn> =
            turns(&self.config, self.open).into_iter().filter(|turn| turn.stage == stage).collect();
        let all = candidates(stage, self.current, self.first);
        let scores = scores(all.len(), &turns, readings);
        let (time, transfer) = (turns.first().map(|turn| turn.end - turn.counts), self.first.transfer);
        let least_bps = TRANSFERS_MIN * transfer as f64 * 8.0 / time.unwrap_or_default().as_secs_f64();
        let adopted = match scores.first() {
            None => {
                self.reason = Some("this machine stood still in too many turns".to_owned());
                0
            }
            Some(first) if first.goodput_bps < least_bps => {
                self.reason = Some("the path is too slow for turns of milliseconds".to_owned());
                0
            }
            Some(_) => best(stage, &scores, (self.found, self.last_bps)),
        };
        if matches!(stage, AdaptationStage::Transfer | AdaptationStage::LowWater)
            && let Some(score) = scores.get(adopted)
        {
            self.found *= score.gain_ratio;
            self.last_bps = score.goodput_bps;
        }
        let trial = |(candidate, score): (&Candidate, &Score)| AdaptationTrial {
            stage,
            settings: self.settings(*candidate),
            goodput_bps: score.goodput_bps,
            cpu_seconds_per_gb: score.cpu_seconds_per_gb,
            gain_ratio: score.gain_ratio,
        };
        let mut trials: Vec<AdaptationTrial> = all.iter().zip(&scores).map(trial).collect();
        self.trials.append(&mut trials);
        if let Some(candidate) = all.get(adopted) {
            self.current = *candidate;
        }
        adopted
    }

    fn settings(&self, candidate: Candidate) -> AdaptedSettings {
        AdaptedSettings {
            transfer: ByteCount(candidate.transfer),
            receive_low_water: self.low_water.map(|own| match self.open.receive_low_water {
                true => ByteCount(candidate.low_water(own)),
                false => ByteCount(own),
            }),
            placement: candidate.placement,
        }
    }

    /// What was tried and chosen.
    pub(super) fn result(self) -> FlowAdaptation {
        let chosen = (self.current != self.first).then(|| self.settings(self.current));
        // What kept one stage from a decision is no reason for what the others chose.
        let reason = self.reason.clone().filter(|_| chosen.is_none()).unwrap_or_else(|| self.found());
        FlowAdaptation { chosen, reason, trials: self.trials }
    }

    fn found(&self) -> String {
        if self.current == self.first {
            return format!("none of {} other settings was clearly better", self.others());
        }
        let last = |stage| {
            let is_in_effect = |trial: &&AdaptationTrial| trial.settings.placement == self.current.placement;
            self.trials.iter().filter(|trial| trial.stage == stage).rfind(is_in_effect)
        };
        // What decided: both, the stages and their confirmation.
        let copying = last(AdaptationStage::Confirmation)
            .map_or(self.found, |confirmed| (self.found * confirmed.gain_ratio).sqrt());
        let gain = copying * last(AdaptationStage::Placement).map_or(1.0, |pinned| pinned.gain_ratio);
        if gain < CONFIRMED {
            return "as much with less CPU time".to_owned();
        }
        format!("{gain:.2} times the defaults")
    }

    fn others(&self) -> usize {
        let tried = |trial: &&AdaptationTrial| trial.stage != AdaptationStage::Confirmation;
        self.trials.iter().filter(tried).filter(|trial| trial.settings != self.settings(self.first)).count()
    }
}

/// What both sides read in one turn.
#[derive(Debug, Clone, Copy)]
struct Together {
    goodput_bps: f64,
    cpu_seconds_per_gb: f64,
}

/// Of each turn; `None` where a side missed it.
fn both(client: &[Reading], server: &[Reading]) -> Vec<Option<Together>> {
    let one = |(client, server): (&Reading, &Reading)| {
        let per_second = |of: fn(&Reading) -> u64| {
            [client, server].iter().map(|side| of(side) as f64 / (side.duration_ns as f64 / 1e9)).sum::<f64>()
        };
        let missed = client.duration_ns == 0 || server.duration_ns == 0;
        let bytes = per_second(|side| side.received_bytes);
        (!missed).then(|| Together {
            goodput_bps: bytes * 8.0,
            cpu_seconds_per_gb: per_second(|side| side.cpu_ns) / bytes.max(1.0),
        })
    };
    client.iter().zip(server).map(one).collect()
}

/// One candidate over all rounds, beside the first one.
#[derive(Debug, Clone, PartialEq)]
struct Score {
    goodput_bps: f64,
    cpu_seconds_per_gb: f64,
    /// Median goodput over that of the first candidate in the same round.
    gain_ratio: f64,
    /// Median CPU time per byte over that of the first candidate in the same round.
    cost_ratio: f64,
    /// Rounds with both.
    rounds: usize,
    /// Rounds in which it moved more.
    faster: usize,
    /// Rounds in which it needed less CPU time per byte.
    thriftier: usize,
}

/// Scores of all candidates; empty when the first one has no round.
fn scores(count: usize, turns: &[Turn], readings: &[Option<Together>]) -> Vec<Score> {
    let of = |candidate: usize| -> Vec<Option<Together>> {
        let of_all = turns.iter().zip(readings);
        of_all.filter(|(turn, _)| turn.candidate == candidate).map(|(_, reading)| *reading).collect()
    };
    let first = of(0);
    let one = |candidate: usize| {
        let pairs: Vec<(Together, Together)> =
            of(candidate).into_iter().zip(&first).filter_map(|(own, first)| own.zip(*first)).collect();
        let of_all = |value: &dyn Fn(&(Together, Together)) -> f64| {
            median(&pairs.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let gain = |(own, first): &(Together, Together)| own.goodput_bps / first.goodput_bps.max(1.0);
        let cost = |(own, first): &(Together, Together)| own.cpu_seconds_per_gb / first.cpu_seconds_per_gb;
        Score {
            goodput_bps: of_all(&|(own, _)| own.goodput_bps),
            cpu_seconds_per_gb: of_all(&|(own, _)| own.cpu_seconds_per_gb),
            gain_ratio: of_all(&gain),
            cost_ratio: of_all(&cost),
            rounds: pairs.len(),
            faster: pairs.iter().filter(|pair| gain(pair) > 1.0).count(),
            thriftier: pairs.iter().filter(|pair| cost(pair) < 1.0).count(),
        }
    };
    if first.iter().flatten().count() < 2 { Vec::new() } else { (0..count).map(one).collect() }
}

/// The candidate to adopt; 0 where none is clearly better than what is in effect.
fn best(stage: AdaptationStage, scores: &[Score], (found, last_bps): (f64, f64)) -> usize {
    // A pin is a promise about the whole test, and is not confirmed: it has to win clearly and always.
    let (least_gain, most_cost, lost) = match stage {
        AdaptationStage::Placement => (1.15, 0.0, 0),
        AdaptationStage::Transfer | AdaptationStage::LowWater => (1.02, 0.93, 1),
        AdaptationStage::Confirmation => (AS_MUCH, 0.95, 1),
    };
    let others = || scores.iter().enumerate().skip(1).filter(|(_, score)| score.rounds >= 2);
    let holds = |score: &Score| match stage {
        AdaptationStage::Confirmation => (found * score.gain_ratio).sqrt() >= CONFIRMED,
        // The scheduler's turns are next to each other: a moment in which the machine stood still is no reason to pin.
        AdaptationStage::Placement => {
            score.faster == score.rounds && score.goodput_bps >= least_gain * last_bps
        }
        _ => score.faster + lost >= score.rounds,
    };
    let faster = others()
        .filter(|(_, score)| score.gain_ratio >= least_gain && holds(score))
        .max_by(|(_, one), (_, other)| one.gain_ratio.total_cmp(&other.gain_ratio));
    let thriftier = || {
        others()
            .filter(|(_, score)| score.gain_ratio >= AS_MUCH && score.cost_ratio <= most_cost)
            .filter(|(_, score)| score.thriftier + lost >= score.rounds)
            .min_by(|(_, one), (_, other)| one.cost_ratio.total_cmp(&other.cost_ratio))
    };
    faster.or_else(thriftier).map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests;
