//! The loop.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_schema::{
    diagnosis::{Cause, Diagnosis, Finding, Verdict as Limit},
    flow::{FlowConfig, FlowSummary},
    improvement::{
        Candidate, DecisionRule, IMPROVEMENT_SCHEMA, Improvement, LoopEnd, Runs, TriedStep, Verdict,
    },
    notice::Notice,
};

use crate::{
    ImproveError, Testbed, candidates,
    comparison::{self, LEAST_PAIRS, LEVEL, Outcome, Rule, measure},
    kept::{State, each_alone, together, with_options},
};

/// Settings of the loop.
#[derive(Debug, Clone)]
pub struct Options {
    /// Pairs of runs (baseline, treatment) per change: at least four; seven can prove
    /// a gain. One that they show but do not prove is measured for as many more,
    /// twice at most.
    pub pairs: u32,
    /// A gain below it does not matter: 0.02 for 2 %.
    pub threshold_ratio: f64,
    /// Total time: diagnoses, comparisons and the last comparison.
    pub budget: Duration,
    /// Of the order within pairs.
    pub seed: u64,
}

/// Reason for trying changes together once that each proved nothing.
const CLOSE_LIMITS: &str =
    "each of these alone proved nothing: limits that lie close to each other hide one another";

/// Reason for trying each of the changes once more that were kept together.
const NEEDED: &str =
    "measured against the others that were kept with it: it is reverted where the runs show no gain";

/// Progress events.
#[derive(Debug)]
pub enum Event<'a> {
    /// A diagnosis is running.
    Diagnosing {
        /// Its current step.
        what: &'a str,
        /// Time left at most.
        left: Duration,
    },
    /// It was found out.
    Diagnosed(&'a Diagnosis),
    /// A change is being measured.
    Trying {
        /// Number of the step, from 1.
        number: usize,
        /// The change.
        candidate: &'a Candidate,
    },
    /// One run of it has ended.
    Run {
        /// Number of the pair, from 0.
        pair: u32,
        /// With the change.
        with: bool,
        /// The run.
        summary: &'a FlowSummary,
    },
    /// It was decided.
    Decided(&'a TriedStep),
    /// All that was kept is measured against the beginning.
    Confirming,
}

/// Improves the path for a flow, one change at a time.
///
/// # Errors
/// When a host is lost or changes cannot be reverted. A change that a host
/// refuses is a step with [`Verdict::Failed`].
pub fn run<B: Testbed>(
    testbed: &mut B,
    config: &FlowConfig,
    options: &Options,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Improvement, ImproveError> {
    if options.pairs < LEAST_PAIRS {
        return Err(ImproveError::TooFewPairs { pairs: options.pairs, least: LEAST_PAIRS });
    }
    let (client, server) = testbed.names();
    let mut found = Improvement {
        schema: IMPROVEMENT_SCHEMA.to_owned(),
        version: 1,
        client,
        server,
        rule: DecisionRule {
            pair_count: options.pairs,
            threshold_ratio: options.threshold_ratio,
            level_ratio: LEVEL,
            look_count: comparison::ANALYSES,
            seed: options.seed,
        },
        requested: config.clone(),
        kept: config.clone(),
        steps: Vec::new(),
        before: Runs::default(),
        after: Runs::default(),
        journals: Vec::new(),
        end: LoopEnd::NothingLeft,
        limit: None,
        observed_bps: None,
        next_step: None,
        notices: Vec::new(),
    };
    let until = testbed.now() + options.budget;
    let mut state = State::new(testbed);
    let looped =
        Loop { options, stop, until }.all(&mut state, &mut found, on_event).and_then(|()| state.keep_all());
    if looped.is_err() {
        // The error is returned; hosts are left as they were if they can be reached.
        state.revert_all()?;
    }
    looped?;
    found.journals = state.journals();
    Ok(found)
}

/// Fruitless diagnoses in a row that end the loop.
const FRUITLESS: u32 = 2;
/// The same where the limit is not known, or other processes hide it: that may
/// pass.
const FRUITLESS_UNKNOWN: u32 = 3;

/// Suggested next step, where the limit is not known or other processes hide it.
fn next_step(diagnosis: &Diagnosis) -> Option<String> {
    match &diagnosis.primary {
        Limit::Unknown { experiment, .. } => Some(experiment.question.clone()),
        Limit::Found(finding) if is_contention(finding) => {
            diagnosis.suggestions.first().map(|suggestion| suggestion.sentence.clone())
        }
        Limit::Found(_) => None,
    }
}

fn is_contention(finding: &Finding) -> bool {
    matches!(finding.cause, Cause::Contention { .. })
}

/// Reason for ending after a number of fruitless diagnoses.
fn end_after(diagnosis: &Diagnosis, fruitless: u32) -> Option<LoopEnd> {
    let (most, end) = match &diagnosis.primary {
        Limit::Unknown { .. } => (FRUITLESS_UNKNOWN, LoopEnd::LimitUnknown),
        Limit::Found(finding) if is_contention(finding) => (FRUITLESS_UNKNOWN, LoopEnd::Contended),
        Limit::Found(_) => (FRUITLESS, LoopEnd::NothingLeft),
    };
    (fruitless >= most).then_some(end)
}

struct Loop<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    until: Instant,
}

impl Loop<'_> {
    fn all<B: Testbed>(
        &self,
        state: &mut State<'_, B>,
        found: &mut Improvement,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ImproveError> {
        let mut kept: Vec<Candidate> = Vec::new();
        found.end = self.steps(state, found, &mut kept, on_event)?;
        if found.end == LoopEnd::Stopped || kept.is_empty() {
            return Ok(());
        }
        // One step was measured against the beginning already.
        if self.has_time(state, found, 1) {
            self.confirm(state, found, &kept, on_event)?;
        } else if kept.len() > 1 {
            found.notices.push(Notice {
                id: "not-confirmed".to_owned(),
                message: "no time was left to measure everything that was kept against the beginning; each \
                          change was measured against the one before it"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// Diagnoses and tries until nothing is left.
    fn steps<B: Testbed>(
        &self,
        state: &mut State<'_, B>,
        found: &mut Improvement,
        kept: &mut Vec<Candidate>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<LoopEnd, ImproveError> {
        let mut tried: Vec<String> = Vec::new();
        // Tried since the last one that was kept, and no worse.
        let mut near: Vec<Candidate> = Vec::new();
        // Diagnoses in a row that named nothing that was not tried yet.
        let mut fruitless = 0;
        'diagnosed: loop {
            if let Some(end) = self.over(state.testbed) {
                return Ok(end);
            }
            let left = self.until.saturating_duration_since(state.testbed.now());
            let diagnosis = state.testbed.diagnose(&found.kept, left, self.stop, &mut |what, left| {
                on_event(Event::Diagnosing { what, left });
            })?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(LoopEnd::Stopped);
            }
            on_event(Event::Diagnosed(&diagnosis));
            found.limit = Some(diagnosis.sentence());
            found.observed_bps = Some(diagnosis.observed_bps).filter(|bps| *bps > 0.0);
            found.next_step = next_step(&diagnosis);
            let mut tried_now = false;
            for candidate in candidates(state.testbed, &diagnosis, &found.kept)? {
                if tried.contains(&candidate.id) {
                    continue;
                }
                if let Some(end) = self.over(state.testbed) {
                    return Ok(end);
                }
                // The comparison at the end is needed once something was kept.
                if !self.has_time(state, found, 1 + usize::from(!kept.is_empty())) {
                    return Ok(LoopEnd::TimeOver);
                }
                tried.push(candidate.id.clone());
                tried_now = true;
                let Some(verdict) = self.step(state, found, &diagnosis, &candidate, on_event)? else {
                    return Ok(LoopEnd::Stopped);
                };
                match verdict {
                    Verdict::Kept => {
                        found.kept = with_options(&found.kept, &candidate)?;
                        kept.push(candidate);
                        // The limit has changed: they may help after all.
                        tried.retain(|id| near.iter().all(|candidate| candidate.id != *id));
                        near.clear();
                        continue 'diagnosed;
                    }
                    Verdict::NotProven => near.push(candidate),
                    _ => {}
                }
            }
            let all = together(&near, CLOSE_LIMITS);
            if near.len() < 2 || tried.contains(&all.id) {
                fruitless = if tried_now { 0 } else { fruitless + 1 };
                match end_after(&diagnosis, fruitless) {
                    Some(end) => return Ok(end),
                    // The tried changes did not help: the limit may be clearer now.
                    None => continue 'diagnosed,
                }
            }
            if !self.has_time(state, found, 1 + usize::from(!kept.is_empty())) {
                return Ok(LoopEnd::TimeOver);
            }
            tried.push(all.id.clone());
            match self.step(state, found, &diagnosis, &all, on_event)? {
                None => return Ok(LoopEnd::Stopped),
                Some(Verdict::Kept) => {
                    kept.extend(self.needed(state, found, &diagnosis, &all, &near, on_event)?);
                    near.clear();
                }
                Some(_) => {}
            }
        }
    }

    /// Of changes that were kept together those that matter in addition to the others:
    /// each is measured against being without it, and reverted where the runs
    /// show no gain. Those that time does not suffice for stay.
    fn needed<B: Testbed>(
        &self,
        state: &mut State<'_, B>,
        found: &mut Improvement,
        diagnosis: &Diagnosis,
        all: &Candidate,
        members: &[Candidate],
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Vec<Candidate>, ImproveError> {
        let base = found.kept.clone();
        let mut members = each_alone(members);
        found.kept = with_options(&base, all)?;
        state.revert(all)?;
        members.iter().try_for_each(|member| state.apply(member))?;
        for at in (0..members.len()).rev() {
            if !self.has_time(state, found, 2) {
                break;
            }
            let member = Candidate { reason: NEEDED.to_owned(), ..members.remove(at) };
            found.kept = members.iter().try_fold(base.clone(), |flow, other| with_options(&flow, other))?;
            let verdict = self.step(state, found, diagnosis, &member, on_event)?;
            let gain = found.steps.last().and_then(|step| step.gain_ratio);
            let is_needed = match verdict {
                Some(Verdict::Kept | Verdict::Failed { .. }) | None => true,
                Some(_) => gain.is_some_and(|gain| gain >= 1.0 + self.options.threshold_ratio),
            };
            if is_needed {
                state.apply(&member)?;
                found.kept = with_options(&found.kept, &member)?;
                members.insert(at, member);
            }
        }
        Ok(members)
    }

    fn over<B: Testbed>(&self, testbed: &B) -> Option<LoopEnd> {
        if self.stop.load(Ordering::Relaxed) {
            Some(LoopEnd::Stopped)
        } else {
            (testbed.now() >= self.until).then_some(LoopEnd::TimeOver)
        }
    }

    /// Time suffices for so many comparisons with the least number of pairs that can prove anything.
    fn has_time<B: Testbed>(&self, state: &State<'_, B>, found: &Improvement, comparisons: usize) -> bool {
        let pairs = comparison::proving_pairs(self.options.pairs);
        let runs = pairs.saturating_mul(2).saturating_mul(comparisons as u32);
        let needed = state.testbed.run_time(&found.kept).saturating_mul(runs);
        state.testbed.now() + needed <= self.until
    }

    /// Measures one change and notes it; `None` when it was stopped.
    fn step<B: Testbed>(
        &self,
        state: &mut State<'_, B>,
        found: &mut Improvement,
        diagnosis: &Diagnosis,
        candidate: &Candidate,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<Verdict>, ImproveError> {
        let number = found.steps.len() + 1;
        on_event(Event::Trying { number, candidate });
        let rule = self.rule(number as u64);
        let base = found.kept.clone();
        let outcome = measure(state, &base, candidate, rule, self.stop, &mut |pair, with, summary| {
            on_event(Event::Run { pair, with, summary });
        })?;
        let Some(outcome) = outcome else { return Ok(None) };
        let Outcome { before, after, gain, probability, verdict } = outcome;
        if found.before.goodput_bps.is_empty() {
            found.before = before.clone();
        }
        let now = if verdict == Verdict::Kept { &after } else { &before };
        // A change that was refused has no runs.
        if !now.goodput_bps.is_empty() {
            found.after = now.clone();
        }
        let step = TriedStep {
            limit: diagnosis.sentence(),
            candidate: candidate.clone(),
            before,
            after,
            gain_ratio: gain,
            probability_ratio: probability,
            verdict: verdict.clone(),
        };
        on_event(Event::Decided(&step));
        found.steps.push(step);
        Ok(Some(verdict))
    }

    fn rule(&self, stream: u64) -> Rule {
        Rule {
            pairs: self.options.pairs,
            threshold: self.options.threshold_ratio,
            seed: self.options.seed.wrapping_add(stream),
            until: Some(self.until),
        }
    }

    /// All kept changes against the initial state, in pairs: the steps were
    /// measured at different times, and each against the one before it. It also
    /// leaves one journal per host instead of one per step.
    fn confirm<B: Testbed>(
        &self,
        state: &mut State<'_, B>,
        found: &mut Improvement,
        kept: &[Candidate],
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ImproveError> {
        on_event(Event::Confirming);
        let all = together(kept, "all kept changes, against the initial flow and hosts");
        state.revert_all()?;
        let outcome =
            measure(state, &found.requested, &all, self.rule(0), self.stop, &mut |pair, with, summary| {
                on_event(Event::Run { pair, with, summary });
            })?;
        // Each step was proven by itself: they stay whatever this shows.
        state.apply(&all)?;
        if let Some(outcome) = outcome.filter(|outcome| !outcome.after.goodput_bps.is_empty()) {
            found.before = outcome.before;
            found.after = outcome.after;
        }
        Ok(())
    }
}
